"""True classes of the samples, read along with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpexport import plugins, tensors
from mpexport.errors import UsageError
from mpexport.tensors import TensorSet


class Labels:
    """Labels of one output, in the order of the samples.

    Args:
        path: An ``.npy`` of integers of shape (samples,).
        output: The output they belong to; None means the only one of shape (batch, classes).

    Raises:
        InputError: Missing or damaged.
        UnsafeModelError: Pickled objects; they are not read.
        UsageError: No vector of integers.
    """

    def __init__(self, path: Path, output: str | None = None) -> None:
        self._path, self._output, self._next = path, output, 0
        self._values: NDArray[Any] = tensors.map_npy(path)
        if self._values.ndim != 1 or self._values.dtype.kind not in "iu":
            raise UsageError(
                f"{path}: labels are a vector of integers", hint="numpy.save(path, labels)"
            )

    def take(self, outputs: TensorSet) -> Mapping[str, NDArray[Any]]:
        """The labels of the next case, by output name.

        Args:
            outputs: What the reference gives for that case.

        Raises:
            UsageError: There are too few labels, or it isn't clear which output they are for.
        """
        name = self._name(outputs)
        rows = len(outputs[name])
        start, self._next = self._next, self._next + rows
        found = np.asarray(self._values[start : self._next])
        if len(found) < rows:
            raise UsageError(f"{self._path}: {len(self._values)} labels for more samples than that")
        return {name: found}

    def skip(self, samples: int) -> None:
        """Passes over the labels of samples that are run elsewhere."""
        self._next += samples

    def finish(self) -> None:
        """Raises `UsageError` when there were more labels than samples."""
        if self._next != len(self._values):
            raise UsageError(f"{self._path}: {len(self._values)} labels for {self._next} samples")

    def _name(self, outputs: TensorSet) -> str:
        if self._output is not None:
            if self._output not in outputs:
                raise UsageError(
                    f"labels for no output: {self._output!r}; "
                    + plugins.did_you_mean(self._output, outputs)
                )
            if outputs[self._output].ndim != 2:
                shape = list(outputs[self._output].shape)
                raise UsageError(
                    f"output {self._output!r} has shape {shape}: labels need [batch, classes]"
                )
            return self._output
        fitting = [
            name
            for name, array in outputs.items()
            if tensors.kind_of(array) == "float" and array.ndim == 2 and array.shape[1] >= 2
        ]
        if len(fitting) != 1:
            some = ", ".join(fitting) or "none"
            raise UsageError(
                f"which output are the labels for? Those of shape [batch, classes]: {some}",
                hint="--labels NAME:FILE",
            )
        return fitting[0]
