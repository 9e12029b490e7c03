"""float16 ONNX files through the command line, of a model of some ten thousand weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

CLI = [sys.executable, "-m", "mpexport.cli"]
NEEDED = ("tensorflow", "keras", "tf2onnx", "onnx", "onnxruntime")
pytestmark = [
    pytest.mark.tf,
    pytest.mark.skipif(not all(map(find_spec, NEEDED)), reason="needs mpexport[tensorflow,onnx]"),
]

# `wide` overflows float16 and `back` brings it into range again: the large scale is the model's.
MAKE = """
import sys
import keras
layers = keras.layers
keras.utils.set_random_seed(0)
keras.mixed_precision.set_global_policy(sys.argv[2])
ids = layers.Input((6,), dtype="int32", name="ids")
x = layers.Embedding(64, 64, mask_zero=True)(ids)
x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 32)(x, x, use_causal_mask=True))
precise = layers.Dense(64, "gelu", dtype="float32", name="precise")(x)
out = layers.Dense(4, name="head")(layers.GRU(16)(precise))
keras.Model(ids, out).save(sys.argv[1] + "/tokens.keras")
features = layers.Input((8,), name="features")
large = keras.initializers.RandomUniform(2e4, 4e4)
x = layers.Dense(64, kernel_initializer=large, name="wide")(features)
out = layers.Dense(4, kernel_initializer=keras.initializers.RandomNormal(0, 1e-3), name="back")(x)
keras.Model(features, out).save(sys.argv[1] + "/large.keras")
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    subprocess.run(
        [sys.executable, "-c", MAKE, str(folder), "mixed_bfloat16"],
        check=True,
        capture_output=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
    )
    return folder


def call(*arguments: Any) -> tuple[int, dict[str, Any]]:
    ended = subprocess.run([*CLI, *map(str, arguments), "--json"], capture_output=True, text=True)
    return ended.returncode, json.loads(ended.stdout)


def test_float16_weights_in_a_release(models, tmp_path):
    folder = tmp_path / "release"
    code, said = call(
        "export", models / "tokens.keras", "-o", folder, "--formats=onnx,onnx-float16"
    )
    assert (code, said["status"]) == (0, "ok"), said
    plain, half = json.loads((folder / "manifest.json").read_text())["artifacts"]
    assert (plain["precision"], half["precision"]) == ("float32", "float16-weights")
    assert half["format"] == "onnx-float16"
    assert (folder / "tokens_float16.onnx").is_file()
    stored = sum(c["kind"] == "weight-stored-float16" for c in _changes(said, 1))
    weights = 4 * (64 * 64 * 6 + 3 * 16 * (64 + 16))  # bytes of the matrices in float32
    assert stored >= 9
    saved = plain["size_bytes"] - half["size_bytes"]
    assert 0.9 * weights / 2 < saved < 1.1 * weights / 2
    code, said = call("parity", models / "tokens.keras", folder / "tokens_float16.onnx")
    assert code == 0
    environment = said["result"]["reports"][0]["environment"]
    assert (environment["weights"], environment["compute"]) == ("float16", "float32")


def _changes(said: dict[str, Any], file: int) -> list[dict[str, Any]]:
    return said["result"]["files"][file]["conversion"]["changes"]


def test_float16_computation_of_a_bfloat16_model(models, tmp_path):
    path = tmp_path / "half.onnx"
    options = ("--precision", "float16", "--keep-float32", "op:Gather,layer:head")
    code, said = call("onnx", models / "tokens.keras", "-o", path, *options)
    assert (code, said["status"]) == (0, "ok"), said
    (file,) = said["result"]["files"]
    assert file["conversion"]["precision"] == "float16"
    half = {
        c["where"]: c["detail"] for c in _changes(said, 0) if c["kind"] == "computed-in-float16"
    }
    kept = {c["where"]: c["detail"] for c in _changes(said, 0) if c["kind"] == "kept-in-float32"}
    assert file["contract"]["facts"]["float16_nodes"] == len(half)
    assert any("while" in where for where in half)  # the body of the GRU
    assert not any("/head" in where or "/precise" in where for where in half)
    reasons = {detail for where, detail in kept.items() if "/precise" in where}
    assert "MatMul: float32 in the trained model" in reasons
    assert "MatMul: kept by the user" in {d for where, d in kept.items() if "/head" in where}
    assert "Softmax: float32 in the trained model" in kept.values()
    (output,) = file["parity"][0]["outputs"]
    assert output["verdict"] == "PASS"
    assert output["rounding_floor"] > 0


def test_an_overflow_leaves_no_file(models, tmp_path):
    path = tmp_path / "large.onnx"
    code, said = call("onnx", models / "large.keras", "-o", path, "--precision=float16")
    assert code == 7, said
    assert "overflows float16" in said["error"]["message"]
    assert "--keep-float32 layer:" in said["error"]["hint"]
    assert list(tmp_path.iterdir()) == []
    keep = ("--keep-float32", "layer:wide", "--keep-float32", "layer:back")
    code, said = call("onnx", models / "large.keras", "-o", path, "--precision=float16", *keep)
    assert code == 0, said
    code, _ = call("onnx", models / "large.keras", "-o", path, "--keep-float32=layer:wide")
    assert code == 2
