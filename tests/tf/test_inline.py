"""One flat graph per signature, and what can be told from it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import tensor_util

from mpexport.errors import ConversionError
from mpexport.tf import pipeline, reference
from mpexport.tf.describe import index_ranges
from mpexport.tf.inline import concrete_of, flatten, node_name
from tests.tf.support import assert_same, run, spec, traced

pytestmark = pytest.mark.tf

RNG = np.random.default_rng(0)


def normal(function, *specs):
    program = traced(function, *specs)
    pipeline.run(program, "normalize", pipeline.PassContext())
    return program


def flat_run(program, inputs, shapes=None):
    """Flattens, checks what a flat graph is, and that it computes the same."""
    flat = flatten(program, "f", shapes)
    assert not {"PartitionedCall", "StatefulPartitionedCall"} & {n.op for n in flat.graph_def.node}
    names = [n.name for n in flat.graph_def.node]
    assert len(set(names)) == len(names)
    entry = program.entries["f"]
    assert [node_name(s.name) for s in entry.inputs] == [
        n for n in names if n in {node_name(s.name) for s in entry.inputs}
    ]
    function = concrete_of(flat)
    actual = reference.run(function, [s.name for s in entry.inputs], inputs)
    assert_same(run(program, "f", inputs), actual, exact=True)
    return flat


def test_calls_are_inlined_and_weights_stay_outside():
    w, b = tf.Variable(RNG.standard_normal((3, 3)), dtype=tf.float32), tf.Variable(tf.ones(3))

    @tf.function(experimental_attributes={"_noinline": True})
    def stubborn(x):
        return x @ w

    @tf.function(experimental_attributes={"api_implements": "lstm_1"})
    def chosen(x):
        return tf.nn.relu(x) + b

    def f(x):
        return {"y": chosen(stubborn(x)), "shape": tf.shape(x)}

    program = normal(f, spec("x", [None, 3]))
    flat = flat_run(program, {"x": RNG.standard_normal((2, 3)).astype(np.float32)})
    assert list(flat.weights) == ["capture_0", "capture_1"]
    kinds = {n.name: n.op for n in flat.graph_def.node}
    assert [kinds[n] for n in ("x", "capture_0", "capture_1")] == ["Placeholder"] * 3
    assert kinds["output_0_"] == kinds["output_1_"] == "Identity"


def test_an_output_that_no_weight_feeds():
    """Grappler leaves it a control input on the weight, which nothing would feed."""
    w = tf.Variable(tf.eye(3))

    @tf.function
    def inner(x, y):
        return x @ w, y * 2, y

    def f(x, y):
        product, double, same = inner(x, y)
        return {"product": product, "double": double, "same": same}

    inputs = {n: RNG.standard_normal((2, 3)).astype(np.float32) for n in "xy"}
    flat = flat_run(normal(f, spec("x", [None, 3]), spec("y", [None, 3])), inputs)
    controls = {r for n in flat.graph_def.node for r in n.input if r.startswith("^")}
    assert not controls & {"^capture_0", "^x", "^y"}


NAMES = ["call", "call/x", "capture_0", "output_0_", "t_a", "a b", "a_b", "ä", "1", "_x", "a/b", ""]


def test_every_name_gets_a_node_of_its_own():
    nodes = [node_name(n) for n in [*NAMES, "x", "input-1", "serving_default_x", "x.y"]]
    assert len(set(nodes)) == len(nodes)
    with tf.Graph().as_default():
        for name in nodes:
            assert tf.compat.v1.placeholder(tf.float32, name=name).op.name == name
            assert name.startswith("t_") or not name.startswith(("call", "capture_", "output_"))
    assert node_name("input-1") == "input-1"
    assert node_name("x") == "x"


def test_inputs_named_like_our_own_nodes():
    """Two nodes of one name make grappler abort the whole process."""
    w = tf.Variable([2.0])
    names = ["call", "capture_0", "output_0_", "arg_0"]

    def f(a, b, c, d):
        return {"capture_0": a * w - b, "call": c / d}

    program = normal(f, *[spec(n, [None]) for n in names])
    assert [s.name for s in program.entries["f"].inputs] == names
    flat_run(program, {n: RNG.standard_normal(2).astype(np.float32) for n in names})


def test_loops_and_branches_keep_their_functions():
    w = tf.Variable(0.5 * tf.eye(3))

    def f(x, n):
        h = x
        for i in tf.range(n):
            h = tf.cond(i % 2 == 0, lambda: h @ w, lambda: h + w[0])  # noqa: B023
        return {"y": h}

    program = normal(f, spec("x", [None, 3]), spec("n", [], tf.int32))
    inputs = {"x": RNG.standard_normal((2, 3)).astype(np.float32), "n": np.int32(3)}
    flat = flat_run(program, inputs)
    assert {"While", "StatelessWhile"} & {n.op for n in flat.graph_def.node}
    types = {a.type for f in flat.graph_def.library.function for a in f.signature.input_arg}
    assert tf.resource.as_datatype_enum not in types


def test_unknown_rank_and_no_inputs():
    w = tf.Variable(tf.ones(3))
    program = normal(lambda x: {"y": x + w}, tf.TensorSpec(None, tf.float32, name="x"))
    flat_run(program, {"x": RNG.standard_normal((2, 2, 3)).astype(np.float32)})
    flat_run(normal(lambda: {"y": w * 2}), {})


def recurrent(x):
    """As Keras traces an LSTM: lists whose element shape has an unknown batch."""
    items = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[None, 3])
    steps = tf.TensorArray(tf.float32, size=4).unstack(tf.transpose(x, [1, 0, 2]))
    h = tf.zeros_like(x[:, 0])
    for t in tf.range(4):
        h = tf.tanh(h + steps.read(t))
        items = items.write(t, h)
    return {"y": tf.transpose(items.stack(), [1, 0, 2])}


def element_shapes(flat):
    found = []
    for nodes in [flat.graph_def.node, *(f.node_def for f in flat.graph_def.library.function)]:
        consts = {n.name: n for n in nodes if n.op == "Const"}
        for n in nodes:
            index = {"TensorListReserve": 0, "TensorListStack": 1, "TensorListGetItem": 2}.get(n.op)
            if index is not None:
                const = consts[n.input[index].partition(":")[0]]
                found.append(tensor_util.MakeNdarray(const.attr["value"].tensor).tolist())
    return found


def test_a_fixed_batch_reaches_the_element_shapes_of_lists():
    program = normal(recurrent, spec("x", [None, 4, 3]))
    inputs = {"x": RNG.standard_normal((2, 4, 3)).astype(np.float32)}
    dynamic = flat_run(program, inputs)
    assert element_shapes(dynamic).count([-1, 3]) >= 3  # one of them in the loop's body
    fixed = flat_run(program, inputs, {"x": (2, 4, 3)})
    shapes = element_shapes(fixed)
    assert [2, 3] in shapes
    assert not [s for s in shapes if s and s[0] == -1]
    assert fixed.entry.inputs[0].shape == (2, 4, 3)
    assert program.entries["f"].inputs[0].shape == (None, 4, 3)


def test_different_leading_sizes_are_no_batch():
    def f(x, m):
        return {"y": recurrent(x)["y"] + m[0]}

    program = normal(f, spec("x", [None, 4, 3]), spec("m", [None, 3]))
    inputs = {"x": np.zeros((2, 4, 3), np.float32), "m": np.ones((5, 3), np.float32)}
    flat = flat_run(program, inputs, {"x": (2, 4, 3), "m": (5, 3)})
    assert [-1, 3] in element_shapes(flat)


def test_a_signature_with_state_is_refused():
    v = tf.Variable([0.0])
    program = normal(lambda x: {"y": v.assign_add(x)}, spec("x", [1]))
    with pytest.raises(ConversionError, match="AssignAddVariableOp"):
        flatten(program, "f")


# --- index ranges -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    return tf.Variable(tf.ones([20, 3]))


def test_an_embedding_gives_the_range_of_its_ids(table):
    def f(ids, x, words):
        near = tf.gather(table, tf.reshape(tf.cast(ids, tf.int64), [-1]))
        rows = tf.gather(tf.constant(np.ones((7, 2), np.float32)), tf.expand_dims(words[:, 0], 1))
        return {"y": near, "x": x * 2, "w": rows}

    program = normal(f, spec("ids", [None, 4]), spec("x", [2]), spec("words", [None, 2], tf.int32))
    assert index_ranges(program, "f") == {"ids": [0, 19], "words": [0, 6]}


def test_the_smallest_of_several_tables_decides(table):
    small = tf.Variable(tf.ones([5, 3]))

    def f(ids):
        return {"y": tf.gather(table, ids) + tf.gather(small, ids) + tf.gather(table, ids * 2)}

    assert index_ranges(normal(f, spec("ids", [2], tf.int32)), "f") == {"ids": [0, 4]}


def test_one_hot_and_gather_nd(table):
    def f(label, at):
        return {"y": tf.one_hot(label, 10), "z": tf.gather_nd(table, at)}

    specs = spec("label", [None], tf.int32), spec("at", [None, 1], tf.int64)
    assert index_ranges(normal(f, *specs), "f") == {"label": [0, 9], "at": [0, 19]}


def test_what_is_no_index_has_no_range(table):
    def f(x, i):
        return {"y": tf.gather(table, [1, 2]) + x, "z": tf.gather(x, i + 1)}

    program = normal(f, spec("x", [2, 3]), spec("i", [1], tf.int32))
    assert index_ranges(program, "f") == {}
    assert index_ranges(normal(lambda x: {"y": x}, spec("x", [1])), "f") == {}
