"""The variables and tables behind captures: find their owners, widen 16-bit ones, read values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context as eager_context

from mpexport.findings import Change
from mpexport.tf import concrete
from mpexport.tf.graph import HALF_TYPES, Program
from mpexport.tf.passes.saturate_sentinels import saturated


def owners(model: Any, captures: list[Any]) -> list[Any]:
    """The trackable objects of a loaded model that own captured resources.

    What is saved or converted must track exactly these: a resource nobody tracks is written
    uninitialized.

    Args:
        model: Any trackable object.
        captures: Captured tensors; those that are no resources have no owner.

    Returns:
        Variables and tables in the order they are found, each once.
    """
    wanted = {id(c) for c in captures if c.dtype == tf.resource}
    found = []
    for child in tf.train.TrackableView(model).descendants():
        handle = getattr(child, "handle", None)
        if not isinstance(child, tf.Variable):
            handle = getattr(child, "resource_handle", None)
        if handle is not None and id(handle) in wanted:
            wanted.discard(id(handle))
            found.append(child)
    return found


def widen_captures(program: Program) -> tuple[list[Any], list[Change]]:
    """Replaces captures of 16-bit values by float32 twins with exactly the same values.

    Infinite constants are saturated, as those in the graph are; variables are left to the check.

    Args:
        program: Promoted; the entries' captures are edited.

    Returns:
        The new variables (to be tracked by whoever saves the program), and what changed.
    """
    twins: dict[int, Any] = {}
    variables, changes = [], []
    for entry in program.entries.values():
        for i, capture in enumerate(entry.captures):
            dtype = concrete.variable_dtype(capture)
            if dtype in HALF_TYPES:
                if id(capture) not in twins:
                    value = tf.raw_ops.ReadVariableOp(resource=capture, dtype=tf.as_dtype(dtype))
                    twin = tf.Variable(tf.cast(value, tf.float32), trainable=False)
                    twins[id(capture)] = twin.handle
                    variables.append(twin)
                    detail = f"{tf.as_dtype(dtype).name} → float32"
                    changes.append(Change("widen_captures", "variable-widened", entry.key, detail))
                entry.captures[i] = twins[id(capture)]
            elif capture.dtype in (tf.float16, tf.bfloat16):
                value = tf.cast(capture, tf.float32).numpy()
                if np.isinf(value).any():  # as in a Const of the graph
                    changes.append(Change("widen_captures", "constant-saturated", entry.key))
                entry.captures[i] = tf.constant(saturated(value))
                changes.append(Change("widen_captures", "constant-widened", entry.key))
    return variables, changes


def read_value(capture: Any) -> np.ndarray:
    """The value behind a capture as an array; a variable's buffer is not copied where TF can."""
    dtype = concrete.variable_dtype(capture)
    with eager_context.eager_mode():  # a converter may be building a graph
        if dtype is not None:
            capture = tf.raw_ops.ReadVariableOp(resource=capture, dtype=tf.as_dtype(dtype))
        return np.asarray(capture.numpy())


def size_bytes(capture: Any) -> int:
    """Bytes of the value behind a capture; 0 when it has no fixed size."""
    dtype = concrete.variable_dtype(capture)
    kind = tf.as_dtype(dtype) if dtype is not None else capture.dtype
    shape = concrete.capture_shape(capture)
    if shape is None or None in shape or kind in (tf.resource, tf.variant, tf.string):
        return 0
    return math.prod(size or 0 for size in shape) * int(kind.size)
