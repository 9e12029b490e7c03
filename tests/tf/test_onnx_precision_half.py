"""float16 computation in ONNX graphs built here, and its emulation; no TensorFlow."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpexport.errors import ConversionError, UsageError, VerificationError

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402 (after importorskip)

from mpexport.runtimes import RuntimeOptions, get  # noqa: E402
from mpexport.tf.onnx_precision import contract, emulate, rewrite  # noqa: E402
from mpexport.tf.onnx_precision.keep import matches, parse_keep, without_numbers  # noqa: E402
from mpexport.tf.onnx_precision.regions import all_graphs  # noqa: E402

pytestmark = pytest.mark.ort

RNG = np.random.default_rng(0)
W = (RNG.normal(size=(8, 8)) / 3).astype(np.float32)
X = RNG.normal(size=(2, 8)).astype(np.float32)
U16 = 2.0**-11


def value(name: str, shape: list[Any] | None = None, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, ["N", 8] if shape is None else shape)


def op(kind: str, inputs: str, output: str, **attributes: Any) -> Any:
    """A node named after its output."""
    return helper.make_node(kind, inputs.split(), output.split(), output, **attributes)


def model_of(nodes: list[Any], constants: dict[str, Any], inputs: Any = None, rank: int = 2) -> Any:
    graph = helper.make_graph(
        nodes,
        "g",
        inputs or [value("x")],
        [value("y", [None] * rank)],
        [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    return model


def converted(model: Any, *keep: str, **options: Any) -> tuple[Any, dict[str, str]]:
    """The rewritten model, checked, and node → ``half`` or why not."""
    copy = type(model).FromString(model.SerializeToString())
    changes = rewrite.compute_in_float16(copy, keep, **options)
    onnx.checker.check_model(copy, full_check=True)
    assert contract.check(copy, "float16", changes, keep).violations == []
    kept = {c.where: c.detail for c in changes if c.kind == rewrite.KEPT_NODE}
    return copy, {**kept, **{c.where: "half" for c in changes if c.kind == rewrite.HALF_NODE}}


def run(model: Any, folder: Path, **inputs: Any) -> Any:
    path = folder / "m.onnx"
    onnx.save(model, str(path))
    return get("onnxruntime").open(path, RuntimeOptions()).run(inputs or {"x": X})["y"]


def assert_close(model: Any, half: Any, folder: Path, **inputs: Any) -> None:
    """Same shape, and no further apart than a dozen roundings to float16."""
    expected, found = run(model, folder, **inputs), run(half, folder, **inputs)
    assert (found.dtype, found.shape) == (np.float32, expected.shape)
    limit = 12 * U16 * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=limit)


def ops(model: Any) -> list[str]:
    return [node.op_type for graph in all_graphs(model) for node in graph.node]


def dense_softmax() -> Any:
    nodes = [
        op("MatMul", "x w", "m/first"),
        op("Relu", "m/first", "m/relu"),
        op("MatMul", "m/relu w", "head/second"),
        op("Softmax", "head/second", "y"),
    ]
    return model_of(nodes, {"w": W})


def test_products_are_half_and_softmax_is_not(tmp_path):
    model = dense_softmax()
    half, nodes = converted(model)
    assert nodes == {
        "m/first": "half",
        "m/relu": "half",
        "head/second": "half",
        "y": "Softmax: kept: normalization, softmax, reduction or resizing",
    }
    assert ops(half) == ["Cast", "MatMul", "Relu", "MatMul", "Cast", "Softmax"]
    # The shared weight is rounded once and the float32 one is gone.
    assert [t.data_type for t in half.graph.initializer] == [TensorProto.FLOAT16]
    kinds = {v.type.tensor_type.elem_type for v in [*half.graph.input, *half.graph.output]}
    assert kinds == {TensorProto.FLOAT}
    assert_close(model, half, tmp_path)


def test_keep_ops_and_layers(tmp_path):
    model = dense_softmax()
    half, nodes = converted(model, "op:Relu,layer:head/*")
    assert nodes["m/first"] == "half"
    assert nodes["m/relu"] == "Relu: kept by the user"
    assert nodes["head/second"] == "MatMul: kept by the user"
    # The weight is needed in both types: in float32 as it was, not as a rounded one widened.
    assert len(half.graph.initializer) == 2
    assert_close(model, half, tmp_path)
    with pytest.raises(UsageError, match="op:Relo: the graph has no such op"):
        converted(model, "op:Relo")
    with pytest.raises(UsageError, match="layer:tail/\\*: fits no node"):
        converted(model, "layer:tail/*")


def test_patterns():
    assert parse_keep(("op:Softmax,layer:a/*", "op:Relu")) == (["Softmax", "Relu"], ["a/*"])
    for text in ("Softmax", "op:", "node:x", ""):
        with pytest.raises(UsageError, match="expected op:TYPE or layer:PATTERN"):
            parse_keep((text,))
    assert matches("encoder", "model/encoder/dense/MatMul")
    assert matches("enc*/dense", "model/encoder/dense/MatMul")
    assert not matches("dense/encoder", "model/encoder/dense/MatMul")
    assert not matches("code", "model/encoder/dense/MatMul")
    assert without_numbers("model_1/dense_2_1/MatMul") == "model/dense_2/MatMul"


def test_both_sides_of_a_concat_get_one_type(tmp_path):
    """A skip from the float32 input, next to a float16 result: cast once, though read twice."""
    nodes = [
        op("MatMul", "x w", "m"),
        op("Concat", "m x", "c", axis=1),
        op("Concat", "x m", "d", axis=1),
        op("Add", "c d", "y"),
    ]
    model = model_of(nodes, {"w": W})
    half, nodes_of = converted(model)
    assert set(nodes_of.values()) == {"half"}
    assert ops(half).count("Cast") == 2  # x, and the output
    assert_close(model, half, tmp_path)


def test_casts_of_the_user_keep_what_they_give(tmp_path):
    """float32 → float32 between float16 ops, float32 → int64 → float32: `to` fits each reader."""
    nodes = [
        op("MatMul", "x w", "m"),
        op("Cast", "m", "f", to=TensorProto.FLOAT),
        op("Exp", "f", "e"),
        op("Cast", "e", "i", to=TensorProto.INT64),
        op("Cast", "i", "g", to=TensorProto.FLOAT),
        op("Add", "g m", "a"),
        op("MatMul", "a w", "y"),
    ]
    model = model_of(nodes, {"w": W})
    half, nodes_of = converted(model)
    assert nodes_of["e"].startswith("Exp: gives integers")
    kept = [n.attribute[0].i for n in half.graph.node if n.name in ("f", "i", "g")]
    assert kept == [TensorProto.FLOAT, TensorProto.INT64, TensorProto.FLOAT]
    # exp lies far enough from integers here for its float16 input to give the same ones.
    x = np.full((2, 8), 0.25, np.float32)
    assert_close(model, half, tmp_path, x=x)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_between_convolutions(tmp_path, mode):
    kernel = RNG.normal(size=(4, 4, 3, 3)).astype(np.float32) / 6
    nodes = [
        op("Conv", "x k", "a", pads=[1, 1, 1, 1]),
        op("Resize", "a  s".replace("  ", " none "), "r", mode=mode),
        op("Conv", "r k", "y"),
    ]
    nodes[1].input[1] = ""
    scales = np.array([1, 1, 2, 2], np.float32)
    model = model_of(nodes, {"k": kernel, "s": scales}, [value("x", ["N", 4, 5, 5])], 4)
    half, nodes_of = converted(model)
    assert (nodes_of["a"], nodes_of["y"]) == ("half", "half")
    assert nodes_of["r"].startswith("Resize: kept")
    kinds = {t.name: t.data_type for t in half.graph.initializer}
    assert kinds == {"k_float16": TensorProto.FLOAT16, "s": TensorProto.FLOAT}
    assert_close(model, half, tmp_path, x=RNG.normal(size=(2, 4, 5, 5)).astype(np.float32))


def test_masks_and_epsilons(tmp_path):
    mask = np.where(np.eye(8)[:2], -1e9, 0).astype(np.float32)
    nodes = [
        op("MatMul", "x w", "scores"),
        op("Add", "scores mask", "masked"),
        op("Identity", "masked", "same"),
        op("Softmax", "same", "p"),
        op("Mul", "p scores", "q"),
        op("Add", "q epsilon", "safe"),
        op("MatMul", "safe w", "y"),
    ]
    model = model_of(nodes, {"w": W, "mask": mask, "epsilon": np.float32(1e-7)})
    half, nodes_of = converted(model)
    assert nodes_of["masked"] == "Add: reads numbers beyond 65504"
    assert nodes_of["safe"] == "Add: reads a number below 2^-14"
    assert (nodes_of["q"], nodes_of["y"]) == ("half", "half")  # behind the softmax no mask is left
    assert "same" not in nodes_of
    assert_close(model, half, tmp_path)
    assert "Clip" not in ops(half)


def test_a_mask_is_clipped_where_it_enters_float16(tmp_path):
    mask = np.where(np.eye(8)[:2], -1e9, 0).astype(np.float32)
    nodes = [op("Add", "x mask", "masked"), op("MatMul", "masked w", "y")]
    half, _ = converted(model_of(nodes, {"w": np.eye(8, dtype=np.float32), "mask": mask}))
    assert ops(half) == ["Add", "Clip", "Cast", "MatMul", "Cast"]
    y = run(half, tmp_path)
    assert y[0, 0] == y[1, 1] == -65504
    assert np.isfinite(y).all()


def test_weights_beyond_float16(tmp_path):
    big = W.copy()
    big[0, 0] = 1e6
    nodes = [op("MatMul", "x big", "l/m"), op("MatMul", "l/m w", "y")]
    model = model_of(nodes, {"w": W, "big": big})
    with pytest.raises(ConversionError, match="MatMul l/m has weights that float16") as caught:
        converted(model)
    assert caught.value.hint == "--keep-float32 layer:l"
    half, nodes_of = converted(model, "layer:l")
    assert "Clip" not in ops(half)  # what a large weight makes is no mask
    assert (nodes_of["l/m"], nodes_of["y"]) == ("MatMul: kept by the user", "half")
    clamped, _ = converted(model, clamp=True)
    found = {t.name: onnx.numpy_helper.to_array(t) for t in clamped.graph.initializer}
    assert found["big_float16"][0, 0] == np.float16(65504)


def test_variance_is_computed_in_float32(tmp_path):
    """x - mean is 300 here, and its square beyond float16."""
    nodes = [
        op("MatMul", "x w", "m"),
        op("ReduceMean", "m axis", "mean"),
        op("Sub", "m mean", "d"),
        op("Mul", "d d", "square"),
        op("ReduceMean", "square axis", "variance"),
        op("Sqrt", "variance", "deviation"),
        op("Div", "d deviation", "y"),
    ]
    model = model_of(nodes, {"w": np.eye(8, dtype=np.float32), "axis": np.array([1])})
    half, nodes_of = converted(model)
    assert nodes_of["square"] == "Mul: gives what a reduction sums up"
    assert nodes_of["deviation"] == "Sqrt: its inputs are float32"
    assert (nodes_of["d"], nodes_of["y"]) == ("half", "half")
    x = 600 * RNG.normal(size=(2, 8)).astype(np.float32)
    assert_close(model, half, tmp_path, x=x)
    path = tmp_path / "half.onnx"
    onnx.save(half, str(path))
    emulate.emulate(path, [{"x": x}], tmp_path, run_all)  # no overflow


def test_what_the_trained_model_had_in_float32():
    model = dense_softmax()
    _, nodes = converted(model, trained_float32=frozenset({"head/second"}))
    assert nodes["head/second"] == "MatMul: float32 in the trained model"
    assert nodes["m/first"] == "half"


def test_batch_norm_behind_a_float16_convolution_goes_with_it():
    channel = np.linspace(0.5, 2, 4, dtype=np.float32).reshape(1, 4, 1, 1)
    kernel = RNG.normal(size=(4, 4, 1, 1)).astype(np.float32)
    nodes = [
        op("Conv", "x k", "c/conv"),
        op("Mul", "c/conv factor", "b/mul"),
        op("Add", "b/mul factor", "b/add"),
        op("Mul", "b/add b/add", "b/other"),
        op("Relu", "b/other", "y"),
    ]
    model = model_of(nodes, {"k": kernel, "factor": channel}, [value("x", ["N", 4, 5, 5])], 4)
    names = frozenset({"b/mul", "b/add", "b/other"})
    _, nodes_of = converted(model, trained_float32=names)
    assert (nodes_of["b/mul"], nodes_of["b/add"]) == ("half", "half")
    assert nodes_of["b/other"] == "Mul: float32 in the trained model"


def loop_model(carried: bool) -> Any:
    """Three times state = tanh(state @ w + x); the weight carried along or read from outside."""
    weight = "weight" if carried else "w"
    body = helper.make_graph(
        [
            op("MatMul", f"state {weight}", "loop/product"),
            op("Add", "loop/product x", "loop/sum"),
            op("Tanh", "loop/sum", "next"),
            op("Identity", "go", "go_on"),
        ],
        "body",
        [
            value("i", [], TensorProto.INT64),
            value("go", [], TensorProto.BOOL),
            value("state"),
            *([value("weight", [8, 8])] if carried else []),
        ],
        [
            value("go_on", [], TensorProto.BOOL),
            value("next"),
            *([value("weight", [8, 8])] if carried else []),
        ],
    )
    node = helper.make_node(
        "Loop",
        ["three", "", "x", *(["w"] if carried else [])],
        ["state_out", *(["w_out"] if carried else [])],
        "loop",
        body=body,
    )
    return model_of([node, op("Relu", "state_out", "y")], {"three": np.array(3), "w": W})


@pytest.mark.parametrize("carried", [True, False])
def test_bodies_of_loops(tmp_path, carried):
    model = loop_model(carried)
    half, nodes = converted(model)
    assert nodes["loop/loop/product"] == nodes["loop/loop/sum"] == nodes["loop/next"] == "half"
    # The weight is float16 outside; nothing rounds it again in each iteration.
    kinds = {t.name: t.data_type for t in half.graph.initializer}
    assert kinds == {"three": TensorProto.INT64, "w_float16": TensorProto.FLOAT16}
    body = next(a.g for n in half.graph.node for a in n.attribute if a.name == "body")
    assert len(body.input) == 3
    casts = [(list(n.input), list(n.output)) for n in body.node if n.op_type == "Cast"]
    assert casts == [(["state"], ["state_float16"]), (["next_float16"], ["next"])]
    assert_close(model, half, tmp_path)


def test_branches(tmp_path):
    branches = {
        f"{kind}_branch": helper.make_graph(
            [op("MatMul", "m w", f"{kind}/m"), op(last, f"{kind}/m", f"{kind}_out")],
            kind,
            [],
            [value(f"{kind}_out")],
        )
        for kind, last in (("then", "Relu"), ("else", "Softmax"))
    }
    nodes = [
        op("MatMul", "x w", "m"),
        op("If", "condition", "picked", **branches),
        op("MatMul", "picked w", "y"),
    ]
    inputs = [value("x"), value("condition", [], TensorProto.BOOL)]
    model = model_of(nodes, {"w": W}, inputs)
    half, nodes_of = converted(model)
    assert nodes_of["picked/then/m"] == nodes_of["picked/else/m"] == "half"
    assert nodes_of["picked/then_out"] == "half"
    assert nodes_of["picked/else_out"].startswith("Softmax: kept")
    for condition in (True, False):
        assert_close(model, half, tmp_path, x=X, condition=np.array(condition))


def test_the_contract_names_what_is_wrong():
    half = type(dense_softmax()).FromString(dense_softmax().SerializeToString())
    changes = rewrite.compute_in_float16(half)
    assert contract.check(half, "float16", changes[1:]).violations == ["node m/first is in float16"]
    kept = contract.check(half, "float16", changes, ("op:Relu",)).violations
    assert kept == ["Relu m/relu is in float16, though kept"]
    float32 = dense_softmax()
    assert contract.check(float32, "float16", changes[:1]).violations == [
        "node m/first is not in float16"
    ]
    again = helper.make_node("Cast", ["x"], ["x2"], "again", to=TensorProto.FLOAT16)
    half.graph.node.insert(0, again)
    assert "tensor x is cast 2 times" in contract.check(half, "float16", changes).violations


def run_all(path: Path, cases: list[Any]) -> list[Any]:
    session = get("onnxruntime").open(path, RuntimeOptions())
    return [dict(session.run(case)) for case in cases]


def twins(model: Any, folder: Path, **inputs: Any) -> tuple[Any, Any]:
    path = folder / "half.onnx"
    onnx.save(model, str(path))
    found = emulate.emulate(path, [inputs], folder, run_all)
    return found.widened[0]["y"], found.rounded[0]["y"]


def test_emulated_rounding_is_that_of_float16(tmp_path):
    """Against numpy's own conversion: normal, subnormal, halfway and vanishing numbers."""
    grid = np.arange(0, 0x7C00, 7, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = (grid[1:] + grid[:-1]) / 2
    x = np.concatenate([grid, between, between * (1 + 2**-20), RNG.normal(size=500), [2**-26]])
    x = np.concatenate([x, -x]).astype(np.float32)[:, None]
    nodes = [op("MatMul", "x one", "m"), op("Cast", "m", "y", to=TensorProto.FLOAT)]
    model = model_of(nodes, {"one": np.ones((1, 1), np.float32)}, [value("x", ["N", 1])])
    half, _ = converted(model)
    widened, rounded = twins(half, tmp_path, x=x)
    np.testing.assert_array_equal(widened, x)
    expected = x.astype(np.float16).astype(np.float32)
    # Veltkamp's splitting rounds to the nearest, but a tie not always to the even one.
    tie = np.abs(x - rounded) == np.abs(x - expected)
    assert ((rounded == expected) | tie).all()
    assert (rounded.astype(np.float16).astype(np.float32) == rounded).all()


def overflowing(name: str = "big/m") -> Any:
    """Beyond 65504 in between, and small in the end."""
    nodes = [
        op("MatMul", "x large", name),
        op("MatMul", f"{name} small", "back/m"),
        op("Softmax", "back/m", "y"),
    ]
    return model_of(nodes, {"large": W * 1e5, "small": W * 1e-3})


def test_an_overflow_that_the_runtime_does_not_show(tmp_path):
    model = overflowing()
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(W * 3e4, "large"))
    half, _ = converted(model)
    x = 10 * X
    if platform.machine() in ("x86_64", "AMD64"):  # it computes in float32 there
        assert np.isfinite(run(half, tmp_path, x=x)).all()
    with pytest.raises(VerificationError, match="MatMul big/m overflows float16") as caught:
        twins(half, tmp_path, x=x)
    assert caught.value.hint == "keep it in float32: --keep-float32 layer:big"
    kept, _ = converted(model, "layer:big,layer:back")
    twins(kept, tmp_path, x=x)
    # A border is an overflow too: then it is the reader that has to be kept.
    border, _ = converted(model, "layer:big")
    with pytest.raises(VerificationError, match="MatMul back/m overflows float16"):
        twins(border, tmp_path, x=x)


def test_an_overflow_inside_a_loop_names_the_loop(tmp_path):
    model = loop_model(False)
    body = next(a.g for n in model.graph.node for a in n.attribute if a.name == "body")
    del body.node[2]
    body.node.insert(2, op("Mul", "loop/sum loop/sum", "next"))
    half, _ = converted(model)
    with pytest.raises(VerificationError, match=r"Loop loop \(in its body\) overflows"):
        twins(half, tmp_path, x=100 * np.abs(X) + 50)


def test_an_infinity_of_the_model_itself_is_no_overflow(tmp_path):
    mask = np.where(np.eye(8)[:2], -np.inf, 0).astype(np.float32)
    nodes = [op("MatMul", "x w", "m"), op("Add", "m mask", "a"), op("Softmax", "a", "y")]
    half, nodes_of = converted(model_of(nodes, {"w": W, "mask": mask}))
    assert nodes_of["a"] == "half"
    widened, rounded = twins(half, tmp_path, x=X)
    assert widened[0, 0] == rounded[0, 0] == 0
    np.testing.assert_allclose(rounded, widened, rtol=0, atol=8 * U16)
