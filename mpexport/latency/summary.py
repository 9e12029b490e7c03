"""A few numbers that stand for many samples."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mpexport.errors import InconclusiveError

# MLPerf's early-stopping rule (LoadGen): with fewer samples a 90th percentile can't be claimed
# with 99% confidence.
MIN_SAMPLES_P90 = 64


@dataclass(frozen=True)
class LatencySummary:
    """Statistics of the steady state, in milliseconds.

    Attributes:
        count: Samples.
        calls_per_sample: Calls that share a sample; above 1, extremes and p90 are those of means.
        median_ms: Half the samples are below.
        mean_ms: Arithmetic mean; one slow sample moves it.
        min_ms: Fastest sample.
        max_ms: Slowest sample.
        mad_ms: Median of |sample - median|: the spread, not moved by outliers.
        p90_ms: The ceil(0.9 count)-th fastest sample; None when there are too few.
        p90_reason: Why there is none; empty otherwise.
    """

    count: int
    calls_per_sample: int
    median_ms: float
    mean_ms: float
    min_ms: float
    max_ms: float
    mad_ms: float
    p90_ms: float | None
    p90_reason: str

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> LatencySummary:
        """The inverse of `to_json`."""
        return cls(**data)


def summarize(samples_ns: Sequence[int], calls_per_sample: int = 1) -> LatencySummary:
    """Summarizes samples in nanoseconds.

    Raises:
        InconclusiveError: There are none.
    """
    if not samples_ns:
        raise InconclusiveError("no latency samples")
    ordered = sorted(samples_ns)
    count = len(ordered)
    median = statistics.median(ordered)
    p90, reason = None, f"{count} samples, and a 90th percentile needs {MIN_SAMPLES_P90}"
    if count >= MIN_SAMPLES_P90:
        p90, reason = ordered[math.ceil(0.9 * count) - 1] / 1e6, ""
    return LatencySummary(
        count=count,
        calls_per_sample=calls_per_sample,
        median_ms=median / 1e6,
        mean_ms=statistics.fmean(ordered) / 1e6,
        min_ms=ordered[0] / 1e6,
        max_ms=ordered[-1] / 1e6,
        mad_ms=statistics.median(abs(s - median) for s in ordered) / 1e6,
        p90_ms=p90,
        p90_reason=reason,
    )
