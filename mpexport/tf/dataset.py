"""A dataset that ``tf.data.Dataset.save`` wrote, element by element."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from mpexport.errors import InputError, UsageError
from mpexport.tensors import TensorSet
from mpexport.tf.load import first_line


def elements(path: str, inputs: list[str]) -> Iterator[TensorSet]:
    """The elements of a dataset, by input name.

    An element is a mapping from input names, or a tensor for the only input; of a tuple, as `fit`
    takes it, the first member counts.

    Args:
        path: Its directory.
        inputs: Names of the model's inputs.

    Raises:
        InputError: Damaged.
        UsageError: The elements don't fit.
    """
    try:
        dataset = tf.data.Dataset.load(path)
        for element in dataset:
            yield _by_name(path, element, inputs)
    except (tf.errors.OpError, ValueError, TypeError) as e:
        raise InputError(f"{path}: damaged dataset: {first_line(e)}", where=path) from e


def _by_name(path: str, element: Any, inputs: list[str]) -> TensorSet:
    if isinstance(element, tuple):
        element = element[0]
    if isinstance(element, Mapping):
        return {name: _array(path, value) for name, value in element.items()}
    if len(inputs) != 1:
        raise UsageError(
            f"{path}: the elements are tensors, and the model has several inputs",
            hint="save a dataset of mappings from input names to tensors",
        )
    return {inputs[0]: _array(path, element)}


def _array(path: str, value: Any) -> Any:
    if not isinstance(value, tf.Tensor):
        raise UsageError(f"{path}: holds a {type(value).__name__}, not plain tensors")
    array = value.numpy()
    return array.astype(np.float32) if value.dtype == tf.bfloat16 else np.asarray(array)
