"""captured_variables_to_arguments: handles become tensors wherever they are handed to."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from mpexport.errors import ConversionError
from mpexport.tf import concrete, pipeline, reference
from tests.tf.support import (
    FLOAT,
    RESOURCE,
    assert_same,
    assert_well_formed,
    entry_function,
    frozen,
    ops,
    run,
    spec,
    text_program,
    traced,
)

pytestmark = pytest.mark.tf

PASS = pipeline.all_passes()["captured_variables_to_arguments"]


def values_as_inputs(program, inputs):
    """Applies the pass and runs the result with the variables' values fed as further inputs."""
    changed = program.copy()
    changes = PASS.apply(changed, pipeline.PassContext())
    assert_well_formed(changed)
    once = frozen(changed)
    assert PASS.apply(changed, pipeline.PassContext()) == []
    assert frozen(changed) == once
    expected = run(program, "f", inputs)
    entry = changed.entries["f"]
    fdef = entry_function(changed)
    args = fdef.signature.input_arg[len(entry.inputs) :]
    for arg, capture in zip(args, entry.captures, strict=True):
        dtype = concrete.variable_dtype(capture)
        assert arg.type == (capture.dtype.as_datatype_enum if dtype is None else dtype)
    work = changed.copy()
    work.entries["f"].captures = [
        tf.raw_ops.ReadVariableOp(resource=c, dtype=tf.as_dtype(concrete.variable_dtype(c)))
        if concrete.variable_dtype(c)
        else c
        for c in entry.captures
    ]
    function = concrete.put_together(work, "values")["f"]
    actual = reference.run(function, [s.name for s in entry.inputs], inputs)
    assert_same(expected, actual, exact=True)
    return changed, changes


X = {"x": np.float32([[1, 2, 3], [-1, 0.5, 0]])}


def test_reads():
    w = tf.Variable(tf.reshape(tf.range(9.0), [3, 3]))
    program = traced(lambda x: {"y": x @ w + w[0]}, spec("x", [None, 3]))
    changed, changes = values_as_inputs(program, X)
    fdef = entry_function(changed)
    assert [a.type for a in fdef.signature.input_arg] == [FLOAT, FLOAT]
    assert "ReadVariableOp" not in ops(changed)
    read = next(
        n for n in fdef.node_def if n.op == "Identity" and n.name.endswith("ReadVariableOp")
    )
    assert list(read.input) == [fdef.signature.input_arg[1].name]
    assert list(read.attr) == ["T"]
    assert {c.detail for c in changes} == {"Identity"}


def test_gathers():
    table = tf.Variable(tf.reshape(tf.range(24.0), [2, 4, 3]))

    def f(i):
        shape = tf.raw_ops.VariableShape(input=table.handle, out_type=tf.int64)
        batched = tf.raw_ops.ResourceGather(
            resource=table.handle, indices=i, dtype=tf.float32, batch_dims=1
        )
        return {
            "plain": table.sparse_read([1]),
            "batched": batched,
            "nd": table.gather_nd([[0, 1], [1, 3]]),
            "shape": shape,
        }

    program = traced(f, spec("i", [2, None], tf.int32))
    changed, _ = values_as_inputs(program, {"i": np.int32([[3], [0]])})
    assert sorted(ops(changed)).count("GatherV2") == 2
    assert "GatherNd" in ops(changed)
    assert "Shape" in ops(changed)
    gather = next(n for _, n in changed.nodes() if n.op == "GatherV2" and n.attr["batch_dims"].i)
    assert sorted(gather.attr) == ["Taxis", "Tindices", "Tparams", "batch_dims"]
    assert len(gather.input) == 3


def test_through_calls_loops_and_branches():
    w = tf.Variable(0.5 * tf.eye(3))
    e = tf.Variable(tf.reshape(tf.range(15.0), [5, 3]))

    @tf.function
    def called(x):
        return x @ w

    def f(x, n):
        h = called(x)
        for i in tf.range(n):
            if i % 2 == 0:
                j = tf.constant(0)
                while j < 2:
                    h = called(h) + e[j]
                    j += 1
            else:
                h += tf.gather(e, i)
        return {"y": tf.switch_case(n % 2, [lambda: h @ w, lambda: called(h) + tf.gather(e, 4)])}

    program = traced(f, spec("x", [None, 3]), spec("n", [], tf.int32))
    changed, _ = values_as_inputs(program, {**X, "n": np.int32(3)})
    assert not {"ReadVariableOp", "ResourceGather"} & set(ops(changed))
    for fdef in changed.library.values():
        assert RESOURCE not in [a.type for a in fdef.signature.input_arg]
    for _, n in changed.nodes():
        if n.op in ("While", "StatelessWhile"):
            assert RESOURCE not in n.attr["T"].list.type
            shapes = n.attr["output_shapes"].list.shape
            for t, shape in zip(n.attr["T"].list.type, shapes, strict=True):
                assert t != FLOAT or shape.unknown_rank or len(shape.dim) == 2


def test_one_variable_at_two_positions_and_two_variables_at_one():
    """A function called twice, with other captures and with the same one twice."""
    a, b = tf.Variable(tf.eye(3)), tf.Variable(2 * tf.eye(3))

    @tf.function
    def two(x, p, q):
        return x @ p - q.sparse_read([0])

    program = traced(lambda x: {"y": two(x, a, a) + two(x, a, b) * two(x, b, a)}, spec("x", [2, 3]))
    assert len(program.entries["f"].captures) == 2
    values_as_inputs(program, X)


def test_tables_stay_handles():
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer([1, 2], [10.0, 20.0], tf.int64), -1.0
    )
    w = tf.Variable([1.0, 2.0])
    program = traced(lambda i: {"y": table.lookup(i) * w}, spec("i", [2], tf.int64))
    changed, _ = values_as_inputs(program, {"i": np.int64([2, 5])})
    types = [a.type for a in entry_function(changed).signature.input_arg]
    assert sorted(types) == sorted([tf.int64.as_datatype_enum, RESOURCE, FLOAT, FLOAT])


@pytest.mark.parametrize(
    ("write", "op"),
    [
        (lambda v: v.assign([1.0]), "AssignVariableOp"),
        (lambda v: v.assign_add([1.0]), "AssignAddVariableOp"),
        (lambda v: v.scatter_update(tf.IndexedSlices([1.0], [0])), "ResourceScatterUpdate"),
    ],
)
def test_a_write_is_refused_by_name(write, op):
    v = tf.Variable([0.0])

    @tf.function
    def inner(x):
        write(v)
        return x

    program = traced(lambda x: {"y": inner(x)}, spec("x", [1]))
    with pytest.raises(ConversionError, match=f"{op} at .*inner.*changes a variable") as caught:
        PASS.apply(program.copy(), pipeline.PassContext())
    assert caught.value.where.endswith(op)


def test_the_loops_of_tf1():
    """Enter hands a handle into the loop."""
    text = """
    function {
      signature { name: "f" input_arg { name: "x" type: DT_FLOAT }
        input_arg { name: "v" type: DT_RESOURCE } output_arg { name: "y" type: DT_FLOAT } }
      node_def { name: "e" op: "Enter" input: "v" attr { key: "T" value { type: DT_RESOURCE } }
        attr { key: "frame_name" value { s: "w" } } }
      node_def { name: "i" op: "Enter" input: "x" attr { key: "T" value { type: DT_FLOAT } }
        attr { key: "frame_name" value { s: "w" } } }
      node_def { name: "r" op: "ReadVariableOp" input: "e:output:0"
        attr { key: "dtype" value { type: DT_FLOAT } } }
      node_def { name: "a" op: "AddV2" input: "i:output:0" input: "r:value:0"
        attr { key: "T" value { type: DT_FLOAT } } }
      node_def { name: "o" op: "Exit" input: "a:z:0" attr { key: "T" value { type: DT_FLOAT } } }
      ret { key: "y" value: "o:output:0" }
    }"""
    program = text_program(text)
    entry = program.entries["f"]
    v = tf.Variable([1.0])
    entry.inputs, entry.captures = entry.inputs[:1], [v.handle]
    changed, _ = values_as_inputs(program, {"x": np.float32([2])})
    nodes = {n.name: n for _, n in changed.nodes()}
    assert nodes["e"].attr["T"].type == FLOAT
    assert nodes["r"].op == "Identity"
