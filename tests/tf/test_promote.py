"""promote_compute_dtype: what exactly becomes of every place that holds an element type."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.tf.support import (
    FLOAT,
    HALF,
    all_types,
    apply_and_check,
    entry_function,
    node,
    ops,
    spec,
    text_program,
    traced,
)

pytestmark = pytest.mark.tf

PASS = "promote_compute_dtype"

# A half argument, a bfloat16 constant, a splat, a call whose attribute nests a function attribute.
NESTED = """
function {
  signature {
    name: "outer"
    input_arg { name: "x" type: DT_HALF }
    output_arg { name: "y" type: DT_HALF }
  }
  node_def {
    name: "c" op: "Const"
    attr { key: "dtype" value { type: DT_HALF } }
    attr { key: "value" value { tensor {
      dtype: DT_HALF tensor_shape { dim { size: 1000000 } } half_val: 11878 } } }
  }
  node_def {
    name: "b" op: "Const"
    attr { key: "dtype" value { type: DT_BFLOAT16 } }
    attr { key: "value" value { tensor { dtype: DT_BFLOAT16 tensor_shape {} half_val: 16256 } } }
  }
  node_def {
    name: "bc" op: "Cast" input: "b:output:0"
    attr { key: "SrcT" value { type: DT_BFLOAT16 } }
    attr { key: "DstT" value { type: DT_HALF } }
  }
  node_def {
    name: "call" op: "PartitionedCall" input: "x" input: "bc:y:0"
    attr { key: "Tin" value { list { type: DT_HALF type: DT_HALF } } }
    attr { key: "Tout" value { list { type: DT_HALF } } }
    attr { key: "f" value { func {
      name: "inner"
      attr { key: "T" value { type: DT_HALF } }
      attr { key: "g" value { func { name: "inner"
        attr { key: "U" value { list { type: DT_INT32 type: DT_BFLOAT16 } } } } } }
      attr { key: "h" value { list { func { name: "inner"
        attr { key: "V" value { type: DT_HALF } } } } } }
    } } }
  }
  ret { key: "y" value: "call:output:0" }
  arg_attr { key: 0 value { attr {
    key: "_handle_dtypes" value { list { type: DT_HALF } } } } }
}
function {
  signature {
    name: "inner"
    input_arg { name: "a" type: DT_HALF experimental_full_type { type_id: TFT_TENSOR } }
    input_arg { name: "b" type: DT_HALF }
    output_arg { name: "z" type: DT_HALF }
  }
  node_def {
    name: "m" op: "Mul" input: "a" input: "b"
    attr { key: "T" value { type: DT_HALF } }
  }
  ret { key: "z" value: "m:z:0" }
}
"""


def test_every_place_of_a_nested_call():
    program, changes = apply_and_check(PASS, text_program(NESTED))
    assert not {HALF, tf.bfloat16.as_datatype_enum} & {
        t for f in program.library.values() for t in all_types(f)
    }
    outer, inner = program.library["outer"], program.library["inner"]
    assert [a.type for a in outer.signature.input_arg] == [FLOAT]
    assert [a.type for a in outer.signature.output_arg] == [FLOAT]
    assert not inner.signature.input_arg[0].HasField("experimental_full_type")
    call = node(program, "call").attr
    assert list(call["Tin"].list.type) == [FLOAT, FLOAT]
    assert call["f"].func.attr["g"].func.attr["U"].list.type == [tf.int32.as_datatype_enum, FLOAT]
    assert call["f"].func.attr["h"].list.func[0].attr["V"].type == FLOAT
    assert outer.arg_attr[0].attr["_handle_dtypes"].list.type == [FLOAT]
    assert ops(program) == ["Const", "Const", "Cast", "PartitionedCall", "Mul"]
    assert {(c.kind, c.where) for c in changes} == {
        ("argument-retyped", "outer/x"),
        ("argument-retyped", "outer/y"),
        ("argument-retyped", "inner/a"),
        ("argument-retyped", "inner/b"),
        ("argument-retyped", "inner/z"),
        *(("node-retyped", f"outer/{n}") for n in ("c", "b", "bc", "call")),
        ("node-retyped", "inner/m"),
    }


def test_a_splat_constant_stays_compressed_and_rounded():
    program, _ = apply_and_check(PASS, text_program(NESTED))
    value = node(program, "c").attr["value"].tensor
    assert list(value.float_val) == [float(np.float16(0.1))]  # 0.0999755859375, as trained
    assert value.tensor_shape.dim[0].size == 1000000


def test_casts_stay_for_another_pass():
    program, _ = apply_and_check(PASS, text_program(NESTED))
    cast = node(program, "bc")
    assert (cast.attr["SrcT"].type, cast.attr["DstT"].type) == (FLOAT, FLOAT)


def test_a_float32_program_is_left_alone():
    weights = tf.Variable(tf.ones([3, 3]))
    program = traced(lambda x: {"y": tf.nn.relu(x @ weights)}, spec("x", [None, 3]))
    changed, changes = apply_and_check(PASS, program, {"x": np.ones((2, 3))}, exact=True)
    assert changes == []
    assert entry_function(changed) == entry_function(program)


@pytest.mark.parametrize("half", [tf.float16, tf.bfloat16])
def test_loops_branches_and_lists(half):
    """While, If, Case, TensorArray (element_dtype), scan and map under half."""
    weights = tf.Variable(0.5 * tf.eye(3))
    table = tf.Variable(tf.reshape(tf.range(15.0) / 16, [5, 3]))

    def f(x, n):
        h = tf.cast(x, half)
        for i in tf.range(n):
            if i % 2 == 0:
                j = tf.constant(0)
                while j < 2:
                    h = h @ tf.cast(weights, half) + tf.cast(tf.gather(table, j), half)
                    j += 1
            else:
                h += tf.cast(tf.gather(table, i), half)
        items = tf.TensorArray(half, size=0, dynamic_size=True, element_shape=[3])
        for k in tf.range(n):
            items = items.write(k, h[0] * tf.cast(k, half))
        return {
            "h": tf.cast(h, tf.float32),
            "items": tf.cast(items.stack(), tf.float32),
            "map": tf.cast(tf.map_fn(lambda r: r * 2, h), tf.float32),
            "scan": tf.cast(tf.scan(lambda a, r: a + r, h), tf.float32),
            "case": tf.cast(tf.switch_case(n % 2, [lambda: h, lambda: h * h]), tf.float32),
        }

    program = traced(f, spec("x", [None, 3]), spec("n", [], tf.int32))
    inputs = {"x": np.float32([[1, 2, 3], [-1, 0.5, 0.25]]) / 4, "n": np.int32(4)}
    changed, _ = apply_and_check(PASS, program, inputs if half == tf.float16 else None)
    assert half.as_datatype_enum not in {t for g in changed.library.values() for t in all_types(g)}
    lists = [n for _, n in changed.nodes() if n.op == "TensorListReserve"]
    assert lists
    assert {n.attr["element_dtype"].type for n in lists} == {FLOAT}
    loops = [n for _, n in changed.nodes() if n.op in ("While", "StatelessWhile")]
    assert len([n for n in loops if FLOAT in n.attr["T"].list.type]) >= 2


TF1_LOOP_STORE = """
function {
  signature {
    name: "f"
    input_arg { name: "x" type: DT_HALF }
    output_arg { name: "y" type: DT_HALF }
  }
  node_def { name: "i" op: "Const"
    attr { key: "dtype" value { type: DT_INT32 } }
    attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape {} int_val: 0 } } } }
  node_def { name: "n" op: "Const"
    attr { key: "dtype" value { type: DT_INT32 } }
    attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape {} int_val: 1 } } } }
  node_def { name: "ta" op: "TensorArrayV3" input: "n:output:0"
    attr { key: "dtype" value { type: DT_HALF } } }
  node_def { name: "w" op: "TensorArrayWriteV3"
    input: "ta:handle:0" input: "i:output:0" input: "x" input: "ta:flow:0"
    attr { key: "T" value { type: DT_HALF } } }
  node_def { name: "r" op: "TensorArrayReadV3"
    input: "ta:handle:0" input: "i:output:0" input: "w:flow_out:0"
    attr { key: "dtype" value { type: DT_HALF } } }
  ret { key: "y" value: "r:value:0" }
}
"""


def test_a_tensor_array_of_tf1_is_promoted_as_a_whole():
    """It is a resource made inside the graph: the op that makes it must agree with its users."""
    inputs = {"x": np.float16([1.5, -2])}
    program, _ = apply_and_check(PASS, text_program(TF1_LOOP_STORE), inputs, exact=True)
    assert "Cast" not in ops(program)
    assert node(program, "ta").attr["dtype"].type == FLOAT
    assert node(program, "w").attr["T"].type == FLOAT


def test_optional_attributes_are_not_invented():
    """A SavedModel leaves out attributes with their default; reading one must not add it."""
    text = """
    function {
      signature { name: "f" input_arg { name: "x" type: DT_HALF }
                  output_arg { name: "y" type: DT_INT32 } }
      node_def { name: "s" op: "Shape" input: "x" attr { key: "T" value { type: DT_HALF } } }
      ret { key: "y" value: "s:output:0" }
    }"""
    program, _ = apply_and_check(PASS, text_program(text), {"x": np.float16([1, 2])}, exact=True)
    assert list(node(program, "s").attr) == ["T"]
