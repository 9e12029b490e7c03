"""Whole numbers carried in 16-bit floats, and text with lookup tables.

float16 has all integers up to 2048, bfloat16 up to 256; larger ids come out rounded, and the
trained model is the one that is wrong. Text ops have no counterpart in TFLite and ONNX: a file that
takes every word for an unknown one must not be made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpexport

pytestmark = [pytest.mark.tf, pytest.mark.litert, pytest.mark.ort]
BOTH = pytest.mark.parametrize("format", ["tflite", "onnx"])


@BOTH
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_large_ids_give_their_own_rows(export: Any, policy: str, format: str) -> None:
    made = export(f"ids_{policy}.keras", format)
    # Rows of a table are copied, so not a bit may differ.
    (found,) = made.outputs().values()
    np.testing.assert_array_equal(found, made.source.expected["output_0"])


def test_ids_that_a_trained_model_rounds_are_found(export: Any) -> None:
    path = export.source("ids_mixed_float16.keras").path
    findings = mpexport.check(path, run=export.options).findings
    (found,) = (f for f in findings if f.rule == "rounded-ids")
    assert "above 2048" in found.message
    assert "embedding" in found.where
    assert "dtype" in found.hint


@BOTH
def test_text_ops_are_refused_by_layer(export: Any, format: str) -> None:
    error = export.refusal("text", format, 5)
    assert "StringSplitV2" in error.message
    assert "text_vectorization" in error.message
    assert "before the model" in error.hint


@BOTH
def test_numeric_part_of_a_text_model(export: Any, format: str) -> None:
    """Ids of real sentences, unknown words among them."""
    assert export("numeric_part", format).agrees()
