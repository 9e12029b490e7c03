"""float16 storage of ONNX weights, on small graphs built here; no TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402 (after importorskip)

from mpexport.runtimes import RuntimeOptions, _onnx_file, get  # noqa: E402
from mpexport.tf.onnx_precision import contract, storage  # noqa: E402
from mpexport.tf.onnx_precision.regions import all_graphs  # noqa: E402

RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(size=(8, 8)).astype(np.float32)
X = RNG.normal(size=(2, 8)).astype(np.float32)

pytestmark = pytest.mark.ort


def value(name: str, shape: list[Any] | None = None, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, ["N", 8] if shape is None else shape)


def model_of(nodes: list[Any], weights: dict[str, Any], inputs: Any = None) -> Any:
    graph = helper.make_graph(
        nodes,
        "g",
        inputs or [value("x")],
        [value("y")],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    return model


def run(model: Any, folder: Path, inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    path = folder / "m.onnx"
    onnx.save(model, str(path))
    onnx.checker.check_model(str(path), full_check=True)
    session = get("onnxruntime").open(path, RuntimeOptions())
    return session.run(inputs)["y"], session.environment()


def ops(model: Any) -> list[str]:
    return [node.op_type for graph in all_graphs(model) for node in graph.node]


def rounded(array: Any) -> Any:
    return array.astype(np.float16).astype(np.float32)


def loop(weight_in_body: bool) -> Any:
    """y = x after three times x = tanh(x @ w)."""
    w = onnx.numpy_helper.from_array(WEIGHT, "w")
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "w"], ["product"], "loop/product"),
            helper.make_node("Tanh", ["product"], ["next"], "loop/tanh"),
            helper.make_node("Identity", ["go"], ["go_on"], "loop/go"),
        ],
        "body",
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("state")],
        [value("go_on", [], TensorProto.BOOL), value("next")],
        [w] if weight_in_body else [],
    )
    node = helper.make_node("Loop", ["three", "", "x"], ["y"], "loop", body=body)
    weights = {"three": np.array(3)}
    return model_of([node], weights if weight_in_body else {**weights, "w": WEIGHT})


def test_a_shared_weight_is_stored_once_and_widened_once(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "first"),
        helper.make_node("MatMul", ["a", "w"], ["y"], "second"),
    ]
    model = model_of(nodes, {"w": WEIGHT})
    changes = storage.store_float16(model)
    assert [(c.kind, c.where) for c in changes] == [("weight-stored-float16", "w")]
    assert ops(model) == ["Cast", "MatMul", "MatMul"]
    assert [t.data_type for t in model.graph.initializer] == [TensorProto.FLOAT16]
    assert contract.check(model, "float16-weights", changes).violations == []
    y, environment = run(model, tmp_path, {"x": X})
    assert (environment["weights"], environment["compute"]) == ("float16", "float32")
    # The same float32 products of the same numbers; a dot product of 8 may be summed in any order.
    expected = X @ rounded(WEIGHT) @ rounded(WEIGHT)
    np.testing.assert_allclose(y, expected, rtol=0, atol=16 * 2**-24 * np.abs(expected).max())
    # A second run finds nothing left to do.
    assert storage.store_float16(model) == []


@pytest.mark.parametrize("in_body", [True, False])
def test_weights_that_a_loop_reads(tmp_path, in_body):
    model = loop(in_body)
    changes = storage.store_float16(model)
    assert [c.kind for c in changes] == ["weight-stored-float16"]
    assert [n.op_type for n in model.graph.node] == ["Cast", "Loop"]
    body = next(a.g for a in model.graph.node[1].attribute if a.name == "body")
    assert not body.initializer
    assert contract.check(model, "float16-weights", changes).violations == []
    expected = X
    for _ in range(3):
        expected = np.tanh(expected @ rounded(WEIGHT))
    y, _ = run(model, tmp_path, {"x": X})
    np.testing.assert_allclose(y, expected, rtol=0, atol=64 * 2**-24)


def test_settings_masks_and_small_constants_stay(tmp_path):
    """By use: 32 and more scales of a Resize are settings, whatever their count."""
    scales = np.ones(32, np.float32)
    scales[-1] = 1.5
    mask = np.where(np.eye(8, dtype=bool), 0, -1e9).astype(np.float32)
    nodes = [
        helper.make_node("Add", ["x", "mask"], ["a"], "masked"),
        helper.make_node("Mul", ["a", "few"], ["y"], "scaled"),
        helper.make_node("Reshape", ["few", "rank"], ["r"], "r"),
        helper.make_node("Expand", ["r", "wide"], ["e"], "e"),
        helper.make_node("Resize", ["e", "", "scales"], ["z"], "z", mode="nearest"),
    ]
    weights = {
        "mask": mask,
        "few": np.full(8, 0.1, np.float32),
        "scales": scales,
        "rank": np.array([1] * 31 + [8]),
        "wide": np.array([1] * 31 + [8]),
    }
    model = model_of(nodes, weights, [value("x", [8, 8])])
    model.graph.output[0].type.tensor_type.shape.dim[0].Clear()
    changes = storage.store_float16(model)
    assert [(c.kind, c.where) for c in changes] == [("weight-kept-float32", "mask")]
    assert TensorProto.FLOAT16 not in [t.data_type for t in model.graph.initializer]
    assert contract.check(model, "float16-weights", changes).violations == []


def test_clamping_is_recorded():
    big = WEIGHT.copy()
    big[0, 0] = 1e6
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"], "m")], {"w": big})
    changes = storage.store_float16(model, clamp=True)
    assert [c.kind for c in changes] == ["weight-clamped"]
    stored = onnx.numpy_helper.to_array(model.graph.initializer[0])
    assert stored[0, 0] == np.float16(65504)
    assert np.isfinite(stored).all()


def test_constant_nodes_are_weights_too():
    constant = helper.make_node(
        "Constant", [], ["w"], "c", value=onnx.numpy_helper.from_array(WEIGHT)
    )
    model = model_of([constant, helper.make_node("MatMul", ["x", "w"], ["y"], "m")], {})
    assert [c.where for c in storage.store_float16(model)] == ["w"]
    assert ops(model) == ["Cast", "MatMul"]


def test_the_contract_finds_what_is_wrong():
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"], "m")], {"w": WEIGHT})
    assert contract.check(model, "float32", ()).violations == []
    assert contract.check(model, "float16-weights", ()).violations == [
        "weight w is stored in float32"
    ]
    storage.store_float16(model)
    assert contract.check(model, "float32", ()).violations == ["tensor w_float16 is 16 bits"]
    again = helper.make_node("Cast", ["w_float16"], ["w2"], "again", to=TensorProto.FLOAT)
    model.graph.node.insert(0, again)
    assert contract.check(model, "float16-weights", ()).violations == [
        "weight w_float16 is widened 2 times"
    ]


def test_precision_is_read_from_the_bytes(tmp_path):
    path = tmp_path / "m.onnx"
    half = model_of([helper.make_node("MatMul", ["x", "w"], ["y"], "m")], {"w": WEIGHT})
    for initializer in half.graph.initializer:
        initializer.CopyFrom(storage.to_half(initializer, "w"))
    path.write_bytes(half.SerializeToString())
    assert _onnx_file.precision(path) == ("float16", "float16")
    path.write_bytes(loop(True).SerializeToString())
    assert _onnx_file.precision(path) == ("float32", "float32")
    path.write_bytes(half.SerializeToString()[:100])  # cut off: no error of its own
    assert _onnx_file.precision(path)[1] in ("float16", "float32")
