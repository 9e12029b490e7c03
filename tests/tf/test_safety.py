"""The scan of Keras configs: what would run its author's code is found, ordinary models pass."""

from __future__ import annotations

import inspect
import json

import keras
import pytest
import tensorflow as tf
import tf_keras

from mpexport.errors import UnsafeModelError
from mpexport.safety import refuse_unsafe, scan_config

pytestmark = pytest.mark.tf

RUNS_CODE = {"Lambda", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer"}


def found(config):
    return list(scan_config(json.loads(json.dumps(config, default=str))))


def keras3(class_name, module="keras.layers", registered=None, **config):
    return {
        "module": module,
        "class_name": class_name,
        "config": {"name": "culprit", **config},
        "registered_name": registered,
    }


def keras2(class_name, **config):
    return {"class_name": class_name, "config": {"name": "culprit", **config}}


def model(*layers, **extra):
    config = {"name": "m", "layers": [keras3("Dense", units=2), *layers]}
    return {"module": "keras", "class_name": "Sequential", "config": config, **extra}


def function(name, module="builtins", registered="function"):
    return {
        "module": module,
        "class_name": "function",
        "config": name,
        "registered_name": registered,
    }


LAMBDA = keras3("Lambda", function={"class_name": "__lambda__", "config": {"value": "4wEA"}})
UNSAFE = {
    "Lambda": LAMBDA,
    "Lambda of Keras 2": keras2("Lambda", function=["4wEA", None, None]),
    "in TimeDistributed": keras3("TimeDistributed", layer=LAMBDA),
    "in an inner model": model(model(LAMBDA)),
    "Lambda by its registered name": keras3(
        "X", "tf_keras.src.layers.core.lambda_layer", registered="Lambda"
    ),
    "lambda as activation": keras3("Dense", activation=LAMBDA["config"]["function"]),
    "TFSMLayer": keras3("TFSMLayer", filepath="/tmp/evil"),
    "JaxLayer": keras3("JaxLayer"),
    "custom class": keras3("MyLayer", "my.layers", "MyLayer"),
    "registered class": keras3("MyLayer", None, "pkg>MyLayer"),
    "registered class of Keras 2": keras2("pkg>MyLayer"),
    "class without module": keras3("Dense", None, "Evil"),
    "registered function": keras3("Dense", activation=function("pkg>act")),
    "function elsewhere": keras3("Dense", activation=function("act", "my.act", "act")),
    "os.system": keras3("Dense", activation=function("system", "os", "system")),
    "exec": keras3("Dense", activation=function("exec", "builtins", "exec")),
    "__import__": keras3("Dense", kernel_initializer=function("__import__")),
    "attribute of a function": keras3("Dense", activation=function("eval.__call__")),
    "a module that Keras imports": keras3(
        "Dense", activation=function("sys.exit", "tf_keras.src.activations")
    ),
    "keras.config": keras3(
        "Dense", activation=function("enable_unsafe_deserialization", "keras.config")
    ),
    "keras.models.load_model": keras3("Dense", activation=function("load_model", "keras.models")),
    "keras.utils.get_file": keras3("Dense", activation=function("get_file", "keras.utils")),
    "keras itself": keras3("Dense", activation=function("Model", "keras")),
    "looks like keras": keras3("Dense", "keras_evil.layers", "Dense"),
    "class of builtins": keras3("dict", "builtins"),
    "dotted class": keras3("lambda_layer.Lambda", "keras.src.layers.core"),
    "typespec": {
        "class_name": "__typespec__",
        "spec_name": "Popen",
        "module": "subprocess",
        "config": [],
        "registered_name": None,
    },
    "in an inner compile_config": model(
        model(compile_config={"loss": function("system", "os", "system")})
    ),
    "deletes a file": keras2("TFOpLambda", function="io.gfile.remove"),
    "loads a library": keras2("TFOpLambda", function="load_library"),
    "Python in the graph": keras2("TFOpLambda", function="compat.v1.py_func"),
    "prints to a file": keras2("TFOpLambda", function="print"),
    "raw op": keras2("TFOpLambda", function="raw_ops.WriteFile"),
    "through a slice": keras2("SlicingOpLambda", function="io.write_file"),
    "downloads a file": keras2("TFOpLambda", function="keras.utils.get_file"),
    "vocabulary of a sampler": keras2(
        "TFOpLambda", function="random.fixed_unigram_candidate_sampler"
    ),
    "class method": keras2("ClassMethod", cls_symbol="io.gfile.GFile", method_name="write"),
    "op": keras2("TensorFlowOpLayer", node_def={"name": "w", "op": "WriteFile"}),
    "serialized op": keras2("TensorFlowOpLayer", node_def="\n\x01w\x12\tWriteFile"),
    "a function beside a layer": keras3("ConvNeXtTiny", "keras.src.applications.convnext"),
    "vocabulary file": keras3("StringLookup", vocabulary="/etc/passwd"),
}


@pytest.mark.parametrize("what", UNSAFE)
def test_what_is_found(what):
    config = model(UNSAFE[what])
    items = found(config)
    assert items, what
    with pytest.raises(UnsafeModelError) as caught:
        refuse_unsafe("m.keras", items, frozenset())
    assert str(caught.value).startswith("m.keras: layer ")
    assert caught.value.hint
    assert "--import" in caught.value.hint or "--allow-code" in caught.value.hint


@pytest.mark.parametrize(
    ("layer", "home"),
    [("LayerScale", "convnext"), ("CustomScaleLayer", "inception_resnet_v2")],
)
@pytest.mark.parametrize("root", ["keras.src", "tf_keras.src"])
def test_layers_of_the_applications_are_keras_own(root, layer, home):
    assert not found(model(keras3(layer, f"{root}.applications.{home}")))


def test_the_layer_is_named():
    (first, *_) = found(model(model(LAMBDA)))
    assert first.layer == "culprit"
    with pytest.raises(UnsafeModelError, match="layer 'culprit' is a Lambda layer") as caught:
        refuse_unsafe("m.keras", [first], frozenset())
    assert caught.value.where == "culprit"


@pytest.mark.parametrize(
    ("config", "known"),
    [
        (keras3("MyLayer", None, "pkg>MyLayer"), "pkg>MyLayer"),
        (keras3("MyLayer", "my.layers", "pkg>MyLayer"), "pkg>MyLayer"),
        (keras2("pkg>MyLayer"), "pkg>MyLayer"),
        (keras3("Dense", activation=function("pkg>act")), "pkg>act"),
    ],
)
def test_what_the_users_imports_register_is_known(config, known):
    items = found(model(config))
    assert [i.custom_class for i in items] == [known]
    refuse_unsafe("m.keras", items, frozenset({known}))
    with pytest.raises(UnsafeModelError, match="needs the custom") as caught:
        refuse_unsafe("m.keras", items, frozenset({"pkg>Other"}))
    assert "--import" in caught.value.hint


def test_registering_a_class_does_not_make_a_lambda_known():
    items = found(model(LAMBDA))
    with pytest.raises(UnsafeModelError):
        refuse_unsafe("m.keras", items, frozenset({"Lambda", "__lambda__"}))


def test_the_compile_config_of_the_whole_model_is_not_read():
    config = model(compile_config={"loss": function("system", "os", "system")})
    assert found(config) == []


def test_depth_is_no_way_out():
    config = LAMBDA
    for _ in range(3000):
        config = {"config": [config]}
    assert list(scan_config(config))


@pytest.mark.parametrize("config", [None, [], "x", 3, {"class_name": 5}, {"config": None}])
def test_odd_configs_do_not_break_the_scan(config):
    assert list(scan_config(config)) == []


# --- ordinary models ----------------------------------------------------------------------------

ARGUMENTS = [
    lambda layers: (),
    lambda layers: (2,),
    lambda layers: (2, 2),
    lambda layers: (2, (2, 2)),
    lambda layers: (2, 2, 2),
    lambda layers: ((2, 2),),
    lambda layers: ((1,),),
    lambda layers: (0.1,),
    lambda layers: (0.1, 0.1),
    lambda layers: ("relu",),
    lambda layers: (layers.Dense(2),),
    lambda layers: (layers.LSTM(2),),
    lambda layers: ([layers.LSTMCell(2), layers.GRUCell(2)],),
    lambda layers: (4, 2, 3),
]


def built(cls, generation=keras):
    for arguments in ARGUMENTS:
        try:
            return cls(*arguments(generation.layers))
        except Exception:
            continue
    raise AssertionError(f"{cls.__name__}: no arguments fit")


@pytest.mark.parametrize(("generation", "least"), [(keras, 155), (tf_keras, 125)])
def test_every_built_in_layer_passes(generation, least):
    layers = {
        name: cls
        for name, cls in vars(generation.layers).items()
        if inspect.isclass(cls)
        and issubclass(cls, generation.layers.Layer)
        and name not in RUNS_CODE
        and name != "DenseFeatures"  # takes feature columns; gone in Keras 3
    }
    assert len(layers) >= least
    items = {
        name: found(generation.saving.serialize_keras_object(built(cls, generation)))
        for name, cls in layers.items()
    }
    assert {name: i for name, i in items.items() if i} == {}


def test_a_functional_model_of_tf_keras_passes():
    """Its module is none of those that are public; operators and slices become layers."""
    x = tf_keras.Input((4,))
    y = tf_keras.layers.Dense(4)(tf.nn.relu(x) * 2 + 1)[:, 1:]
    model = tf_keras.Model(x, tf.cast(tf.concat([y, y], -1), tf.float16))
    config = tf_keras.saving.serialize_keras_object(model)
    assert {"TFOpLambda", "SlicingOpLambda"} <= {
        c["class_name"] for c in config["config"]["layers"]
    }
    assert found(config) == []
    assert found(json.loads(model.to_json())) == []


@pytest.mark.parametrize("home", ["activations", "constraints", "initializers", "regularizers"])
def test_everything_a_layer_can_be_given_passes(home):
    given = []
    for name, member in vars(getattr(keras, home)).items():
        if inspect.isclass(member) and name != "Regularizer":
            given.append(built(member))
        elif inspect.isfunction(member) and name not in ("get", "serialize", "deserialize"):
            given.append(member)
    assert len(given) > 3
    for member in given:
        if inspect.isfunction(member):
            layer = keras.layers.Dense(2, activation=member)
        else:
            key = {"constraints": "kernel_constraint", "initializers": "kernel_initializer"}
            layer = keras.layers.Dense(2, **{key.get(home, "kernel_regularizer"): member})
        assert found(keras.saving.serialize_keras_object(layer)) == [], member


def test_a_compiled_model_of_compiled_models_passes():
    inner = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)], name="inner")
    metrics = ["mae", keras.metrics.TopKCategoricalAccuracy()]
    inner.compile(keras.optimizers.Adam(), keras.losses.Huber(), metrics=metrics)
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(3, "gelu", dtype="mixed_float16", kernel_regularizer="l2")(inputs)
    outer = keras.Model(inputs, keras.ops.tanh(inner(hidden)) * 2)
    outer.compile("adam", "mse")
    config = keras.saving.serialize_keras_object(outer)
    assert "compile_config" in json.dumps(config["config"], default=str)
    assert found(config) == []


ORDINARY_KERAS2 = {
    "functional of tf-keras": {
        "module": "tf_keras.src.engine.functional",
        "class_name": "Functional",
        "config": {"name": "m", "layers": []},
        "registered_name": "Functional",
    },
    "functional of Keras 2": {
        "module": "keras.src.engine.functional",
        "class_name": "Functional",
        "config": {"name": "m", "layers": []},
        "registered_name": "Functional",
    },
    "policy": keras2("Dense", dtype={"class_name": "Policy", "config": {"name": "mixed_float16"}}),
    "shape": keras2("Dense", build={"class_name": "TensorShape", "items": [None, 3]}),
    "addition": keras2("TFOpLambda", function="__operators__.add"),
    "slice": keras2("SlicingOpLambda", function="__operators__.getitem"),
    "math": keras2("TFOpLambda", function="math.reduce_mean"),
    "nn": keras2("TFOpLambda", function="nn.relu"),
    "concat": keras2("TFOpLambda", function="concat"),
    "of TF1": keras2("TFOpLambda", function="compat.v1.transpose"),
    "backend": keras2("TFOpLambda", function="keras.backend.mean"),
    "op": keras2("TensorFlowOpLayer", node_def={"name": "add", "op": "AddV2"}),
    "ragged": keras2("ClassMethod", cls_symbol="RaggedTensor", method_name="from_row_splits"),
    "ragged input": {
        "class_name": "__typespec__",
        "spec_name": "RaggedTensorSpec",
        "module": "tensorflow.python.ops.ragged.ragged_tensor",
        "config": [],
        "registered_name": None,
    },
    "vocabulary": keras2("StringLookup", vocabulary=["a", "b"]),
}


@pytest.mark.parametrize("what", ORDINARY_KERAS2)
def test_ordinary_parts_of_keras_2_pass(what):
    assert found(model(ORDINARY_KERAS2[what])) == []
