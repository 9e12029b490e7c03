"""reference_float64 and round_weights_float16: the runs a file is measured against."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from mpexport import dtypes
from mpexport.tf import pipeline
from tests.tf.support import (
    DOUBLE,
    FLOAT,
    HALF,
    RESOURCE,
    apply_and_check,
    assert_well_formed,
    entry_function,
    run,
    spec,
    traced,
)

pytestmark = pytest.mark.tf

RNG = np.random.default_rng(0)


def float64(program, inputs=None):
    """Applies the pass; the float64 outputs must be as close as float32 is precise."""
    changed, changes = apply_and_check("reference_float64", program)
    if inputs is not None:
        before, after = run(program, "f", inputs), run(changed, "f", inputs)
        for name, value in before.items():
            scale = max(1.0, float(np.abs(value).max()))
            difference = np.abs(after[name].astype(np.float64) - value)
            assert difference.max() <= 16 * dtypes.get("float32").unit_roundoff * scale, name
    return changed, changes


def test_weights_get_a_cast_behind_the_read():
    w = tf.Variable(tf.ones([3, 3]))
    program = traced(lambda x: {"y": tf.nn.relu(x @ w) * 0.1}, spec("x", [None, 3]))
    changed, changes = float64(program, {"x": RNG.standard_normal((2, 3))})
    fdef = entry_function(changed)
    assert [a.type for a in fdef.signature.input_arg] == [DOUBLE, RESOURCE]
    read = next(n for n in fdef.node_def if n.op == "ReadVariableOp")
    (cast,) = [n for n in fdef.node_def if n.op == "Cast"]
    assert read.attr["dtype"].type == FLOAT
    assert list(cast.input) == [f"{read.name}:value:0"]
    assert (cast.attr["SrcT"].type, cast.attr["DstT"].type) == (FLOAT, DOUBLE)
    product = next(n for n in fdef.node_def if n.op == "MatMul")
    assert product.attr["T"].type == DOUBLE
    assert list(product.input) == ["x", f"{cast.name}:y:0"]
    factor = next(n for n in fdef.node_def if n.op == "Const")
    assert factor.attr["value"].tensor.double_val[0] == float(np.float32(0.1))
    assert [c.where.partition("/")[2] for c in changes if c.kind == "island"] == [read.name]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        (
            "FusedBatchNormV3",  # no double in its OpDef
            lambda x: tf.compat.v1.nn.fused_batch_norm(
                x, [1.0, 2.0], [0.0, 1.0], mean=[0.5, 0.5], variance=[1.0, 2.0], is_training=False
            )[0],
        ),
        ("ResizeBilinear", lambda x: tf.compat.v1.image.resize_bilinear(x, [3, 3])),  # fixed output
        ("CropAndResize", lambda x: tf.image.crop_and_resize(x, [[0, 0, 1.0, 1]], [0], [2, 2])),
        ("RFFT", lambda x: tf.math.real(tf.signal.rfft(x))),  # its complex side stays
        ("ComplexAbs", lambda x: tf.abs(tf.complex(x, x))),
    ],
)
def test_islands(name, function):
    program = traced(lambda x: {"y": function(x * 2) + 1}, spec("x", [1, 2, 2, 2]))
    changed, changes = float64(program, {"x": RNG.standard_normal((1, 2, 2, 2))})
    assert name in {c.detail for c in changes if c.kind == "island"}
    add = next(n for _, n in changed.nodes() if n.op == "AddV2")
    assert add.attr["T"].type == DOUBLE


def test_random_numbers_are_the_same_numbers():
    """A float64 generator draws others from the same seed; then nothing would agree."""

    def f(x):
        return {"y": x + tf.random.stateless_normal([3], seed=[1, 2])}

    changed, changes = float64(traced(f, spec("x", [3])), {"x": np.zeros(3)})
    assert "StatelessRandomNormalV2" in {c.detail for c in changes}
    assert_well_formed(changed)


def test_captured_constants_are_widened():
    """An eager tensor held by the model; loading makes one of every table's default value too."""
    held = tf.constant(RNG.standard_normal((40, 40)), tf.float32)
    program = traced(lambda x: {"y": x @ held}, spec("x", [None, 40]))
    assert [c.dtype for c in program.entries["f"].captures] == [tf.float32]
    changed, changes = float64(program, {"x": RNG.standard_normal((2, 40))})
    assert [c.dtype for c in changed.entries["f"].captures] == [tf.float64]
    assert program.entries["f"].captures[0].dtype == tf.float32
    assert "constant-widened" in {c.kind for c in changes}


def test_tables_integers_and_loops():
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer([1, 2], [0.5, 0.25], tf.int64), -1.0
    )
    w = tf.Variable(0.5 * tf.eye(3))

    def f(x, i):
        h = x * table.lookup(i)[:, None]
        items = tf.TensorArray(tf.float32, size=3)
        for k in tf.range(3):
            h = tf.cond(k > 1, lambda: h @ w, lambda: h + 1)  # noqa: B023
            items = items.write(k, h)
        return {"y": items.stack(), "n": i + 1}

    program = traced(f, spec("x", [None, 3]), spec("i", [None], tf.int64))
    inputs = {"x": RNG.standard_normal((2, 3)), "i": np.int64([2, 7])}
    changed, _ = float64(program, inputs)
    assert run(changed, "f", inputs)["y"].dtype == np.float64
    assert run(changed, "f", inputs)["n"].dtype == np.int64


def test_weights_are_rounded_behind_the_read():
    w = tf.Variable([0.1, 1.0, 6e-8])
    e = tf.Variable([[0.1, 0.3]])

    def f(x):
        return {
            "y": x * w,
            "c": x + tf.constant([0.1, 0.2, 0.3]),
            "s": x + 0.1,
            "g": e.sparse_read(0),
        }

    program = traced(f, spec("x", [3]))
    changed, changes = apply_and_check("round_weights_float16", program)
    outputs = run(changed, "f", {"x": np.ones(3)})
    np.testing.assert_array_equal(outputs["y"], np.float16([0.1, 1, 6e-8]).astype(np.float32))
    expected = 1 + np.float16([0.1, 0.2, 0.3]).astype(np.float32)
    np.testing.assert_array_equal(outputs["c"], expected)
    np.testing.assert_array_equal(outputs["s"], np.float32([1.1] * 3))  # a scalar is no weight
    np.testing.assert_array_equal(outputs["g"], np.float16([0.1, 0.3]).astype(np.float32))
    assert len(changes) == 3
    nodes = {n.name: n for _, n in changed.nodes()}
    narrow = [n for name, n in nodes.items() if name.endswith("/rounded_narrow")]
    widen = [n for name, n in nodes.items() if name.endswith("/rounded_widen")]
    assert [n.attr["DstT"].type for n in narrow] == [HALF] * 3
    assert [list(n.input) for n in widen] == [[f"{n.name}:y:0"] for n in narrow]


def test_a_mask_that_float16_cannot_hold_is_not_stored_in_it():
    """Rounding -1e9 would make it infinite, and the rounded reference NaN."""
    mask = np.float32([[0, -1e9], [0, 0]])
    program = traced(lambda x: {"p": x * mask}, spec("x", [2, 2]))
    inputs = {"x": np.float32([[1, 0], [2, 3]])}
    _, changes = apply_and_check("round_weights_float16", program, inputs, exact=True)
    assert changes == []


def test_rounded_and_then_float64():
    w = tf.Variable(RNG.standard_normal((3, 3)), dtype=tf.float32)
    program = traced(lambda x: {"y": x @ w}, spec("x", [None, 3]))
    context = pipeline.PassContext()
    pipeline.run(program, "reference", context, extra=["round_weights_float16"])
    assert context.changes[0].pass_name == "round_weights_float16"
    x = RNG.standard_normal((2, 3))
    expected = x @ w.numpy().astype(np.float16).astype(np.float64)
    np.testing.assert_allclose(run(program, "f", {"x": x})["y"], expected, rtol=1e-14)
