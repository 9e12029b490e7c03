"""Graphs with 16-bit ops, which TensorFlow's own converter to TFLite refuses or needs Flex for.

TFLite has no float16 or bfloat16 kernels for convolutions, products and activations, so a model
trained under a mixed policy can't be converted as it is. It has to be promoted first, wherever the
16 bits come from: the global policy, one layer's, an input, weights of a model without Keras.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpexport
from tests.e2e.kit import run_child

pytestmark = [pytest.mark.tf, pytest.mark.litert, pytest.mark.ort]
BOTH = pytest.mark.parametrize("format", ["tflite", "onnx"])


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16"])
def test_batch_normalization_in_half_converts(export: Any, policy: str) -> None:
    made = export(f"classifier_{policy}.keras", "tflite")
    assert made.agrees()
    assert not [op for op in made.file.contract.ops if op.startswith("Flex")]


def test_policy_set_after_building_is_seen_as_still_mixed(export: Any) -> None:
    """The global policy changes no layer that is there already, whatever its weights are set to."""
    source = export.source("policy_set_afterwards.keras")
    policies = mpexport.check(source.path, run=export.options).policies
    assert {p.policy for p in policies if p.layer.endswith("conv2d")} == {"mixed_float16"}
    made = export("policy_set_afterwards.keras", "tflite")
    same = export.source("classifier_mixed_float16.keras")
    (found,) = made.outputs(same.inputs).values()
    np.testing.assert_allclose(found, same.expected["output_0"], rtol=1e-5, atol=1e-5)


def test_one_half_layer_in_a_float32_model(export: Any) -> None:
    name = "one_half_layer.keras"
    policies = mpexport.check(export.source(name).path, run=export.options).policies
    half = [p.layer.rpartition("/")[2] for p in policies if p.compute_dtype == "float16"]
    assert half == ["hidden"]
    assert export(name, "tflite").agrees()
    assert export(name, "onnx").agrees()


@BOTH
def test_half_input_is_widened_and_told(export: Any, format: str) -> None:
    made = export("half_input.keras", format)
    (promised,) = made.file.conversion.signatures[0].inputs
    assert promised.dtype == "float32"
    # float32 arrays go in, so the file has what the report says.
    assert made.agrees()


@BOTH
def test_depthwise_blocks_with_statistics(export: Any, format: str) -> None:
    made = export("depthwise.keras", format)
    assert made.agrees()
    assert not [op for op in made.file.contract.ops if op.startswith("Flex")]


def test_layers_of_the_same_shape_keep_their_weights(export: Any) -> None:
    """Created in another order than called: matching weights by position would swap them."""
    assert export("another_order", "tflite").agrees()


def test_no_cast_to_half_is_left_in_the_saved_model(export: Any, tmp_path: Path) -> None:
    """Converters without a Cast to float16 take the normalized SavedModel."""
    made = export("casts", "savedmodel")
    source = made.source
    keys = ("serve", "serving_default")  # both call the same function
    inputs = {f"{key}/{k}": v for key in keys for k, v in source.inputs.items()}
    np.savez(tmp_path / "in.npz", **inputs)
    answer = json.loads(
        run_child("saved_model.py", made.path, tmp_path / "in.npz", tmp_path / "out.npz")
    )
    assert answer["halves"] == []
    with np.load(tmp_path / "out.npz") as stored:
        found = stored["serving_default/output_0"]
    np.testing.assert_allclose(found, source.expected["output_0"], rtol=1e-5, atol=1e-5)


@BOTH
def test_variables_and_constants_without_keras(export: Any, format: str) -> None:
    made = export("variables_float16", format)
    assert made.agrees()
    assert sum(c["count"] for c in made.result.changes) > 0
