"""When sampling starts and stops, and what it records."""

from __future__ import annotations

import gc
import math
import time

import pytest

from mpexport.errors import UsageError
from mpexport.latency import sampler
from mpexport.latency.sampler import Samples, measure


class Clock:
    """Time that passes only inside calls."""

    def __init__(self, monkeypatch, *durations_ns):
        self.now, self.calls, self.durations = 0, 0, list(durations_ns)
        monkeypatch.setattr(sampler, "perf_counter_ns", lambda: self.now)

    def __call__(self):
        self.now += self.durations[min(self.calls, len(self.durations) - 1)]
        self.calls += 1


def test_first_warmup_and_steady_are_apart(monkeypatch):
    call = Clock(monkeypatch, 9_000_000, 5_000_000, 4_000_000, 2_000_000)
    samples = measure(call, warmup_runs=2, num_runs=3, min_secs=0, max_secs=10)
    assert samples == Samples(9_000_000, (5_000_000, 4_000_000), (2_000_000,) * 3)
    assert call.calls == 6


def test_at_least_min_secs(monkeypatch):
    call = Clock(monkeypatch, 10_000_000)
    assert len(measure(call, 0, num_runs=3, min_secs=0.5, max_secs=10).steady_ns) == 50


def test_never_beyond_max_secs(monkeypatch):
    call = Clock(monkeypatch, 400_000_000)
    samples = measure(call, warmup_runs=1, num_runs=100, min_secs=0, max_secs=1)
    assert len(samples.warmup_ns) + len(samples.steady_ns) == 3  # the third starts before 1 s
    samples = measure(call, warmup_runs=9, num_runs=100, min_secs=0, max_secs=0)
    assert len(samples.steady_ns) == 1


def test_calls_too_short_for_the_clock_share_a_sample(monkeypatch):
    call = Clock(monkeypatch, 300)
    samples = measure(call, warmup_runs=2, num_runs=5, min_secs=0, max_secs=1)
    assert samples.calls_per_sample == math.ceil(10_000 / 300)
    assert samples.steady_ns == (300,) * 5
    assert call.calls == 3 + 5 * samples.calls_per_sample
    call = Clock(monkeypatch, 1_000)
    assert measure(call, 2, 5, 0, 1).calls_per_sample == 1


def test_with_the_real_clock():
    samples = measure(lambda: time.sleep(0.002), 1, 5, 0, 1)
    assert all(2_000_000 <= ns < 1_000_000_000 for ns in samples.steady_ns)
    assert isinstance(samples.first_ns, int)


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collection_is_off_and_comes_back(enabled):
    seen = []

    def call():
        seen.append(gc.isenabled())
        if len(seen) > 3:
            raise RuntimeError("boom")

    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(RuntimeError, match="boom"):
            measure(call, 0, 10, 0, 1)
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
    assert not any(seen)


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_runs": 0},
        {"warmup_runs": -1},
        {"min_secs": 2, "max_secs": 1},
        {"min_secs": math.nan},
        {"max_secs": math.nan},
        {"max_secs": math.inf},
        {"min_secs": -1},
    ],
)
def test_senseless_numbers(arguments):
    with pytest.raises(UsageError):
        measure(lambda: None, **arguments)


def test_round_trip():
    samples = Samples(3, (2, 2), (1, 1, 1), 7)
    assert Samples.from_json(samples.to_json()) == samples
