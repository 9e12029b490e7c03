"""Refusals name op, layer and a way out; randomness that inference leaves unused has no node."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from mpexport.errors import ConversionError
from mpexport.sources import SourceOptions
from mpexport.tf.keras3 import export_keras3
from mpexport.tf.onnx_refusals import explain, place_of
from mpexport.tf.to_onnx import build_onnx
from tests.tf.onnx_support import model_of, nodes, onnx_of, run_onnx
from tests.tf.support import normalized

pytestmark = [pytest.mark.tf, pytest.mark.ort]

X = np.float32([[0.5, -1.25, 2.0], [3.0, 0.125, -0.75]])
TEXT = np.array([b"a", b"b"], object)
RANDOM = "draws random numbers at inference"
NUMBERS = "export a signature that takes numbers"
TABLE = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64)), -1
)
GENERATOR = tf.random.Generator.from_seed(1)

# name: (function, input, op that is named, words of the hint)
REFUSED = {
    "random": (lambda x: x + tf.random.normal(tf.shape(x)), X, "RandomStandardNormal", RANDOM),
    "random by seed": (
        lambda x: x + tf.random.stateless_uniform(tf.shape(x), [1, 2]),
        X,
        "StatelessRandomUniformV2",
        RANDOM,
    ),
    "random by state": (
        lambda x: x + GENERATOR.normal(tf.shape(x)), X, "RngReadAndSkip", RANDOM,
    ),
    "dropout that is on": (lambda x: tf.nn.dropout(x, 0.5), X, "RandomUniform", RANDOM),
    "text": (tf.strings.length, TEXT, "StringLength", NUMBERS),
    "comparing text": (lambda x: tf.equal(x, "a"), TEXT, "Equal of text", NUMBERS),
    "table of text": (TABLE.lookup, TEXT, "LookupTableFindV2", NUMBERS),
    "factorization": (
        lambda x: tf.linalg.cholesky(tf.matmul(x, x, transpose_b=True) + tf.eye(2)),
        X,
        "Cholesky",
        "outside the model",
    ),
    "special function": (tf.math.bessel_i0e, X, "BesselI0e", "replace the layer"),
    "bits": (lambda x: tf.bitcast(x, tf.int32), X, "Bitcast", "values instead of their bits"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_op_layer_and_way_out_are_named(name):
    function, array, op, hint = REFUSED[name]

    def call(x):
        with tf.name_scope("model/layer_7/"):
            return function(x)

    with pytest.raises(ConversionError) as e:
        build_onnx(model_of(call, array), "f", 18)
    assert f"ONNX has no op for TensorFlow's {op} in layer layer_7 (model/layer_7/" in str(e.value)
    assert e.value.where.startswith("model/layer_7/")
    assert e.value.exit_code == 5
    assert hint in e.value.hint
    assert "savedmodel" in e.value.hint


def test_update_of_a_variable_is_refused():
    counter = tf.Variable(1.0)
    with pytest.raises(ConversionError, match=r"AssignAddVariableOp .* changes a variable") as e:
        build_onnx(model_of(lambda x: x * counter.assign_add(1.0), X), "f", 18)
    assert "without state" in e.value.hint


def test_randomness_that_no_output_sees_leaves_no_node():
    seeds = keras.random.SeedGenerator(1)

    def call(x):
        keras.random.normal((2,), seed=seeds)  # counts on
        tf.random.normal([2])
        return x * 2.0

    proto = onnx_of(model_of(call, X))
    assert nodes(proto) == {"Mul": 1}
    assert (run_onnx(proto, {"x0": X})["y0"] == 2 * X).all()


def test_layers_that_are_random_in_training_leave_no_node(tmp_path):
    k = keras.layers
    keras.config.set_dtype_policy("mixed_float16")
    try:
        layers = [
            keras.Input((4, 4, 3)),
            k.RandomFlip(),
            k.RandomBrightness(0.5),
            k.Dropout(0.5),
            k.SpatialDropout2D(0.5),
            k.GaussianNoise(0.5),
            k.GaussianDropout(0.5),
            k.AlphaDropout(0.5),
            k.Rescaling(0.5),
        ]
        keras.Sequential(layers).save(tmp_path / "m.keras")
    finally:
        keras.config.set_dtype_policy("float32")
    export_keras3(SourceOptions(path=tmp_path / "m.keras"), tmp_path / "m")
    model = normalized(tmp_path / "m")
    proto = onnx_of(model, key=model.source.choose())
    assert set(nodes(proto)) <= {"Mul", "Add", "Identity"}
    image = np.random.default_rng(0).standard_normal((2, 4, 4, 3)).astype(np.float32)
    (name,) = [i.name for i in proto.graph.input]
    (found,) = run_onnx(proto, {name: image}).values()
    np.testing.assert_array_equal(found, image / 2)


def test_input_and_output_of_one_name_are_refused(tmp_path):
    module = tf.Module()
    module.call = tf.function(
        lambda boxes: {"boxes": boxes * 2.0},
        input_signature=[tf.TensorSpec([None, 4], tf.float32, name="boxes")],
    )
    tf.saved_model.save(module, str(tmp_path / "m"), signatures=module.call)
    model = normalized(tmp_path / "m")
    with pytest.raises(ConversionError, match="both named boxes") as e:
        build_onnx(model, model.source.choose(), 18)
    assert "another name" in e.value.hint


def test_what_tf2onnx_logged_is_said_in_terms_of_the_model():
    logged = ["Failed to convert node 'call/net/pool/MaxPool' (fct=...)\n'OP=MaxPool\\nName=...'"]
    error = explain(logged, "make_sure failure: sizes unknown", "serving_default")
    text = "tf2onnx cannot convert MaxPool in layer pool (net/pool/MaxPool): sizes unknown"
    assert str(error) == text
    assert error.where == "net/pool/MaxPool"
    silent = explain([], "IndexError: 3", "serving_default")
    assert (str(silent), silent.where) == ("tf2onnx failed: IndexError: 3", "serving_default")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("call/StatefulPartitionedCall/net/dense/MatMul", " in layer dense (net/dense/MatMul)"),
        ("net_while_body_17__flat2__flat3_net/cell/Lu", " in layer cell (net/cell/Lu)"),
        ("call/MatMul", " (MatMul)"),
        ("scope/MatMul", " in layer scope (scope/MatMul)"),
    ],
)
def test_place_of(name, place):
    assert place_of(name) == place
