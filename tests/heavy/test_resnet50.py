"""ResNet50 at 224 × 224: a model of real size against its float32 twin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mpexport
from tests.e2e.kit import difference, look_into, run_child, same_size

pytestmark = [pytest.mark.heavy, pytest.mark.tf]

# Of TensorFlow and either runtime on the float32 twin itself, relative to each probability. They
# span three orders of magnitude: the softmax turns an absolute error of the logits, which are about
# 7 apart, into a relative one. Measured: 1.2e-4.
RTOL = 5e-4
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
    for ours, twin in zip(found[:2], found[2:], strict=True):
        assert difference(ours.ops, twin.ops) == {}
        assert same_size(ours.size, twin.size)
        (output,), (twin_output,) = ours.outputs.values(), twin.outputs.values()
        # Not a bit comes from mixed precision,
        assert output.tobytes() == twin_output.tobytes()
        # and the rest is float32 in another order, over 50 layers and an exponential.
        np.testing.assert_allclose(output, expected, rtol=RTOL)
