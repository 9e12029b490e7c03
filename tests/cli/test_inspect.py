"""The command ``inspect`` and the options of exports that name a runtime, with real files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

pytestmark = [pytest.mark.tf, pytest.mark.litert, pytest.mark.ort]


@pytest.fixture(scope="module")
def release(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from mpexport import api

    path = tmp_path_factory.mktemp("inspect") / "release"
    api.export(trained / "cnn.keras", path, ("tflite", "tflite-float16", "onnx"))
    return path


def reports(cli: Callable[..., Any], *files: Path) -> list[dict[str, Any]]:
    ended = cli("inspect", *map(str, files), "--json")
    assert ended.code == 0, ended.err
    found: list[dict[str, Any]] = json.loads(ended.out)["result"]["reports"]
    return found


def test_what_files_hold(cli: Callable[..., Any], release: Path) -> None:
    manifest = json.loads((release / "manifest.json").read_text())
    paths = [release / a["files"][0]["path"] for a in manifest["artifacts"]]
    for artifact, report in zip(manifest["artifacts"], reports(cli, *paths), strict=True):
        assert report["sha256"] == artifact["files"][0]["sha256"]
        assert report["size_bytes"] == artifact["files"][0]["size_bytes"]
        assert report["precision"] == artifact["precision"]
        assert sum(op["count"] for op in report["ops"]) == sum(artifact["ops"].values())
        (promised,), (found,) = artifact["signatures"], report["signatures"]
        for side in ("inputs", "outputs"):
            assert [(s["name"], s["dtype"]) for s in found[side]] == [
                (s["name"], s["dtype"]) for s in promised[side]
            ]
    float32, float16, graph = reports(cli, *paths)
    version = manifest["artifacts"][0]["facts"]["min_runtime_version"]
    # TensorFlow's own word for the same.
    assert float32["requirements"]["min_runtime_version"] == version
    assert float32["metadata"]["min_runtime_version"] == version
    stored, widened = float16["weight_bytes"]["float16"], float32["weight_bytes"]["float32"]
    assert stored * 2 + float16["weight_bytes"].get("float32", 0) == widened
    assert float16["reduced_precision"] == "fp16accfp32"
    model = onnx.load(str(paths[2]))
    assert graph["requirements"]["opset"] == {o.domain: o.version for o in model.opset_import}
    assert graph["requirements"]["ir_version"] == model.ir_version
    raw = sum(len(t.raw_data) for t in model.graph.initializer)
    assert sum(graph["weight_bytes"].values()) == raw


def test_text_and_errors(cli: Callable[..., Any], release: Path, tmp_path: Path) -> None:
    ended = cli("inspect", str(next(release.glob("*float16.tflite"))))
    assert ended.code == 0
    assert "reduced precision" in ended.out
    assert "DEQUANTIZE" in ended.out
    for content in (b"", b"text", next(release.glob("*.tflite")).read_bytes()[:200]):
        (tmp_path / "cut").write_bytes(content)
        assert cli("inspect", str(tmp_path / "cut")).code == 3
    assert cli("inspect", str(tmp_path / "none")).code == 3


def test_a_runtime_that_is_too_old_is_refused(
    cli: Callable[..., Any], trained: Path, tmp_path: Path
) -> None:
    out = tmp_path / "m.tflite"
    ended = cli(
        "tflite", str(trained / "cnn.keras"), "-o", str(out), "--float16", "--min-runtime", "1.14"
    )
    assert ended.code == 5
    assert "TFLite 1.14 does not run DEQUANTIZE version 3 (" in ended.err
    assert "needs 1.15.0" in ended.err
    assert list(tmp_path.iterdir()) == []
    words = ("--min-runtime", "2.14", "--float16-accumulation")
    assert cli("tflite", str(trained / "cnn.keras"), "-o", str(out), "--float16", *words).code == 0
    assert reports(cli, out)[0]["reduced_precision"] == "fp16accfp16"
    first = hashlib.sha256(out.read_bytes()).hexdigest()
    assert cli("tflite", str(trained / "cnn.keras"), "-o", str(out), "--float16", *words).code == 0
    assert hashlib.sha256(out.read_bytes()).hexdigest() == first
    assert cli("tflite", str(trained / "cnn.keras"), "--min-runtime", "new").code == 2
    assert cli("tflite", str(trained / "cnn.keras"), "--float16-accumulation").code == 2


def test_a_variant_has_a_name_of_its_own() -> None:
    from mpexport import exporting, formats

    spec = formats.get("tflite")
    names = [
        exporting.default_output("/a/m.keras", spec, spec.options(weights=weights)).name
        for weights in ("float32", "float16")
    ]
    assert names == ["m.tflite", "m_float16.tflite"]


@pytest.mark.parametrize("words", [("tflite", "--float16"), ("onnx", "--weights", "float16")])
def test_a_clamped_file_is_proved_against_the_clamped_model(
    words: tuple[str, ...], cli: Callable[..., Any], tmp_path: Path
) -> None:
    import keras

    layer = keras.layers.Dense(3, dtype="mixed_bfloat16", name="d")
    model = keras.Sequential([keras.Input((6,), name="x"), layer])
    kernel, bias = layer.get_weights()
    kernel[2, 1] = 1e6
    layer.set_weights([kernel, bias])
    model.save(tmp_path / "m.keras")
    command = (words[0], str(tmp_path / "m.keras"), *words[1:], "--json")
    refused = cli(*command)
    assert refused.code == 5
    assert "kernel:0 (1 above 65504, worst 1e+06 at [2, 1])" in refused.out
    ended = cli(*command, "--allow-clamp")
    assert ended.code == 0, ended.out
    assert "weights were clamped to ±65504" in " ".join(
        w["message"] for w in json.loads(ended.out)["warnings"]
    )
