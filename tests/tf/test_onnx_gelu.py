"""GELUs in ONNX: one node from opset 20 on, the same function in other nodes before."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf

from tests.tf.onnx_support import convert_and_check, model_of, nodes, onnx_of

pytestmark = [pytest.mark.tf, pytest.mark.ort]

X = np.linspace(-4, 6, 60, dtype=np.float32).reshape(3, 20)[:, ::-1].copy()
ROOT = math.sqrt(2 / math.pi)
# What ONNX Runtime fuses into a Gelu when it loads a file.
CHAIN = {"Div": 1, "Erf": 1, "Add": 1, "Mul": 2}

# name: (function, nodes at opset 18, nodes at opset 20)
FORMS = {
    "exact": (
        lambda x: tf.nn.gelu(x, approximate=False),
        CHAIN,
        {"Gelu": 1},
    ),
    "exact by erf": (
        lambda x: x * 0.5 * (1.0 + tf.math.erf(x / math.sqrt(2.0))),
        CHAIN,
        {"Gelu": 1},
    ),
    "exact, constant rounded": (
        lambda x: 0.5 * x * (1.0 + tf.math.erf(x * 0.70703125)),
        {"Mul": 3, "Erf": 1, "Add": 1},
        {"Gelu": 1, "Mul": 2},
    ),
    "tanh": (
        lambda x: tf.nn.gelu(x, approximate=True),
        {"Mul": 4, "Pow": 1, "Add": 2, "Tanh": 1},
        {"Gelu": 1},
    ),
    "tanh by products": (
        lambda x: x * (0.5 * (1.0 + tf.tanh(ROOT * (0.044715 * x * x * x + x)))),
        {"Mul": 6, "Add": 2, "Tanh": 1},
        {"Gelu": 1},
    ),
    "tanh, constants rounded": (
        lambda x: 0.5 * x * (1.0 + tf.tanh(0.7978516 * (x + 0.0447083 * tf.pow(x, 3.0)))),
        {"Mul": 4, "Pow": 1, "Add": 2, "Tanh": 1},
        {"Mul": 4, "Pow": 1, "Add": 2, "Tanh": 1},
    ),
    "another function": (
        lambda x: 0.4 * x * (1.0 + tf.math.erf(x)),
        {"Mul": 2, "Erf": 1, "Add": 1},
        {"Mul": 2, "Erf": 1, "Add": 1},
    ),
    "another factor": (
        lambda x: 0.5 * (x + 1.0) * (1.0 + tf.math.erf(x / math.sqrt(2.0))),
        {"Mul": 3, "Erf": 1, "Add": 2},
        {"Mul": 3, "Erf": 1, "Add": 2},
    ),
    "read elsewhere": (
        lambda x: [tf.nn.gelu(x, False), tf.math.erf(x * math.sqrt(0.5))],
        {"Div": 1, "Erf": 2, "Add": 1, "Mul": 3},
        {"Gelu": 1, "Mul": 1, "Erf": 1},
    ),
}


@pytest.mark.parametrize("opset", [18, 20])
@pytest.mark.parametrize("form", FORMS)
def test_nodes_and_numbers(form, opset):
    function, before, after = FORMS[form]
    assert convert_and_check(function, X, opset=opset) == (before if opset < 20 else after)


@pytest.mark.parametrize("half", [tf.float16, tf.bfloat16])
def test_what_was_traced_in_16_bits_is_kept_as_traced(half):
    found = convert_and_check(lambda x: tf.nn.gelu(x, False), X, opset=20, half=half)
    assert found["Gelu"] == 1
    assert found["Erf"] == 0
    # Its two constants were rounded, and no scale mends both.
    found = convert_and_check(lambda x: tf.nn.gelu(x, True), X, opset=20, half=half)
    assert found["Gelu"] == 0
    assert found["Tanh"] == 1


def test_onnx_runtime_fuses_the_chain(tmp_path):
    proto = onnx_of(model_of(lambda x: tf.nn.gelu(x, False), X), 18)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    assert nodes(onnx.load(options.optimized_model_filepath)) == {"Gelu": 1}


@pytest.mark.parametrize("attribute", ["none", "tanh"])
def test_kind_is_an_attribute(attribute):
    proto = onnx_of(model_of(lambda x: tf.nn.gelu(x, attribute == "tanh"), X), 20)
    (gelu,) = [n for n in proto.graph.node if n.op_type == "Gelu"]
    assert {a.name: a.s for a in gelu.attribute} == {"approximate": attribute.encode()}
