"""Regression tests of faults that the hunt of 2026-12 found outside the passes."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.trackable.resource import CapturableResource

from mpexport.errors import ConversionError, UnsafeModelError
from mpexport.tf import concrete, pipeline
from mpexport.tf.check import check
from mpexport.tf.describe import describe, index_ranges
from mpexport.tf.inline import flatten
from mpexport.tf.normalized import half_tensors
from mpexport.tf.rewrite import write_promoted
from tests.tf.support import (
    assert_same,
    loaded,
    normalized,
    promoted_run,
    resaved,
    saved,
    spec,
    text_program,
    traced,
    trained_run,
)

pytestmark = pytest.mark.tf

v1 = tf.compat.v1


def module(function, *specs, **members):
    """A tf.Module whose ``serve`` is the function; it is given the module first."""

    class Model(tf.Module):
        @tf.function(input_signature=list(specs))
        def serve(self, *inputs):
            return function(self, *inputs)

    model = Model()
    for name, member in members.items():
        setattr(model, name, member)
    return model


def test_loading_does_not_run_the_initializer_of_a_strange_table(tmp_path):
    class Table(CapturableResource):
        def _create_resource(self):
            return tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.int64)

        def _initialize(self):
            tf.io.write_file(str(tmp_path / "written"), "x")

    model = module(lambda m, x: {"y": x * 2}, spec("x", [1]), table=Table())
    path = saved(model, tmp_path / "m", {"serving_default": model.serve})
    with pytest.raises(UnsafeModelError, match="WriteFile"):
        loaded(path)
    assert not (tmp_path / "written").exists()


def test_a_mutable_table_is_no_variable(tmp_path):
    """Its handle has types too: those of its keys and its values."""
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, -1.0)
    table.insert(tf.constant(["a"]), [2.5])
    model = module(
        lambda m, x: {"y": tf.cast(tf.cast(m.table.lookup(x), tf.float16) * 2, tf.float32)},
        spec("x", [None], tf.string),
        table=table,
    )
    model = normalized(saved(model, tmp_path / "m", {"serving_default": model.serve}))
    assert [concrete.variable_dtype(c) for c in model.captures() if c.dtype == tf.resource] == [
        None
    ]
    assert check(model).findings == ()
    assert len(flatten(model.program, "serving_default").weights) == 2
    inputs = {"x": np.array([b"a", b"z"], object)}
    outputs = promoted_run(resaved(model, tmp_path / "again"), "serving_default", inputs)
    assert outputs["y"].tolist() == [5, -2]


def test_outputs_of_an_endpoint_keep_their_names(tmp_path):
    """None is no output, and two outputs whose flat names agree are two."""

    def serve(m, x):
        return {
            "none": None,
            "z": x,
            "y": (2 * x, None, {"q": 3 * x}),
            "y_output_0": 4 * x,
            "a_": 5 * x,
        }

    model = normalized(saved(module(serve, spec("x", [2])), tmp_path / "m"), signature="serve")
    x = np.float32([1, 2])
    outputs = promoted_run(model, "serve", {"x": x})
    expected = {
        "z": x,
        "y_output_0": 2 * x,
        "y_output_1": 3 * x,
        "y_output_0_1": 4 * x,
        "a_": 5 * x,
    }
    assert_same(expected, outputs, exact=True)
    assert_same(expected, trained_run(model, "serve", {"x": x}), exact=True)


@pytest.mark.parametrize("make", [tf.sparse.from_dense, tf.RaggedTensor.from_tensor])
def test_an_output_that_is_no_tensor_is_refused(tmp_path, make):
    """It is several tensors, so that all outputs behind it would get wrong names."""
    model = module(lambda m, x: {"a": make(x), "b": x}, spec("x", [None, 2]))
    path = saved(model, tmp_path / "m", {"serving_default": model.serve})
    with pytest.raises(ConversionError, match="output a of signature serving_default is a"):
        normalized(path)


def test_state_beside_an_embedding_can_still_be_described(tmp_path):
    def serve(m, ids):
        m.calls.assign_add(1)
        return {"y": tf.cast(tf.gather(m.e, ids), tf.float16)}

    members = {"calls": tf.Variable(0), "e": tf.Variable(tf.ones([5, 3]))}
    model = module(serve, spec("ids", [None], tf.int32), **members)
    model = normalized(saved(model, tmp_path / "m", {"serving_default": model.serve}))
    # No output depends on the count, so nothing is left beside the embedding.
    assert describe(model)["ranges"] == {"serving_default": {"ids": [0, 4]}}


def test_ranges_along_other_axes():
    table = tf.Variable(tf.ones([20, 3, 7]))

    def f(a, b, c):
        return {
            "a": tf.gather(table, a, axis=1),
            "b": tf.gather(table, b, axis=-1),
            "c": tf.gather_nd(table, c),
        }

    specs = [spec("a", [2], tf.int32), spec("b", [2], tf.int32), spec("c", [2, 2], tf.int32)]
    program = traced(f, *specs)
    pipeline.run(program, "normalize", pipeline.PassContext())
    assert index_ranges(program, "f") == {"a": [0, 2], "b": [0, 6], "c": [0, 2]}


@pytest.mark.parametrize(
    "leftover",
    [
        'op: "TensorListReserve" attr { key: "element_dtype" value { type: DT_HALF } }',
        'op: "VarHandleOp" attr { key: "dtype" value { type: DT_BFLOAT16 } }',
        'op: "Relu" attr { key: "T" value { type: DT_HALF } }',
        'op: "NoOp" attr { key: "v" value { tensor { dtype: DT_HALF } } }',
        'op: "NoOp" attr { key: "v" value { list { type: DT_INT32 type: DT_HALF } } }',
        """op: "NoOp" attr { key: "f" value { func { name: "g"
           attr { key: "T" value { type: DT_HALF } } } } }""",
        'op: "call_by_name" attr { key: "T" value { type: DT_HALF } }',
    ],
)
def test_no_leftover_is_overlooked(leftover):
    text = f"""function {{ signature {{ name: "f" }} node_def {{ name: "n" {leftover} }} }}"""
    assert half_tensors(text_program(text)) == ["f/n"]
    clean = leftover.replace("DT_HALF", "DT_FLOAT").replace("DT_BFLOAT16", "DT_FLOAT")
    assert half_tensors(text_program(text.replace(leftover, clean))) == []


def test_leftovers_in_arguments():
    text = """function { signature { name: "f" input_arg { name: "x" type: DT_HALF }
      output_arg { name: "y" type: DT_BFLOAT16 } } ret { key: "y" value: "x" } }"""
    assert half_tensors(text_program(text)) == ["f/x", "f/y"]


@pytest.mark.parametrize("kind", ["variable", "table"])
def test_what_lives_in_a_graph_of_tf1_is_refused_by_name(tmp_path, kind):
    """Saved anew it would be uninitialized."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.int64, [None], "x")
        w = v1.get_variable("w", initializer=[2.0], use_resource=kind == "table")
        y = tf.cast(x, tf.float32) * w
        if kind == "table":
            pairs = tf.lookup.KeyValueTensorInitializer([1], [2.0], tf.int64)
            y += tf.lookup.StaticHashTable(pairs, -1.0).lookup(x)
        session.run(v1.global_variables_initializer())
        init = v1.tables_initializer()
        v1.saved_model.simple_save(
            session, str(tmp_path / "m"), {"x": x}, {"y": y}, legacy_init_op=init
        )
    op = {"variable": "w is a VariableV2", "table": "hash_table is a HashTableV2"}[kind]
    with pytest.raises(ConversionError, match=f"{op} of TensorFlow 1"):
        normalized(tmp_path / "m")


def test_a_half_constant_of_the_object_graph_is_not_linked(tmp_path):
    """The file holds it as it was; a promoted function beside it would be given a half."""
    held = tf.constant(np.ones((30, 30)), tf.float16)
    model = module(lambda m, x: {"y": x @ m.held}, spec("x", [None, 30], tf.float16), held=held)
    model = normalized(saved(model, tmp_path / "m", {"serving_default": model.serve}))
    assert not write_promoted(model, tmp_path / "promoted")
