"""Files that another generation of Keras wrote, or that lose their policy when they are loaded.

Keras 3 answers them with AttributeErrors about something else. The writer is told from the file's
content, and the file read by the Keras that wrote it, under the policy it was saved with.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.tf, pytest.mark.litert, pytest.mark.ort]


@pytest.mark.parametrize("name", ["old.keras", "old.h5", "old"], ids=["keras", "h5", "folder"])
def test_mixed_model_of_the_keras_before_keras_3(export: Any, name: str) -> None:
    """Each kind of file gives what numpy computes from its weights in float64."""
    assert export(name, "onnx").agrees()


@pytest.mark.parametrize("name", ["old.keras", "classifier_mixed_float16.keras"])
def test_either_generation_converts_to_tflite(export: Any, name: str) -> None:
    """Neither meets the converter that asks Keras 3 objects for what only the old ones have."""
    assert export(name, "tflite").agrees()


def test_constants_on_the_left_of_half_tensors(export: Any) -> None:
    """``1 - 2.0 * x`` on a float16 input: tf-keras writes an ``.h5`` file that it can't load.

    The layer is named, and the way out is one that works: a SavedModel of the same model.
    """
    error = export.refusal("left.h5", "onnx", 5)
    assert "tf.math.multiply" in error.message
    assert "SavedModel" in error.hint
    made = export("left", "onnx")
    ((name, output),) = made.outputs().items()
    assert output.dtype == np.float32
    # Inputs have 11 bits and the result fits in 24: float32 is exact.
    np.testing.assert_array_equal(output, made.source.expected[name])


def test_neither_generation_is_imported_here(export: Any) -> None:
    """One process holds one generation at most, so the caller's own is never drawn in."""
    before = set(sys.modules)
    export("old.h5", "tflite")
    assert not {"keras", "tf_keras"} & (set(sys.modules) - before)


def test_model_without_a_signature_is_told_how_to_save_one(export: Any) -> None:
    error = export.refusal("no_signature", "tflite", 2)
    assert "has no signatures" in error.message
    assert "input_signature" in error.hint


@pytest.mark.parametrize("format", ["tflite", "onnx"])
def test_saved_with_float16_weights(export: Any, format: str) -> None:
    """Mixed precision stores weights in float32; half the size has to be asked for."""
    name = "classifier_mixed_float16.keras"
    plain, half = export(name, format), export(name, format, weights="float16")
    weights = 4 * (3 * 3 * 3 * 16 + 3 * 3 * 16 * 96 + 96 * 5)
    saved = plain.path.stat().st_size - half.path.stat().st_size
    assert 0.8 * weights / 2 < saved < 1.1 * weights / 2
    # Three weights of relative error 2^-11 in a row.
    assert half.agrees(2**-9)
    assert half.file.conversion.precision == "float16-weights"
