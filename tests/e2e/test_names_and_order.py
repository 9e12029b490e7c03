"""Inputs and outputs go by name in every format; what is swapped behind a name is caught.

Two inputs and three outputs of one shape, named in no alphabetical order, and as many functions of
the inputs: a position that stands for a name shows in the numbers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mpexport
from mpexport.errors import VerificationError

pytestmark = [pytest.mark.tf, pytest.mark.ort, pytest.mark.litert]

FORMATS = ("savedmodel", "tflite", "tflite-float16", "onnx")
_BUILD = """
import os, sys
os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0")
kind, path = sys.argv[1:]
if kind == "module":
    import tensorflow as tf
    def call(zulu, alpha):
        a, z = tf.cast(alpha, tf.float16), tf.cast(zulu, tf.float16)
        return {"second": a - 2 * z, "first": 3 * a + z, "third": a * z}
    spec = [tf.TensorSpec([None, 4], name=n) for n in ("zulu", "alpha")]
    module = tf.Module()
    module.call = tf.function(call, input_signature=spec)
    tf.saved_model.save(module, path, signatures=module.call)
else:
    if kind == "keras":
        import keras
    else:
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
        import tf_keras as keras
    keras.mixed_precision.set_global_policy("mixed_float16")
    zulu, alpha = (keras.Input((4,), name=n) for n in ("zulu", "alpha"))
    def linear(name, a, z):
        dense = keras.layers.Dense(4, use_bias=False, name=name)
        y = dense(keras.layers.Concatenate()([alpha, zulu]))
        import numpy as np
        dense.set_weights([np.concatenate([a * np.eye(4), z * np.eye(4)]).astype("float32")])
        return y
    product = keras.layers.Multiply(name="third")([alpha, zulu])
    outputs = {"second": linear("second", 1, -2), "first": linear("first", 3, 1), "third": product}
    keras.Model({"zulu": zulu, "alpha": alpha}, outputs).save(path)
"""
_RUN = """
import sys
import numpy as np
path, inputs, output = sys.argv[1:]
given = dict(np.load(inputs))
if path.endswith(".tflite"):
    from ai_edge_litert.interpreter import Interpreter
    found = Interpreter(model_path=path).get_signature_runner()(**given)
elif path.endswith(".onnx"):
    import onnxruntime
    session = onnxruntime.InferenceSession(path)
    names = [o.name for o in session.get_outputs()]
    found = dict(zip(names, session.run(names, given)))
else:
    import tensorflow as tf
    loaded = tf.saved_model.load(path)
    found = loaded.signatures["serving_default"](**{k: tf.constant(v) for k, v in given.items()})
np.savez(output, **{k: np.asarray(v) for k, v in found.items()})
"""


def _child(code: str, *args: object) -> None:
    quiet = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    ended = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], env=quiet, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr[-2000:]


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """Numbers that float16 holds, and whose products it holds too."""
    path = tmp_path_factory.mktemp("inputs") / "inputs.npz"
    rng = np.random.default_rng(0)
    np.savez(path, **{n: rng.integers(-9, 9, (3, 4)).astype(np.float32) for n in ("alpha", "zulu")})
    return path


def _expected(given):
    a, z = (np.load(given)[n] for n in ("alpha", "zulu"))
    return {"second": a - 2 * z, "first": 3 * a + z, "third": a * z}


@pytest.fixture(scope="module")
def release(tmp_path_factory, given):
    """Source kind → its export, each made when first asked for."""
    folder, made = tmp_path_factory.mktemp("release"), {}

    def of(kind: str) -> tuple[Path, dict[str, Path]]:
        if kind not in made:
            suffix = {"keras": ".keras", "tf_keras": ".h5"}.get(kind, "")
            source = folder / f"{kind}{suffix}"
            _child(_BUILD, kind, source)
            result = mpexport.export(source, folder / f"{kind}-release", FORMATS)
            made[kind] = source, {f.artifact.format: Path(f.artifact.path) for f in result.files}
        return made[kind]

    return of


@pytest.mark.parametrize("kind", ["module", "keras", "tf_keras"])
def test_every_format_gives_each_output_by_its_name(kind, release, given, tmp_path):
    _, files = release(kind)
    expected = _expected(given)
    assert list(files) == list(FORMATS)
    for name, path in files.items():
        _child(_RUN, path, given, tmp_path / f"{name}.npz")
        with np.load(tmp_path / f"{name}.npz") as found:
            assert set(found) == set(expected), name
            for output, values in expected.items():
                np.testing.assert_array_equal(found[output], values, f"{name}: {output}")


def _swap_onnx(path: Path, to: Path, part: str, one: str, other: str) -> None:
    import onnx

    model = onnx.load(path)
    swap = {one: other, other: one}
    for value in getattr(model.graph, part):
        value.name = swap.get(value.name, value.name)
    for node in model.graph.node:
        refs = node.output if part == "output" else node.input
        refs[:] = [swap.get(r, r) for r in refs]
        if part == "output":  # what is given may be read too
            node.input[:] = [swap.get(r, r) for r in node.input]
    onnx.save(model, to)


def _swap_tflite(path: Path, to: Path, part: str, one: str, other: str) -> None:
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))
    entries = {e.name.decode(): e for e in getattr(model.signatureDefs[0], part + "s")}
    a, b = entries[one], entries[other]
    a.name, b.name = b.name, a.name
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    to.write_bytes(bytes(builder.Output()))


@pytest.mark.parametrize(
    ("format", "swap"), [("onnx", _swap_onnx), ("tflite", _swap_tflite)], ids=["onnx", "tflite"]
)
@pytest.mark.parametrize(
    ("part", "one", "other"), [("output", "first", "second"), ("input", "alpha", "zulu")]
)
def test_swapped_names_fail_parity(format, swap, part, one, other, release, given, tmp_path):
    source, files = release("module")
    swapped = tmp_path / files[format].name
    swap(files[format], swapped, part, one, other)
    good, bad = mpexport.compare(source, [files[format], swapped])
    assert good
    assert not bad
    wrong = {r.output for r in bad.rows if r.verdict != "PASS"}
    assert wrong == ({one, other} if part == "output" else {"first", "second"})


def test_the_command_line_says_so_with_code_7(release, given, tmp_path):
    source, files = release("module")
    swapped = tmp_path / "swapped.onnx"
    _swap_onnx(files["onnx"], swapped, "output", "first", "second")
    command = [sys.executable, "-m", "mpexport.cli", "parity", source, swapped, "--json"]
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert ended.returncode == VerificationError.exit_code == 7, ended.stderr[-2000:]
    assert json.loads(ended.stdout)["result"]["verdict"] == "FAIL"
