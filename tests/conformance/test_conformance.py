"""The fast part of the suite: every cell is made, verified, and what the twin computes."""

from __future__ import annotations

import pytest

from tests.conformance.children import OLD_PYTHON
from tests.conformance.run import all_cases, run, select, summary

pytestmark = [pytest.mark.tf, pytest.mark.ort, pytest.mark.litert]


def test_fast_cases_have_no_fault(tmp_path):
    planned = select(all_cases(), [], fast=True)
    rows = run(planned, tmp_path, jobs=2)
    assert len(rows) == len(planned) > 20
    for row in rows:
        assert "error" not in row, summary(row)
        assert row["evidence"], f"{row['case']}: constant outputs prove nothing"
        assert list(row["policies"]) == ["mixed_float16", "mixed_bfloat16"]
        for cells in row["policies"].values():
            for cell in cells["targets"].values():
                assert cell["problem"] == "", summary(row)
            assert bool(cells["old_runtime"]) == OLD_PYTHON.exists()
            for old in cells["old_runtime"].values():
                assert old == {"runs": True, "problem": "", "predicted": []}, row["case"]
