"""bfloat16, for which runtimes have no kernels and converters no name, or the wrong one.

It must be widened exactly, wherever it is: weights, one kernel of a loop, every convolution. Where
the trained model itself cannot serve as a reference, that must be said.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

pytestmark = [pytest.mark.tf, pytest.mark.litert, pytest.mark.ort]
BOTH = pytest.mark.parametrize("format", ["tflite", "onnx"])


@BOTH
def test_weights_keep_their_exact_values(export: Any, format: str) -> None:
    made = export("variables_bfloat16", format)
    assert made.agrees()
    if format == "onnx":
        stored = [numpy_helper.to_array(i) for i in onnx.load(made.path).graph.initializer]
        assert any(np.array_equal(array, made.source.expected["kernel"]) for array in stored)


@BOTH
def test_one_kernel_of_a_loop(export: Any, format: str) -> None:
    """Rounded anew at each step of the trained model, and not at all in the files."""
    assert export("loop", format).agrees()


def test_convolutions_of_one_to_three_dimensions_run(export: Any) -> None:
    assert export("convolutions.keras", "onnx").agrees()


@pytest.mark.parametrize(
    ("name", "why"),
    [("all_nan", "the reference has 6 NaN of 6"), ("constant", "all of the reference is one")],
)
def test_reference_that_proves_nothing(export: Any, name: str, why: str) -> None:
    assert why in export.refusal(name, "onnx", 9).message


def test_initializers_do_not_run_when_a_file_is_loaded(export: Any) -> None:
    """The orthogonal one needs a QR decomposition, which there is none of in bfloat16."""
    assert export("bfloat16_lstm.keras", "onnx").agrees()
