"""Inputs for tests of ONNX rewrites, and how one is tested: nodes of its file, and its numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.tf.onnx_support import convert_and_check

# A function, its inputs, and all nodes of its file but those that only carry tensors.
Rewrite = tuple[Callable[..., Any], tuple[Any, ...], dict[str, int]]

FLOATS = np.float32(
    [
        [-3.5, -1.25, -0.3, 0.0, 0.2, 0.45],
        [0.55, 1.0, 1.75, 2.5, 3.0, 5.25],
        [-0.5, 0.5, 1.5, -1.5, -2.5, 4.5],
    ]
)
SHIFTED = np.roll(FLOATS, 2, 1) + np.float32(0.3)
POSITIVE = np.abs(FLOATS) + np.float32(0.125)
BELOW_ONE = FLOATS / np.float32(6) + np.float32(0.06)
SMALL = FLOATS * np.float32(1e-4)
WHOLE = np.int32([[-7, 5, -3, 0, 2, 9], [4, -4, 1, 8, -6, 3], [0, 0, 7, 7, -1, 2]])
DIVISORS = np.int32([[2, -3, 2, 4, -5, 3], [3, 3, -2, 5, 4, -1], [1, 2, -3, 4, 5, -6]])
_RNG = np.random.default_rng(0)
IMAGE = _RNG.random((3, 6, 7, 3), np.float32)
SQUARE = _RNG.standard_normal((3, 4, 4)).astype(np.float32)
SIGNAL = _RNG.standard_normal((3, 20)).astype(np.float32)
# Change sizes, shapes and types.
CARRIERS = {
    *("Cast", "Concat", "ConstantOfShape", "Expand", "Identity", "Range", "Reshape", "Shape"),
    *("Size", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
}


def check_rewrite(rewrite: Rewrite) -> None:
    """The nodes are those, and the numbers are the float64 reference's."""
    function, arrays, expected = rewrite
    found = convert_and_check(function, *arrays)
    assert {op: n for op, n in found.items() if op not in CARRIERS} == expected
