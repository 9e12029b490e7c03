"""Recurrent layers: a batch of any size, states handed over or kept, kernels for one device only.

TensorFlow's converter asks for static shapes ("TensorListReserve"); a file must run nevertheless,
or say what was fixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.tf, pytest.mark.litert, pytest.mark.ort]
BOTH = pytest.mark.parametrize("format", ["tflite", "onnx"])


@BOTH
@pytest.mark.parametrize("name", ["lstm.keras", "gru.keras"])
def test_any_batch(export: Any, name: str, format: str) -> None:
    """Batches of 2 and of 1 in one file, of the same model."""
    made = export(name, format)
    assert made.agrees()
    expected = made.source.expected["output_0"]
    if format == "onnx":
        one = made.outputs({k: v[1:] for k, v in made.source.inputs.items()})["output_0"]
        np.testing.assert_allclose(one, expected[1:], rtol=1e-5, atol=1e-5)


@BOTH
@pytest.mark.parametrize("name", ["lstm_fixed.keras", "gru_fixed.keras"])
def test_fixed_batch(export: Any, name: str, format: str) -> None:
    assert export(name, format).agrees()


@BOTH
@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_states_between_two_models(export: Any, name: str, format: str) -> None:
    made = export(name, format)
    assert made.agrees()
    assert not [op for op in made.file.contract.ops if op.startswith("Flex")]


@BOTH
def test_both_directions_without_a_kernel_for_one_device(export: Any, format: str) -> None:
    made = export("both_ways.keras", format)
    assert made.agrees()
    assert not [op for op in made.file.contract.ops if "cudnn" in op.lower()]


@BOTH
def test_state_that_a_model_keeps_is_refused(export: Any, format: str) -> None:
    """The second call would compute something else, which these formats can't."""
    error = export.refusal("stateful.keras", format, 5)
    assert "AssignVariableOp" in error.message
    assert "changes a variable at inference" in error.message
    assert "gru" in error.where
    assert "savedmodel" in error.hint
