"""Tests of the demo: the table of one real run, reuse of the model, and exit codes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import mpexport
from mpexport.errors import VerificationError
from sample_models import demo
from sample_models.errors import WorkerError


@pytest.fixture
def folder(tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the demo that holds a model of a shorter training already."""
    shutil.copytree(trained, tmp_path / "demo" / "model")
    stored = json.loads((trained / "training.json").read_text())
    monkeypatch.setattr(demo, "JOB", {name: stored[name] for name in demo.JOB})
    return tmp_path / "demo"


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise WorkerError("fit_worker was ended by SIGKILL")

    monkeypatch.setattr(demo, "train", fail)


@pytest.mark.tf
@pytest.mark.ort
@pytest.mark.litert
def test_one_run(folder: Path, no_training: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["-o", str(folder)]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    *table, last = output.out.splitlines()
    assert max(map(len, table)) <= 80
    rows = [line.split() for line in table if re.match(r" *(savedmodel|tflite\S*|onnx) ", line)]
    assert [row[0] for row in rows] == ["savedmodel", "tflite", "tflite-float16", "onnx"]
    accuracy = json.loads((folder / "model" / "training.json").read_text())["test_accuracy"]
    assert last == (
        f"The trained model tells {accuracy:.1%} of them right. "
        f"Files and manifest: {folder / 'release'}"
    )
    manifest = json.loads((folder / "release" / "manifest.json").read_text())
    for row, entry in zip(rows, manifest["artifacts"], strict=True):
        name, size, unit, error, own_error, agreement, latency, ms = row
        (outputs,) = (parity["outputs"].values() for parity in entry["parity"][:1])
        (found,) = outputs
        assert name == entry["format"]
        assert (f"{entry['size_bytes'] / 2**20:.2f}", "MiB") == (size, unit)
        assert error == f"{found['max_abs']:.1e}"
        assert own_error == f"{found['noise_floor']:.1e}"
        assert float(error) < float(own_error)
        assert agreement == "360/360"
        assert (float(latency) > 0, ms) == (True, "ms")


def test_failed_training_and_parity_give_their_codes(
    folder: Path,
    no_training: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise VerificationError("onnx: the written file computes something else", hint="report it")

    monkeypatch.setattr(mpexport, "export", fail, raising=False)
    assert demo.main(["-o", str(folder)]) == 7
    assert capsys.readouterr() == (
        "",
        "error: onnx: the written file computes something else\nhint: report it\n",
    )
    assert demo.main(["-o", str(folder), "--fresh"]) == 10
    assert capsys.readouterr() == ("", "error: fit_worker was ended by SIGKILL\n")


@pytest.mark.parametrize("change", ["epochs", "versions", "nothing left", "not JSON", "a number"])
def test_model_that_does_not_fit_is_trained_again(
    folder: Path, no_training: None, change: str
) -> None:
    path = folder / "model" / "training.json"
    stored = json.loads(path.read_text())
    assert demo._trained_already(folder / "model") == stored["test_accuracy"]
    if change == "epochs":
        path.write_text(json.dumps({**stored, "epochs": 5}))
    elif change == "versions":
        path.write_text(json.dumps({**stored, "versions": {"keras": "3.0.0"}}))
    elif change == "nothing left":
        shutil.rmtree(folder / "model" / "cnn_savedmodel")
    else:
        path.write_text("{" if change == "not JSON" else "1")
    assert demo.main(["-o", str(folder)]) == 10
