"""ONNX files in which element types don't fit together: they don't load, or compute nonsense.

At each border between float16 and float32 there must be a Cast: in skips, after Resize, around
casts of the model's author, and beside weights that are stored in float16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

pytestmark = [pytest.mark.tf, pytest.mark.ort]
# Three float16 weights (relative error 2^-11 each) in a row, and sums of them.
FLOAT16_WEIGHTS = 2**-9


def element_types(made: Any) -> dict[str, int]:
    """Tensor → element type, by ONNX's own inference."""
    model = onnx.shape_inference.infer_shapes(onnx.load(made.path), strict_mode=True)
    graph = model.graph
    values = [*graph.value_info, *graph.input, *graph.output]
    return {
        **{v.name: v.type.tensor_type.elem_type for v in values},
        **{i.name: i.data_type for i in graph.initializer},
    }


@pytest.mark.parametrize("policy", ["mixed_float16", "float16"])
def test_kernel_of_a_convolution_has_the_type_of_its_input(export: Any, policy: str) -> None:
    """Convolution, batch normalization and ReLU: half kernel, statistics in float32."""
    made = export(f"classifier_{policy}.keras", "onnx")
    assert made.agrees()
    types = element_types(made)
    convolutions = [n for n in onnx.load(made.path).graph.node if n.op_type == "Conv"]
    assert convolutions
    for node in convolutions:
        assert {types[i] for i in node.input if i} == {TensorProto.FLOAT}


@pytest.mark.parametrize("options", [{}, {"precision": "float16"}], ids=["float32", "float16"])
def test_skip_from_the_input_to_the_last_concatenation(export: Any, options: Any) -> None:
    made = export("skip.keras", "onnx", **options)
    types = element_types(made)
    joins = [n for n in onnx.load(made.path).graph.node if n.op_type == "Concat"]
    joined = [{types[i] for i in n.input} for n in joins]
    assert joined
    assert all(len(kinds) == 1 for kinds in joined)
    # In float16 each value carries 2^-11 of its size, and three layers add up.
    assert made.agrees(None if not options else 2**-7)


@pytest.mark.parametrize(
    ("options", "rtol"),
    [({}, None), ({"weights": "float16"}, FLOAT16_WEIGHTS), ({"precision": "float16"}, 2**-7)],
    ids=["float32", "float16-weights", "float16"],
)
def test_softmax_that_its_author_computes_in_float32(export: Any, options: Any, rtol: Any) -> None:
    assert export("stable_softmax", "onnx", **options).agrees(rtol)


def test_upsampling_in_float16(export: Any) -> None:
    made = export("upsampling.keras", "onnx", precision="float16")
    assert made.file.contract.facts["float16_nodes"] > 0
    assert made.agrees(2**-7)


@pytest.mark.parametrize("format", ["tflite", "onnx"])
def test_kernel_stored_in_half_is_widened_exactly(export: Any, format: str) -> None:
    made = export("stored_half", format)
    assert made.agrees()
    if format == "onnx":
        stored = [numpy_helper.to_array(i) for i in onnx.load(made.path).graph.initializer]
        kernel = made.source.expected["kernel"].transpose(3, 2, 0, 1)
        assert any(np.array_equal(array, kernel) for array in stored)


def test_layer_normalization_with_any_batch(export: Any) -> None:
    """Held against the twin, the float64 reference and the trained model; batches of 1 and 3."""
    made = export("layer_norm.keras", "onnx")
    assert made.agrees()
    (row,) = made.file.parity[0].rows
    assert row.cause == "ok"
    one = made.outputs({k: v[:1] for k, v in made.source.inputs.items()})["output_0"]
    expected = made.source.expected["output_0"]
    np.testing.assert_allclose(one, expected[:1], rtol=1e-5, atol=1e-5 * np.abs(expected).max())
