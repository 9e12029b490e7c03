"""Inputs and outputs whose element types are not what a caller sends, or was promised.

A policy says nothing certain about outputs, so types come from the traced graph; those of 16 bits
become float32, since JSON clients and most runtimes have no half. What an option promises must be
in the file, or be refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e.kit import run_child

pytestmark = [pytest.mark.tf, pytest.mark.litert, pytest.mark.ort]


def saved_signature(made: Any, scratch: Path) -> dict[str, Any]:
    """As TensorFlow reads it from the SavedModel."""
    keys = ("serve", "serving_default")  # both call the same function
    inputs = {f"{key}/{k}": v for key in keys for k, v in made.source.inputs.items()}
    np.savez(scratch / "in.npz", **inputs)
    answer = run_child("saved_model.py", made.path, scratch / "in.npz", scratch / "out.npz")
    return json.loads(answer)["signatures"]["serving_default"]


def test_half_output_is_served_as_float32(export: Any, tmp_path: Path) -> None:
    """The model has no float32 head; Keras' own export gives it a float16 output."""
    made = export("another_order", "savedmodel")
    signature = saved_signature(made, tmp_path)
    assert signature["inputs"]["x"][0] == "float32"
    assert signature["outputs"]["output_0"][0] == "float32"
    (promised,) = made.file.conversion.signatures[0].outputs
    assert promised.dtype == "float32"


def test_half_output_is_kept_when_asked_for(export: Any, tmp_path: Path) -> None:
    made = export("another_order", "savedmodel", io_dtype="keep")
    assert saved_signature(made, tmp_path)["outputs"]["output_0"][0] == "float16"


@pytest.mark.parametrize("format", ["tflite", "onnx"])
def test_half_outputs_are_not_ignored_where_there_are_none(export: Any, format: str) -> None:
    error = export.refusal("another_order", format, 2, io_dtype="keep")
    assert "io_dtype" in error.message


@pytest.mark.parametrize("format", ["tflite", "onnx"])
def test_three_heads_of_three_types(export: Any, format: str) -> None:
    """A float32 head in a mixed model, one in the policy's type, and an argmax of integers."""
    made = export("three_heads", format)
    found, expected = made.outputs(), made.source.expected
    promised = {s.name: s.dtype for s in made.file.conversion.signatures[0].outputs}
    assert {k: v.dtype.name for k, v in found.items()} == promised
    assert [promised[f"output_{i}"][:5] for i in range(3)] == ["float", "float", "int32"[:5]]
    for name in ("output_0", "output_1"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found["output_2"], expected["output_2"])
