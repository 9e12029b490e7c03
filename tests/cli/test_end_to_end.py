"""The real thing, on a model of a few hundred weights. This process never imports TensorFlow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import numpy as np
import psutil
import pytest

from mpexport.render import envelope, parity_document

CLI = [sys.executable, "-m", "mpexport.cli"]
NEEDED = ("tensorflow", "keras", "tf2onnx", "onnx", "onnxruntime", "ai_edge_litert")
pytestmark = [
    pytest.mark.tf,
    pytest.mark.skipif(not all(map(find_spec, NEEDED)), reason="needs mpexport[all]"),
]

MAKE_MODEL = """
import sys
import keras
keras.utils.set_random_seed(0)
keras.mixed_precision.set_global_policy("mixed_float16")
model = keras.Sequential([
    keras.layers.Input((8,), name="features"),
    keras.layers.Dense(16, "relu"),
    keras.layers.Dense(4, "softmax", dtype="float32", name="classes"),
])
model.save(sys.argv[1])
"""


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.keras"
    subprocess.run(
        [sys.executable, "-c", MAKE_MODEL, str(path)],
        check=True,
        capture_output=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
    )
    return path


@pytest.fixture(scope="session")
def release(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A release folder, and what was printed when it was made."""
    folder = tmp_path_factory.mktemp("release") / "out"
    ended = subprocess.run(
        [*CLI, "export", str(model), "-o", str(folder)], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return folder, ended.stdout


def test_export(release: tuple[Path, str]) -> None:
    folder, printed = release
    manifest = json.loads((folder / "manifest.json").read_text())
    formats = [a["format"] for a in manifest["artifacts"]]
    assert formats == ["savedmodel", "tflite", "tflite-float16", "onnx"]
    lines = printed.splitlines()
    assert [line.split()[0] for line in lines[2:6]] == formats
    assert all("PASS" in line for line in lines[2:6])
    assert "\x1b" not in printed


def test_check(model: Path, process: Callable[..., Any]) -> None:
    ended = process("check", model)
    assert (ended.code, ended.err) == (0, "")
    assert "mixed_float16  float16      float32" in ended.out


def test_reports(
    model: Path, release: tuple[Path, str], process: Callable[..., Any], tmp_path: Path
) -> None:
    """Three runs of a real model: everything that reports need is in the document."""
    folder, _ = release
    names = ("junit", "markdown", "html")
    flags = [word for name in names for word in (f"--{name}", tmp_path / name)]
    files = [folder / name for name in ("tiny.tflite", "tiny_float16.tflite", "tiny.onnx")]
    ended = process("parity", model, *files, "--json", "--github", *flags)
    assert ended.code == 0
    assert ended.err == "::notice title=mpexport parity::PASS: 3 of 3 files passed\n"
    document = json.loads(ended.out)
    jsonschema.validate(document, parity_document.schema())
    rows = [row for report in document["result"]["reports"] for row in report["outputs"]]
    assert len(rows) == 3
    for row in rows:
        for part in ("errors", "noise_errors"):
            seen = row[part]["zeros"] + sum(count for _, count in row[part]["counts"])
            assert seen == row["count"]
    suites = ElementTree.parse(tmp_path / "junit").getroot()
    assert [suites.get(k) for k in ("tests", "failures", "errors")] == ["3", "0", "0"]
    page = (tmp_path / "html").read_text(encoding="utf-8")
    assert page.count('class="bar trained"') > 3
    assert "times closer than the trained model" in page
    # The same files from the document alone, where nothing else is.
    stored, again = tmp_path / "parity.json", tmp_path / "again"
    stored.write_text(ended.out, encoding="utf-8")
    again.mkdir()
    flags = [word for name in names for word in (f"--{name}", again / name)]
    assert process("report", stored, *flags).code == 0
    for name in names:
        assert (again / name).read_bytes() == (tmp_path / name).read_bytes()


def test_tflite(model: Path, process: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "half.tflite"
    ended = process("tflite", model, "-o", file, "--float16", "--json", "-v")
    document = json.loads(ended.out)
    assert ended.code == 0
    assert document["result"]["path"] == str(file)
    assert document["result"]["files"][0]["conversion"]["precision"] == "float16-weights"
    assert document["result"]["files"][0]["parity"][0]["verdict"] == "PASS"
    assert "converting to tflite" in ended.err
    assert [p.name for p in tmp_path.iterdir()] == ["half.tflite"]
    jsonschema.validate(document, envelope.schema())


def test_parity_and_bench(release: tuple[Path, str], process: Callable[..., Any]) -> None:
    folder, _ = release
    files = (folder / "tiny.tflite", folder / "tiny.onnx")
    ended = process("parity", *files)
    assert ended.code == 0
    assert ended.out.endswith("PASS: 1 of 1 file passed\n")
    ended = process("parity", *files, "--rtol", "0", "--atol", "0")
    assert ended.code == 7
    assert ended.err.startswith(f"mpexport: error: {files[1]}: FAIL: output ")
    ended = process("bench", *files, "--num-runs", "5", "--min-secs", "0", "--json")
    assert ended.code == 0
    reports = json.loads(ended.out)["result"]["reports"]
    assert [r["format"] for r in reports] == ["tflite", "onnx"]
    assert all(r["summary"]["count"] >= 5 for r in reports)


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Inputs and labels."""
    folder = tmp_path_factory.mktemp("samples")
    rng = np.random.default_rng(0)
    np.savez(folder / "x.npz", features=rng.standard_normal((50, 8)).astype(np.float32))
    np.save(folder / "y.npy", rng.integers(0, 4, 50))
    return folder / "x.npz", folder / "y.npy"


def test_shards_give_the_bytes_of_one_run(
    model: Path,
    release: tuple[Path, str],
    samples: tuple[Path, Path],
    process: Callable[..., Any],
    tmp_path: Path,
) -> None:
    x, y = samples
    asked = ("parity", model, release[0] / "tiny.tflite", release[0] / "tiny.onnx",
             "--inputs", x, "--labels", y, "--batch", 7, "--json")  # fmt: skip
    whole = process(*asked)
    assert whole.code == 0
    parts = []
    for part in ("2/3", "3/3", "1/3"):
        ended = process(*asked, "--shard", part)
        assert ended.code == 0
        document = json.loads(ended.out)
        assert document["result"]["verdict"] == "SKIPPED"
        jsonschema.validate(document, envelope.schema())
        parts.append(tmp_path / f"{part[0]}.json")
        parts[-1].write_text(ended.out)
    assert process("parity", "merge", *parts, "--json").out == whole.out

    lacking = process("parity", "merge", *parts[1:])
    assert (lacking.code, lacking.out) == (9, "")
    assert "of 3 shards, missing: 2" in lacking.err
    twice = process("parity", "merge", *parts, parts[0])
    assert twice.code == 2
    assert "shard 2/3 is given twice" in twice.err
    other = tmp_path / "other.json"
    other.write_text(process(*asked, "--shard", "1/3", "--rtol", "1e-3").out)
    mixed = process("parity", "merge", other, *parts[:2])
    assert mixed.code == 2
    assert "different gates" in mixed.err
    no_part = tmp_path / "whole.json"
    no_part.write_text(whole.out)
    assert process("parity", "merge", no_part).code == 3


MAKE_FRAGILE = """
import sys
import keras
keras.utils.set_random_seed(0)
keras.mixed_precision.set_global_policy("mixed_float16")
x = keras.Input((8,), name="x")
y = keras.layers.Dense(4)(x / keras.ops.sum(x, axis=-1, keepdims=True))
keras.Model(x, keras.layers.Activation("linear", dtype="float32")(y)).save(sys.argv[1])
"""


def test_shards_tell_what_is_left_out_as_one_run_does(
    process: Callable[..., Any], tmp_path: Path
) -> None:
    fragile, file = tmp_path / "fragile.keras", tmp_path / "fragile.onnx"
    subprocess.run(
        [sys.executable, "-c", MAKE_FRAGILE, str(fragile)], check=True, capture_output=True
    )
    assert process("onnx", fragile, "-o", file).code == 0
    asked = ("parity", fragile, file, "--input-range", "x:0..1", "--json")
    whole = process(*asked)
    assert whole.code == 0
    notes = json.loads(whole.out)["result"]["reports"][0]["notes"]
    assert [note.split(": ")[1] for note in notes] == ["zeros"]
    parts = []
    for part in ("1", "2", "3"):
        parts.append(tmp_path / f"{part}.json")
        parts[-1].write_text(process(*asked, "--shard", f"{part}/3").out)
    assert process("parity", "merge", *parts, "--json").out == whole.out
    many = process(*asked, "--shard", "99/99")
    assert many.code == 2
    assert "shard 99/99 has nothing to run" in many.err


def test_what_the_gate_asks_for_must_be_shown(
    release: tuple[Path, str],
    samples: tuple[Path, Path],
    process: Callable[..., Any],
    tmp_path: Path,
) -> None:
    x, y = samples
    asked = ("parity", release[0] / "tiny.tflite", release[0] / "tiny.onnx", "--inputs", x)
    assert process(*asked, "--labels", y, "--max-accuracy-drop", "50%").code == 0
    few = process(*asked, "--labels", y, "--max-accuracy-drop", "0.2%")
    assert few.code == 9
    assert "INCONCLUSIVE: output_0: accuracy" in few.err
    assert "samples would show it" in few.err
    none = process(*asked, "--max-accuracy-drop", "50%")
    assert none.code == 9
    assert "there are no labels" in none.err
    gate = tmp_path / "mpexport.toml"
    proposed = process(*asked, "--labels", y, "--calibrate")
    assert proposed.code == 0
    gate.write_text(proposed.out)
    assert process(*asked, "--labels", y, "--gate", gate).code == 0
    for text, code, said in (
        ("[budgets.onnx]\nmax_size_mib = 4.0\n", 0, ""),
        ("[budgets.onnx]\nmax_size_mib = 0.0001\n", 7, "MiB is above max_size_mib = 0.0001"),
        ("[samples]\nmin = 50\n", 0, ""),
        ("[samples]\nmin = 51\n", 9, "50 samples, but the gate asks for 51"),
    ):
        gate.write_text(f"version = 1\n{text}")
        ended = process(*asked, "--gate", gate)
        assert (ended.code, said in ended.err) == (code, True)


MAKE_DATASET = """
import sys
import numpy as np
import tensorflow as tf
with np.load(sys.argv[1]) as data:
    x = data["features"]
tf.data.Dataset.from_tensor_slices((x, np.zeros(50))).batch(8).save(sys.argv[2] + "/batches")
tf.data.Dataset.from_tensor_slices({"features": x}).save(sys.argv[2] + "/samples")
"""
SAMPLES_MODULE = """
import numpy as np
def batches():
    with np.load("x.npz") as data:
        yield from np.array_split(data["features"], 7)
def sample(path):
    return np.load(path)
"""


def test_data_in_every_form_gives_the_same_report(
    release: tuple[Path, str],
    samples: tuple[Path, Path],
    process: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subprocess.run(
        [sys.executable, "-c", MAKE_DATASET, str(samples[0]), str(tmp_path)],
        check=True,
        capture_output=True,
    )
    (tmp_path / "samples.py").write_text(SAMPLES_MODULE)
    (tmp_path / "x.npz").write_bytes(samples[0].read_bytes())
    (tmp_path / "npz").mkdir()
    (tmp_path / "npz" / "x.npz").write_bytes(samples[0].read_bytes())
    (tmp_path / "files").mkdir()
    for i, row in enumerate(np.load(samples[0])["features"]):
        np.save(tmp_path / "files" / f"{i:02}.npy", row)
    monkeypatch.chdir(tmp_path)
    files = (release[0] / "tiny.tflite", release[0] / "tiny.onnx")

    def report(*inputs: str) -> Any:
        ended = process("parity", *files, "--json", "--inputs", *inputs)
        assert ended.code == 0, ended.err
        return json.loads(ended.out)["result"]

    expected = report("x.npz")
    assert expected["reports"][0]["num_samples"] == 50
    assert report("npz") == expected
    assert report("batches") == expected
    assert report("samples") == expected
    assert report("samples:batches") == expected
    assert report("files", "--preprocess", "samples:sample") == expected
    assert process("parity", *files, "--inputs", "none.npz").code == 3
    assert process("parity", *files, "--inputs", "none:f").code == 2


@pytest.mark.tflite_runtime
def test_runtimes_side_by_side(
    model: Path, release: tuple[Path, str], process: Callable[..., Any]
) -> None:
    old = Path(__file__).parents[2] / ".venv-tflite-runtime" / "bin" / "python"
    ended = process(
        "parity", model, release[0] / "tiny.tflite", release[0] / "tiny.onnx", "--json",
        "--runtime", "litert", "--runtime", "litert:xnnpack=off",
        "--runtime", f"tflite_runtime:python={old}",
        "--runtime", "onnxruntime:optimization=disable", "--runtime", "onnxruntime",
    )  # fmt: skip
    assert ended.code == 0
    reports = json.loads(ended.out)["result"]["reports"]
    ran = [(r["environment"]["runtime"], Path(r["candidate"].partition(" in ")[0]).suffix)
           for r in reports]  # fmt: skip
    assert (
        ran
        == [("litert", ".tflite")] * 2
        + [("tflite_runtime", ".tflite")]
        + [("onnxruntime", ".onnx")] * 2
    )
    levels = [r["environment"].get("graph_optimization_level") for r in reports]
    assert levels[3:] == ["disable", "all"]
    assert all(r["environment"]["num_threads"] == 1 for r in reports)
    assert all(set(r["run_to_run"]) == {"output_0"} for r in reports)
    assert set(reports[0]["cases"].values()) >= {"normal", "zeros", "one-hot", "batch 16"}


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(model: Path, tmp_path: Path, signum: signal.Signals) -> None:
    output, scratch = tmp_path / "output", tmp_path / "scratch"
    output.mkdir()
    scratch.mkdir()
    child = subprocess.Popen(
        [*CLI, "tflite", str(model), "-o", str(output / "m.tflite"), "-v"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    assert child.stderr is not None
    assert "loading" in child.stderr.readline()
    workers = psutil.Process(child.pid).children(recursive=True)
    assert workers
    assert list(output.iterdir()), "the file is built beside its place"
    child.send_signal(signum)
    out, err = child.communicate(timeout=20)
    assert (child.returncode, out) == (128 + signum, "")
    assert err.endswith("mpexport: interrupted\n")
    assert list(output.iterdir()) == []
    _, alive = psutil.wait_procs(workers, timeout=5)
    assert alive == []
    assert [p.name for p in scratch.iterdir() if not p.name.startswith("mpexport-locks")] == []


def test_errors(model: Path, process: Callable[..., Any], tmp_path: Path) -> None:
    for words, code, part in (
        (("check", tmp_path / "none.keras"), 3, "no such file"),
        (("tflite", model, "-o", tmp_path / "no" / "m.tflite"), 6, "no such folder"),
        (("tflite", model, "-o", tmp_path / "m", "--batch", "0"), 2, "batch 0"),
        (("parity", model, model), 3, "is no exported file"),
    ):
        ended = process(*words)
        assert ended.code == code
        assert part in ended.err
        assert ended.err.startswith("mpexport: error: ")
        assert "Traceback" not in ended.err
    assert list(tmp_path.iterdir()) == []
