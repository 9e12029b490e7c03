"""Layers that fix an element type, or hold objects that have one: setting a policy is not enough.

Promotion works on the graph, so it meets constants, nested objects and wrappers alike.
"""

from __future__ import annotations

from typing import Any

import pytest

import mpexport

pytestmark = [pytest.mark.tf, pytest.mark.litert, pytest.mark.ort]
BOTH = pytest.mark.parametrize("format", ["tflite", "onnx"])


@BOTH
def test_float32_embedding_and_constant_added_to_half(export: Any, format: str) -> None:
    assert export("positions", format).agrees()


@BOTH
def test_rescaling_and_normalization_within_the_model(export: Any, format: str) -> None:
    """Inputs from 0 to 255."""
    assert export("preprocessing.keras", format).agrees()


@BOTH
def test_constants_made_in_the_type_of_the_policy(export: Any, format: str) -> None:
    """Read where the policy is float32 again, as everywhere a model is served."""
    assert export("pooling", format).agrees()


@BOTH
def test_layers_in_a_list_and_an_object_that_is_no_layer(export: Any, format: str) -> None:
    assert export("nested", format).agrees()


@BOTH
def test_mask_of_a_pruning_wrapper(export: Any, format: str) -> None:
    """The float32 mask takes part in the product: half of the kernel is 0."""
    assert export("pruned", format).agrees()


def test_variance_that_float16_cannot_hold_is_found(export: Any) -> None:
    """The trained model has an infinite one and so ignores its input; so do faithful exports."""
    source = export.source("large_variance.keras")
    findings = mpexport.check(source.path, run=export.options).findings
    (found,) = (f for f in findings if f.rule == "infinite-constant")
    assert "constant" in found.message
    assert "float32" in found.hint
