"""Bad input: one line on stderr, the documented exit code, nothing left behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.tf

_MAKE = """
import sys, os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
out = sys.argv[1]
keras.utils.set_random_seed(0)
def small(**kw):
    i = keras.Input((4,), name="x")
    h = keras.layers.Dense(8, activation="relu", dtype="mixed_float16")(i)
    return keras.Model(i, keras.layers.Dense(3, name="y", dtype="mixed_float16")(h), **kw)
m = small()
m.save(f"{out}/m.keras"); m.save(f"{out}/m.h5"); m.export(f"{out}/sm", verbose=False)
m.save_weights(f"{out}/w.weights.h5")
i = keras.Input((4,))
mark = keras.layers.Lambda(lambda t: (open(f"{out}/marker", "w"), t)[1])
keras.Model(i, mark(i)).save(f"{out}/l.keras")
"""

_MAKE_KERAS2 = """
import sys, os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tf_keras, tensorflow as tf
out = sys.argv[1]
def opened(t):
    open(out + "/marker", "w").close()
    return t
i = tf_keras.Input((4,))
tf_keras.Model(i, tf_keras.layers.Lambda(opened)(i)).save(f"{out}/l2.h5")
os.path.exists(out + "/marker") and os.remove(out + "/marker")
class Two(tf.Module):
    def __init__(self):
        self.v = tf.Variable(2.0)
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float16, "a")])
    def double(self, a):
        return {"d": tf.cast(a, tf.float32) * self.v}
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float16, "a")])
    def triple(self, a):
        return {"t": a * 3}
t = Two()
tf.saved_model.save(t, f"{out}/two", signatures={"double": t.double, "triple": t.triple})
tf.saved_model.save(t, f"{out}/none")
"""

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def run_cli(*args: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mpexport.cli", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models")
    for script in (_MAKE, _MAKE_KERAS2):
        subprocess.run([sys.executable, "-c", script, out], check=True, capture_output=True)
    assert not (out / "marker").exists()
    return out


def refused(code: int, says: str, *args: object, left: Path | None = None, hint: str = "") -> str:
    """Runs the command and checks code, one-line message, and that nothing is left in a folder."""
    before = sorted(p.name for p in left.iterdir()) if left else []
    done = run_cli(*args)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    errors = [line for line in lines if line.startswith("mpexport: error:")]
    assert len(errors) == 1, done.stderr
    assert says in errors[0]
    assert "Traceback" not in done.stderr
    assert hint in done.stderr
    if left:
        assert sorted(p.name for p in left.iterdir()) == before
    return done.stderr


def cut(source: Path, target: Path, share: float = 0.5) -> Path:
    data = source.read_bytes()
    target.write_bytes(data[: int(len(data) * share)])
    return target


def test_missing_path(tmp_path: Path) -> None:
    refused(3, "no such file", "tflite", tmp_path / "nowhere", left=tmp_path)


@pytest.mark.parametrize("name", ["x.keras", "x.h5", "x"])
def test_empty_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    refused(3, "empty", "tflite", tmp_path / name, left=tmp_path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_truncated_keras(models: Path, tmp_path: Path, share: float) -> None:
    cut(models / "m.keras", tmp_path / "m.keras", share)
    refused(3, "damaged", "tflite", tmp_path / "m.keras", left=tmp_path)


@pytest.mark.parametrize("share", [0.1, 0.6])
def test_truncated_h5(models: Path, tmp_path: Path, share: float) -> None:
    cut(models / "m.h5", tmp_path / "m.h5", share)
    refused(3, "damaged", "onnx", tmp_path / "m.h5", left=tmp_path)


@pytest.mark.parametrize(
    "file", ["saved_model.pb", "variables/variables.data-00000-of-00001"], ids=["graph", "shard"]
)
def test_truncated_saved_model(models: Path, tmp_path: Path, file: str) -> None:
    shutil.copytree(models / "sm", tmp_path / "sm")
    cut(models / "sm" / file, tmp_path / "sm" / file)
    refused(3, "damaged", "tflite", tmp_path / "sm", left=tmp_path)


def test_missing_variables_index(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "sm", tmp_path / "sm")
    (tmp_path / "sm" / "variables" / "variables.index").unlink()
    refused(3, "is missing", "tflite", tmp_path / "sm", left=tmp_path)


def test_directory_named_like_a_keras_file(tmp_path: Path) -> None:
    (tmp_path / "x.keras").mkdir()
    refused(3, "no SavedModel", "tflite", tmp_path / "x.keras", left=tmp_path)


def test_weights_only(models: Path, tmp_path: Path) -> None:
    refused(
        3, "weights only", "tflite", models / "w.weights.h5", "-o", tmp_path / "o", left=tmp_path
    )


def test_recognized_by_content_not_by_name(models: Path, tmp_path: Path) -> None:
    shutil.copy(models / "m.keras", tmp_path / "m.h5")
    done = run_cli("tflite", tmp_path / "m.h5")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "m.tflite").exists()


def test_unknown_signature(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.tflite"
    args = ("tflite", models / "sm", "-o", out, "--signature", "serving_defalt")
    refused(2, "no signature", *args, left=tmp_path, hint="serving_default")


def test_ambiguous_signature(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.tflite"
    refused(
        2, "double, triple", "tflite", models / "two", "-o", out, left=tmp_path, hint="--signature"
    )


def test_endpoints_of_a_model_without_signatures(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.onnx"
    refused(2, "double, triple", "onnx", models / "none", "-o", out, left=tmp_path)
    done = run_cli("onnx", models / "none", "-o", out, "--signature", "double")
    assert done.returncode == 0, done.stderr


def test_output_is_the_input(models: Path) -> None:
    refused(2, "the input", "savedmodel", models / "sm", "-o", models / "sm", left=models)
    refused(2, "the input", "tflite", models / "m.keras", "-o", models / "m.keras", left=models)


@pytest.mark.parametrize("file", ["l.keras", "l2.h5"])
def test_lambda_is_refused_before_anything_runs(models: Path, tmp_path: Path, file: str) -> None:
    refused(4, "Lambda", "tflite", models / file, "-o", tmp_path / "o", left=tmp_path)
    assert not (models / "marker").exists()


def test_unwritable_output_folder(models: Path) -> None:
    # The owner of the tests may be root, whom permissions do not stop; nobody can write here.
    refused(6, "cannot be written", "tflite", models / "sm", "-o", "/proc/o.tflite")


def test_missing_output_folder(models: Path, tmp_path: Path) -> None:
    refused(6, "no such folder", "tflite", models / "sm", "-o", tmp_path / "a" / "o.tflite")


def test_folder_that_is_not_ours(models: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("three years")
    for command in ("savedmodel", "export"):
        refused(6, "not made by mpexport", command, models / "sm", "-o", tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "three years"
    done = run_cli("savedmodel", models / "sm", "-o", tmp_path / "mine", "--overwrite")
    assert done.returncode == 0, done.stderr
    again = run_cli("savedmodel", models / "m.keras", "-o", tmp_path / "mine")
    assert again.returncode == 0, again.stderr


def test_failed_run_keeps_the_old_output(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.tflite"
    out.write_bytes(b"the last good one")
    cut(models / "m.keras", tmp_path / "m.keras")
    refused(3, "damaged", "tflite", tmp_path / "m.keras", "-o", out, left=tmp_path)
    assert out.read_bytes() == b"the last good one"


def test_deep_json_is_no_recursion_error(models: Path, tmp_path: Path) -> None:
    with (
        zipfile.ZipFile(models / "m.keras") as good,
        zipfile.ZipFile(tmp_path / "deep.keras", "w") as bad,
    ):
        for name in good.namelist():
            content = good.read(name)
            bad.writestr(name, b"[" * 100_000 if name == "config.json" else content)
    refused(3, "damaged", "tflite", tmp_path / "deep.keras", left=tmp_path)


def test_json_error_is_one_document(models: Path, tmp_path: Path) -> None:
    done = run_cli("tflite", models / "two", "-o", tmp_path / "o.tflite", "--json")
    assert done.returncode == 2
    answer = json.loads(done.stdout)
    assert answer["status"] == "error"
    assert answer["error"]["code"] == "usage"
    assert "double, triple" in answer["error"]["message"]


def test_file_name_with_space_and_umlaut(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "sm", tmp_path / "mein schönes 'Modell'")
    done = run_cli("onnx", tmp_path / "mein schönes 'Modell'")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "mein schönes 'Modell'.onnx").exists()
