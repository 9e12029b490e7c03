"""ResNet50 at 224 × 224: a model of real size against its float32 twin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mpexport
from tests.e2e.kit import difference, look_into, run_child, same_size, within

pytestmark = [pytest.mark.heavy, pytest.mark.tf]

CHILDREN = Path(__file__).parent / "children.py"


def test_files_are_those_of_the_float32_twin(tmp_path: Path) -> None:
    run_child(CHILDREN, "resnet50", tmp_path)
    formats = ("tflite", "onnx")
    mixed = mpexport.export(tmp_path / "mixed", tmp_path / "from_mixed", formats)
    single = mpexport.export(tmp_path / "float32", tmp_path / "from_float32", formats, verify=False)
    for file in mixed.files:
        rows = [row for report in file.parity for row in report.rows]
        assert [row.cause for row in rows] == ["ok"], rows

    files = [Path(f.artifact.path) for result in (mixed, single) for f in result.files]
    found = look_into(tmp_path / "inputs.npz", files, tmp_path)
    expected = np.load(tmp_path / "twin.npz")["probabilities"]
    assert np.ptp(expected, axis=0).max() > 1e-4, "images alike would be no evidence"
    for file, seen in zip(files, found, strict=True):
        (output,) = seen.outputs.values()
        assert within(output, expected), (file, np.abs(output - expected).max())
    for ours, twin in zip(found[:2], found[2:], strict=True):
        assert difference(ours.ops, twin.ops) == {}
        assert same_size(ours.size, twin.size)
