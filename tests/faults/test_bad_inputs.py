"""Bad input: one line on stderr, the documented exit code, nothing left behind."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.faults.support import refused, run_cli

pytestmark = pytest.mark.tf


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
