"""The fast part of the suite: every cell is made, verified, and what the twin computes."""

from __future__ import annotations

import pytest

from tests.conformance.run import all_cases, run, select, summary

pytestmark = [pytest.mark.tf, pytest.mark.ort, pytest.mark.litert]


# Case → the TensorFlow op that has no ONNX form yet; it must be refused, and by that name.
WITHOUT_ONNX = {"activations/celu": "Expm1", "layers/Discretization": "Bucketize"}


def test_fast_cases_have_no_fault(tmp_path):
    planned = select(all_cases(), [], fast=True)
    rows = run(planned, tmp_path, jobs=2)
    assert len(rows) == len(planned) > 20
    assert set(WITHOUT_ONNX) <= {row["case"] for row in rows}
    for row in rows:
        assert "error" not in row, summary(row)
        assert row["evidence"], f"{row['case']}: constant outputs prove nothing"
        assert list(row["policies"]) == ["mixed_float16", "mixed_bfloat16"]
        missing = WITHOUT_ONNX.get(row["case"])
        for cells in row["policies"].values():
            for target, cell in cells["targets"].items():
                if missing and target.startswith("onnx"):
                    assert cell["code"] == 5, summary(row)
                    assert f"TensorFlow's {missing} " in cell["message"]
                else:
                    assert cell["problem"] == "", summary(row)
            for old in cells["old_runtime"].values():
                assert old == {"runs": True, "problem": ""}, row["case"]
