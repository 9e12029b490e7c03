"""saturate_sentinels: masks that overflowed when they were traced."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.framework import tensor_util

from mpexport.tf import pipeline, resources
from tests.tf.support import (
    BF16,
    FLOAT,
    HALF,
    apply_and_check,
    entry_function,
    node,
    ops,
    run,
    spec,
    text_program,
    traced,
)

pytestmark = pytest.mark.tf

PASS = "saturate_sentinels"
MASK = """
function {
  signature { name: "f" input_arg { name: "x" type: DT_HALF }
              output_arg { name: "y" type: DT_HALF } output_arg { name: "c" type: DT_HALF } }
  node_def { name: "m" op: "Const" attr { key: "dtype" value { type: DT_HALF } }
    attr { key: "value" value { tensor { dtype: DT_HALF VALUES } } } }
  node_def { name: "a" op: "AddV2" input: "x" input: "m:output:0"
    attr { key: "T" value { type: DT_HALF } } }
  ret { key: "y" value: "a:z:0" }
  ret { key: "c" value: "m:output:0" }
}
"""


def mask(values: str) -> str:
    return MASK.replace("VALUES", values)


def test_infinities_become_sentinels_and_the_rest_stays():
    values = np.float16([-np.inf, 0.1, np.inf, 65504])
    text = mask("tensor_shape { dim { size: 4 } }")
    program = text_program(text)
    node(program, "m").attr["value"].tensor.tensor_content = values.tobytes()
    changed, changes = apply_and_check(PASS, program)
    const = node(changed, "m").attr
    assert const["dtype"].type == FLOAT
    stored = tensor_util.MakeNdarray(const["value"].tensor)
    assert stored.tolist() == [-1e9, float(np.float16(0.1)), 1e9, 65504]
    cast = node(changed, "m/saturated")
    assert list(cast.input) == ["m:output:0"]
    assert (cast.attr["SrcT"].type, cast.attr["DstT"].type) == (FLOAT, HALF)
    assert list(node(changed, "a").input) == ["x", "m/saturated:y:0"]
    assert entry_function(changed).ret["c"] == "m/saturated:y:0"
    assert [(c.kind, c.where) for c in changes] == [("constant-saturated", "f/m")]
    assert changes[0].detail.startswith("2 infinite")


def test_a_splat_stays_small():
    text = mask("half_val: 64512 tensor_shape { dim { size: 30000 } dim { size: 30000 } }")
    changed, _ = apply_and_check(PASS, text_program(text))
    tensor = node(changed, "m").attr["value"].tensor
    assert list(tensor.float_val) == [-1e9]
    assert tensor.ByteSize() < 50


@pytest.mark.parametrize(("bits", "sign"), [(0xFF80, -1), (0x7F80, 1)])
def test_bfloat16(bits, sign):
    text = mask(f"half_val: {bits} tensor_shape {{}}").replace("DT_HALF", "DT_BFLOAT16")
    changed, _ = apply_and_check(PASS, text_program(text))
    assert list(node(changed, "m").attr["value"].tensor.float_val) == [sign * 1e9]
    assert node(changed, "m/saturated").attr["DstT"].type == BF16


@pytest.mark.parametrize(
    "values",
    ["half_val: 31743 tensor_shape {}", "half_val: 32256 tensor_shape {}", "tensor_shape {}"],
    ids=["largest", "nan", "zero"],
)
def test_what_is_not_infinite_is_left_alone(values):
    changed, changes = apply_and_check(PASS, text_program(mask(values)))
    assert changes == []
    assert "Cast" not in ops(changed)


def test_a_float32_infinity_was_meant():
    program = traced(lambda x: {"y": tf.minimum(x, tf.constant([np.inf, -np.inf]))}, spec("x", [2]))
    _, changes = apply_and_check(PASS, program, {"x": np.float32([1, 2])}, exact=True)
    assert changes == []


def test_the_fully_masked_row_is_finite_afterwards():
    def attention(x, keep):
        scores = tf.cast(x, tf.float16) + tf.where(keep, tf.constant(0, tf.float16), -np.inf)
        return {"p": tf.cast(tf.nn.softmax(scores), tf.float32)}

    program = traced(attention, spec("x", [None, 3]), spec("keep", [None, 3], tf.bool))
    inputs = {"x": np.zeros((2, 3)), "keep": np.array([[True, True, False], [False] * 3])}
    assert np.isnan(run(program, "f", inputs)["p"][1]).all()
    pipeline.run(program, "normalize", pipeline.PassContext())
    probabilities = run(program, "f", inputs)["p"]
    np.testing.assert_array_equal(probabilities[0], [0.5, 0.5, 0])
    np.testing.assert_allclose(probabilities[1], 1 / 3, rtol=1e-6)
    assert "Cast" not in ops(program)


def test_a_captured_constant_is_saturated_too():
    """An eager mask that a model holds as an attribute is no Const of the graph."""
    causal = tf.constant(np.triu(np.full((40, 40), -np.inf, np.float16), 1))
    program = traced(lambda x: {"y": x + causal}, spec("x", [40, 40], tf.float16))
    assert len(program.entries["f"].captures) == 1
    pipeline.run(program, "normalize", pipeline.PassContext())
    twins, changes = resources.widen_captures(program)
    assert twins == []
    assert [c.kind for c in changes] == ["constant-saturated", "constant-widened"]
    (captured,) = program.entries["f"].captures
    np.testing.assert_array_equal(captured, np.triu(np.full((40, 40), -1e9, np.float32), 1))


def test_the_attribute_of_another_op_is_not_taken_for_a_constant():
    text = mask("half_val: 64512 tensor_shape {}").replace('op: "Const"', 'op: "Placeholder"')
    program = text_program(text)
    node(program, "m").attr["value"].CopyFrom(attr_value_pb2.AttrValue(s=b""))
    _, changes = apply_and_check(PASS, program)
    assert changes == []
