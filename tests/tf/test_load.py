"""Loading SavedModels: which signature, which tags, and files that are not whole."""

from __future__ import annotations

import json
import shutil

import h5py
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from mpexport.errors import InputError, UnsafeModelError, UsageError
from tests.tf.support import (
    assert_same,
    loaded,
    normalized,
    promoted_run,
    saved,
    spec,
    trained_run,
)

pytestmark = pytest.mark.tf


class Endpoints(tf.Module):
    """Functions of every shape, some of them signatures."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable(2.0 * np.eye(3, dtype=np.float32))

    @tf.function(input_signature=[spec("x", [None, 3])])
    def plain(self, x):
        return {"y": tf.cast(tf.cast(x, tf.float16) @ tf.cast(self.w, tf.float16), tf.float32)}

    @tf.function(input_signature=[spec("x", [None, 3]), spec("y", [None, 3])])
    def __call__(self, x, y):
        return x * 2, (y, x - y)

    @tf.function(
        input_signature=[
            {"b": spec(None, [3]), "a": (spec(None, [3]), spec(None, [3]))},
            spec("k", []),
        ]
    )
    def nested(self, d, k):
        return {"z": d["b"] - k, "y": {"q": d["a"][0] * k, "p": d["a"][1]}}

    @tf.function(input_signature=[spec("x", [None, 3])])
    def other(self, x):
        return x @ self.w

    @tf.function
    def optional(self, x, scale=2.0, training=False):
        return {"o": x * scale, "t": tf.constant(training)}

    @tf.function
    def keyword(self, *, b, a):
        return a - 2 * b

    @tf.function
    def twice(self, x):
        return x


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory):
    module = Endpoints()
    module.optional.get_concrete_function(spec("x", [3]))
    module.keyword.get_concrete_function(b=spec("b", [3]), a=spec("a", [3]))
    for dtype in (tf.float32, tf.int32):
        module.twice.get_concrete_function(spec("x", [3], dtype))
    path = tmp_path_factory.mktemp("endpoints")
    return {
        "none": saved(module, path / "none"),
        "one": saved(module, path / "one", {"only": module.plain}),
        "two": saved(module, path / "two", {"b": module.plain, "a": module.other}),
        "alias": saved(
            module, path / "alias", {"serving_default": module.plain, "predict": module.plain}
        ),
    }


def test_one_signature_is_the_one(endpoints):
    model = loaded(endpoints["one"])
    assert (model.chosen, model.choose()) == ("only", "only")


def test_several_have_to_be_chosen_from(endpoints):
    model = loaded(endpoints["two"])
    assert model.chosen is None
    with pytest.raises(UsageError, match="has several signatures: a, b") as caught:
        model.choose()
    assert caught.value.hint == "choose one: --signature NAME"
    assert loaded(endpoints["two"], signature="b").choose() == "b"
    assert sorted(model.distinct()) == ["a", "b"]


def test_two_keys_of_one_function_need_no_choice(endpoints):
    model = loaded(endpoints["alias"])
    assert model.choose() == "serving_default"
    assert model.distinct() == ["serving_default"]


def test_a_wrong_name_is_answered_with_the_right_one(endpoints):
    with pytest.raises(UsageError, match="has no signature 'plian'") as caught:
        loaded(endpoints["two"], signature="plian")
    assert "did you mean 'plain'" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        loaded(endpoints["two"], signature="???")
    for name in ("a", "b", "__call__", "nested", "optional", "plain"):
        assert name in caught.value.hint


def test_without_signatures_the_endpoints_are_named(endpoints):
    with pytest.raises(
        UsageError, match="has no signatures; its endpoints are: __call__"
    ) as caught:
        loaded(endpoints["none"])
    assert "nested, optional" in str(caught.value)


def test_an_endpoint_traced_twice_is_refused(endpoints):
    with pytest.raises(UsageError, match="'twice' was traced 2 times"):
        loaded(endpoints["none"], signature="twice")


def endpoint(path, name, inputs):
    model = normalized(path, signature=name)
    entry = model.program.entries[name]
    assert [s.name for s in entry.inputs] == sorted(inputs, key=list(inputs).index)
    outputs = promoted_run(model, name, inputs)
    assert_same(trained_run(model, name, inputs), outputs)
    assert [s.name for s in entry.outputs] == sorted(outputs)
    return outputs


A, B, C = (np.float32([i, 2 * i, -i]) for i in (1, 10, 100))


def test_endpoint_with_a_tuple(endpoints):
    rows = {"x": A[None], "y": B[None]}
    for path in (endpoints["none"], endpoints["two"]):  # beside signatures, too
        outputs = endpoint(path, "__call__", rows)
        expected = {"output_0": 2 * A[None], "output_1": B[None], "output_2": (A - B)[None]}
        assert_same(expected, outputs, exact=True)


def test_endpoint_with_nested_inputs_and_outputs(endpoints):
    inputs = {"d_a_0": A, "d_a_1": B, "d_b": C, "k": np.float32(3)}
    outputs = endpoint(endpoints["none"], "nested", inputs)
    assert_same({"z": C - 3, "y_q": 3 * A, "y_p": B}, outputs, exact=True)


def test_endpoint_with_optional_arguments(endpoints):
    outputs = endpoint(endpoints["none"], "optional", {"x": A})
    assert_same({"o": 2 * A, "t": np.array(False)}, outputs, exact=True)


def test_endpoint_with_keyword_arguments(endpoints):
    outputs = endpoint(endpoints["none"], "keyword", {"a": A, "b": B})
    assert_same({"output_0": A - 2 * B}, outputs, exact=True)


# --- tags ---------------------------------------------------------------------------------------


@pytest.fixture
def two_tag_sets(tmp_path):
    """What TF1's Builder writes when it is given a second MetaGraph."""
    v1 = tf.compat.v1
    builder = v1.saved_model.Builder(str(tmp_path / "m"))
    for tags, factor in ((["serve"], 2.0), (["serve", "gpu"], 3.0)):
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, [None], "x")
            w = v1.get_variable("w", initializer=2.0, use_resource=True)
            session.run(v1.global_variables_initializer())
            signature = v1.saved_model.predict_signature_def({"x": x}, {"y": x * w * factor})
            signatures = {"serving_default": signature}
            if tags == ["serve"]:
                builder.add_meta_graph_and_variables(session, tags, signatures)
            else:
                builder.add_meta_graph(tags, signatures)
    builder.save()
    return tmp_path / "m"


def test_several_tag_sets_have_to_be_chosen_from(two_tag_sets):
    with pytest.raises(UsageError, match="several tag sets: serve; gpu,serve") as caught:
        loaded(two_tag_sets)
    assert caught.value.hint == "choose one: --tag TAG"
    for tag, expected in (("serve", 4.0), ("gpu,serve", 6.0), ("serve,gpu", 6.0)):
        model = normalized(two_tag_sets, tag=tag)
        outputs = promoted_run(model, "serving_default", {"x": np.float32([1])})
        assert outputs["y"].tolist() == [expected]


def test_a_tag_set_that_is_not_there(two_tag_sets, endpoints):
    with pytest.raises(UsageError, match="has no tag set 'tpu'") as caught:
        loaded(two_tag_sets, tag="tpu")
    assert caught.value.hint == "tag sets: serve; gpu,serve"
    with pytest.raises(UsageError, match="has no tag set 'train'"):
        loaded(endpoints["one"], tag="train")


# --- damage -------------------------------------------------------------------------------------


@pytest.fixture
def whole(endpoints, tmp_path):
    return shutil.copytree(endpoints["one"], tmp_path / "m")


@pytest.mark.parametrize("keep", [0.001, 0.3, 0.9, 0.999])
def test_a_truncated_graph(whole, keep):
    file = whole / "saved_model.pb"
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(InputError, match="damaged"):
        loaded(whole)


def test_an_empty_graph_and_one_without_content(whole):
    file = whole / "saved_model.pb"
    file.write_bytes(b"")
    with pytest.raises(InputError, match="is empty"):
        loaded(whole)
    file.write_bytes(saved_model_pb2.SavedModel(saved_model_schema_version=1).SerializeToString())
    with pytest.raises(InputError, match="it holds no graph"):
        loaded(whole)
    file.write_bytes(b"no protobuf at all")
    with pytest.raises(InputError, match="damaged"):
        loaded(whole)


def test_truncated_variables(whole):
    (shard,) = (whole / "variables").glob("variables.data-*")
    shard.write_bytes(shard.read_bytes()[:8])
    with pytest.raises(InputError, match="damaged or incomplete"):
        loaded(whole)


@pytest.mark.parametrize("missing", ["variables.index", "variables.data-00000-of-00001"])
def test_missing_variables(whole, missing):
    (whole / "variables" / missing).unlink()
    with pytest.raises(InputError, match=f"{missing}: is missing"):
        loaded(whole)


def test_no_variables_at_all(whole):
    shutil.rmtree(whole / "variables")
    with pytest.raises(InputError, match="damaged or incomplete"):
        loaded(whole)


# --- unsafe -------------------------------------------------------------------------------------


def test_a_signature_that_writes_files_is_refused(tmp_path):
    class Writer(tf.Module):
        @tf.function(input_signature=[spec("x", [])])
        def serve(self, x):
            if x > 0:
                tf.io.write_file(str(tmp_path / "written"), "x")
            return {"y": x}

    module = Writer()
    path = saved(module, tmp_path / "m", {"serving_default": module.serve})
    with pytest.raises(UnsafeModelError, match="the graph holds WriteFile") as caught:
        normalized(path)
    assert "WriteFile" in caught.value.where
    assert "--allow-code" in caught.value.hint
    assert normalized(path, allow_code=True).source.chosen == "serving_default"
    assert not (tmp_path / "written").exists()


def test_a_keras_file_that_deletes_files_is_refused(tmp_path):
    """tf-keras calls a TensorFlow function named in the file while it reads it."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    call = {"name": "c", "trainable": True, "dtype": "float32", "function": "io.gfile.remove"}
    node = [["_CONSTANT_VALUE", -1, str(victim), {}]]
    layer = {"class_name": "TFOpLambda", "name": "c", "config": call, "inbound_nodes": node}
    config = {"name": "m", "layers": [layer], "input_layers": [], "output_layers": [["c", 0, 0]]}
    with h5py.File(tmp_path / "m.h5", "w") as f:
        f.attrs["keras_version"] = "2.15.0"
        f.attrs["model_config"] = json.dumps({"class_name": "Functional", "config": config})
    with pytest.raises(UnsafeModelError, match="a call of TensorFlow's io"):
        loaded(tmp_path / "m.h5")
    assert victim.read_text() == "precious"
