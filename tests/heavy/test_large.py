"""2.25 GiB of weights: more than a protobuf or a flatbuffer holds, and memory that counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import _measure
from tests.e2e.kit import CHECKOUT, run_child

pytestmark = [pytest.mark.heavy, pytest.mark.tf]

CHILDREN = Path(__file__).parent / "children.py"
WEIGHTS_BYTES = 9 * (8192 * 8192 + 8192) * 4
# Measured: 1.3 and 1.9 times the weights. Once for the weights, the rest for TensorFlow and slack.
MOST_UNVERIFIED, MOST_VERIFIED = 1.6, 4.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Holds ``large/``; its gigabytes are removed right after the tests."""
    made = tmp_path_factory.mktemp("large")
    run_child(CHILDREN, "large", made)
    yield made
    subprocess.run(["rm", "-rf", str(made)], check=True)


def measured(*args: object) -> _measure.Measured:
    command = [sys.executable, "-m", "mpexport.cli", *map(str, args)]
    result = _measure.run(command, env={**os.environ, "PYTHONPATH": str(CHECKOUT)})
    print(args[0], f"{result.wall_s:.1f} s, {result.peak_bytes / 2**30:.2f} GiB")
    return result


@pytest.mark.parametrize(
    ("options", "most"), [(["--no-verify"], MOST_UNVERIFIED), ([], MOST_VERIFIED)]
)
def test_savedmodel_takes_little_more_than_its_weights(
    options: list[str], most: float, folder: Path, tmp_path: Path
) -> None:
    result = measured("savedmodel", folder / "large", "-o", tmp_path / "o", *options)
    assert result.returncode == 0, result.stderr
    assert result.peak_bytes < most * WEIGHTS_BYTES
    size = sum(p.stat().st_size for p in (tmp_path / "o").rglob("*") if p.is_file())
    assert size < 1.01 * WEIGHTS_BYTES


def test_promotion_does_not_touch_weights(folder: Path) -> None:
    seconds = float(run_child(CHILDREN, "promotion", folder).splitlines()[-1])
    print(f"promotion: {seconds:.2f} s")
    # Copying the weights, even once, takes longer; a busy machine gets some slack.
    assert seconds < 5


def test_onnx_has_external_data_and_is_proved(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "o.onnx"
    result = measured("onnx", folder / "large", "-o", target, "--json")
    assert result.returncode == 0, result.stderr
    (file,) = json.loads(result.stdout)["result"]["files"]
    (report,) = file["parity"]
    assert report["verdict"] == "PASS"
    assert [output["cause"] for output in report["outputs"]] == ["ok"]
    data = target.with_name("o.onnx.data")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["o.onnx", "o.onnx.data"]
    assert target.stat().st_size < 2**20
    # All nine layers hold the same values, which tf2onnx stores once.
    assert data.stat().st_size > WEIGHTS_BYTES / 9 - 2**20
    check = "import onnx, sys; onnx.checker.check_model(sys.argv[1], full_check=True)"
    subprocess.run([sys.executable, "-c", check, target], check=True, capture_output=True)


def test_tflite_is_refused_before_anything_is_converted(folder: Path, tmp_path: Path) -> None:
    result = measured("tflite", folder / "large", "-o", tmp_path / "o.tflite")
    assert result.returncode == 5
    (line,) = [x for x in result.stderr.splitlines() if x.startswith("mpexport: error:")]
    assert "2.25 GiB" in line
    assert "cannot exceed 2 GiB" in line
    assert list(tmp_path.iterdir()) == []
    # A conversion holds the weights several times.
    assert result.peak_bytes < MOST_UNVERIFIED * WEIGHTS_BYTES
