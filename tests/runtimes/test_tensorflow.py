"""TensorFlow as a runtime for SavedModel directories."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from mpexport import runtimes
from mpexport.errors import ConversionError, InputError, UsageError
from mpexport.runtimes import RuntimeOptions

from .conftest import WEIGHTS

pytestmark = pytest.mark.tf
pytest.importorskip("tensorflow")


def open_model(path, **options):
    return runtimes.get("tensorflow").open(path, RuntimeOptions(**options))


@pytest.fixture
def copy(tf_model, tmp_path):
    shutil.copytree(tf_model / "saved_model", tmp_path / "m")
    return tmp_path / "m"


def test_signatures(tf_model):
    session = open_model(tf_model / "saved_model")
    assert session.signature.key == "serving_default"
    assert [str(s) for s in session.signature.inputs] == ["x: float32[?, 4]", "y: float32[?, 1]"]
    assert [s.name for s in session.signature.outputs] == ["alpha", "zeta"]
    outputs = session.run({"y": np.ones((2, 1)), "x": np.ones((2, 4))})
    np.testing.assert_allclose(outputs["zeta"], np.ones((2, 4)) @ WEIGHTS + 1, rtol=1e-6)
    outputs["zeta"][:] = 0  # a copy, and writable
    environment = session.environment()
    assert environment["runtime"] == "tensorflow"
    assert "CPU" in environment["devices"]
    session.close()
    lookup = open_model(tf_model / "saved_model", signature="lookup")
    np.testing.assert_array_equal(lookup.run({"ids": np.array([2])})["out"], WEIGHTS[[2]])


def test_several_signatures_without_a_default(tmp_path):
    tf = pytest.importorskip("tensorflow")
    module = tf.Module()
    double = tf.function(lambda x: {"y": 2 * x}, input_signature=[tf.TensorSpec([], name="x")])
    for keys in (["b", "a"], ["only"], []):
        path = tmp_path / "".join(["m", *keys])
        tf.saved_model.save(module, str(path), signatures=dict.fromkeys(keys, double))
    with pytest.raises(UsageError, match="several signatures: a, b"):
        open_model(tmp_path / "mba")
    assert open_model(tmp_path / "mba", signature="b").run({"x": np.float64(3)})["y"] == 6
    assert open_model(tmp_path / "monly").signature.key == "only"
    with pytest.raises(InputError, match="has no signature"):
        open_model(tmp_path / "m")


def test_half_strings_and_names(tmp_path):
    tf = pytest.importorskip("tensorflow")

    def call(half, text):
        return {"h": half * 2, "t": text, "b": tf.cast(half, tf.bfloat16)}

    specs = [
        tf.TensorSpec([None], tf.float16, name="half"),
        tf.TensorSpec([None], tf.string, name="text"),
    ]
    path = tmp_path / "m"
    function = tf.function(call, input_signature=specs)
    tf.saved_model.save(tf.Module(), str(path), signatures=function.get_concrete_function())
    session = open_model(path)
    outputs = session.run({"half": np.float32([1.5]), "text": np.array([b"\xff\x00"], object)})
    assert outputs["h"].dtype == np.float16
    assert outputs["t"].tolist() == [b"\xff\x00"]
    assert outputs["b"].dtype.name == "bfloat16"


def test_run_time_errors(tf_model):
    session = open_model(tf_model / "saved_model", signature="lookup")
    with pytest.raises(UsageError, match="index input is out of range"):
        session.run({"ids": np.array([9])})
    session = open_model(tf_model / "saved_model")
    with pytest.raises(ConversionError, match="Incompatible shapes") as caught:
        session.run({"x": np.ones((2, 4)), "y": np.ones((3, 1))})
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("file", "length"),
    [
        ("saved_model.pb", 0),
        ("saved_model.pb", 500),
        ("variables/variables.index", 20),
        ("variables/variables.data-00000-of-00001", 20),
    ],
)
def test_damaged(copy, file, length):
    with open(copy / file, "r+b") as opened:
        opened.truncate(length)
    with pytest.raises(InputError, match="damaged") as caught:
        open_model(copy)
    assert "\n" not in caught.value.message


def test_missing(copy, tmp_path):
    (copy / "saved_model.pb").unlink()
    for path in (copy, tmp_path / "none", copy / "variables" / "variables.index"):
        with pytest.raises(InputError):
            open_model(path)


def test_a_lacking_op_is_named(copy):
    graph = copy / "saved_model.pb"
    graph.write_bytes(graph.read_bytes().replace(b"Softmax", b"SoftmaZ"))
    with pytest.raises(ConversionError, match="has no op SoftmaZ"):
        open_model(copy)
