"""Timing a call: the first one apart, then warm-up, then the steady state."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Callable

from mpexport.errors import UsageError

# Below this a call is of the order of reading the clock (0.1 to 0.4 us a pair of readings), so
# several calls share one reading, as many as take ten times as long.
SHORT_CALL_NS = 1_000
_BATCH_NS = 10 * SHORT_CALL_NS


@dataclass(frozen=True)
class Samples:
    """Times of one call, in nanoseconds.

    Attributes:
        first_ns: The first call.
        warmup_ns: Calls 2 and on, not used for the summary.
        steady_ns: The samples. Each is the mean of ``calls_per_sample`` calls in a row.
        calls_per_sample: 1 unless a call is too short for the clock.
    """

    first_ns: int
    warmup_ns: tuple[int, ...]
    steady_ns: tuple[int, ...]
    calls_per_sample: int = 1

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "first_ns": self.first_ns,
            "warmup_ns": list(self.warmup_ns),
            "steady_ns": list(self.steady_ns),
            "calls_per_sample": self.calls_per_sample,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Samples:
        """The inverse of `to_json`."""
        return cls(
            data["first_ns"],
            tuple(data["warmup_ns"]),
            tuple(data["steady_ns"]),
            data["calls_per_sample"],
        )


def measure(
    run: Callable[[], object],
    warmup_runs: int = 3,
    num_runs: int = 50,
    min_secs: float = 1.0,
    max_secs: float = 150.0,
) -> Samples:
    """Times ``run`` with the monotonic clock; the garbage collector is off meanwhile.

    Args:
        run: The call; its result is dropped.
        warmup_runs: Calls between the first and the samples.
        num_runs: Samples to take at least.
        min_secs: Seconds to take samples for at least.
        max_secs: Seconds, warm-up included but not the first call, after which no further call
            starts. One sample is always taken.

    Raises:
        UsageError: A number is negative or no number, or min_secs is above max_secs.
    """
    if warmup_runs < 0 or num_runs < 1:
        raise UsageError(f"warmup_runs {warmup_runs}, num_runs {num_runs}: need >= 0 and >= 1")
    if not 0 <= min_secs <= max_secs < math.inf:
        raise UsageError(
            f"min_secs {min_secs}, max_secs {max_secs}: need 0 <= min_secs <= max_secs"
        )

    def timed(calls: int) -> int:
        start = perf_counter_ns()
        for _ in range(calls):
            run()
        return (perf_counter_ns() - start) // calls

    with _no_garbage_collection():
        first = timed(1)
        begin = perf_counter_ns()
        deadline = begin + int(max_secs * 1e9)
        warmup: list[int] = []
        while len(warmup) < warmup_runs and perf_counter_ns() < deadline:
            warmup.append(timed(1))
        fastest = max(1, min([first, *warmup]))
        calls = 1 if fastest >= SHORT_CALL_NS else math.ceil(_BATCH_NS / fastest)
        enough = perf_counter_ns() + int(min_secs * 1e9)
        steady = [timed(calls)]
        while (now := perf_counter_ns()) < deadline:
            if len(steady) >= num_runs and now >= enough:
                break
            steady.append(timed(calls))
    return Samples(first, tuple(warmup), tuple(steady), calls)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
