"""Statistics worked out by hand."""

from __future__ import annotations

import pytest

from mpexport.errors import InconclusiveError
from mpexport.latency.summary import LatencySummary, summarize


def test_by_hand():
    summary = summarize([4_000_000, 1_000_000, 2_000_000, 100_000_000], calls_per_sample=3)
    assert summary.count == 4
    assert summary.calls_per_sample == 3
    assert summary.median_ms == 3
    assert summary.mean_ms == 26.75
    assert (summary.min_ms, summary.max_ms) == (1, 100)
    assert summary.mad_ms == 1.5  # of 1, 2, 1 and 97


def test_p90_needs_64_samples():
    assert summarize([1] * 63).p90_ms is None
    assert summarize([1] * 63).p90_reason == "63 samples, and a 90th percentile needs 64"
    summary = summarize([1_000_000 * n for n in range(1, 101)])
    assert (summary.p90_ms, summary.p90_reason) == (90, "")
    assert summarize(range(64)).p90_ms == 57 / 1e6  # the 58th of 64


def test_no_samples():
    with pytest.raises(InconclusiveError):
        summarize([])


def test_round_trip():
    summary = summarize([1, 2, 3])
    assert LatencySummary.from_json(summary.to_json()) == summary
    assert all(
        "ms" in k or k in ("count", "calls_per_sample", "p90_reason") for k in summary.to_json()
    )
