"""Sums and histograms that merge exactly, against Python's own exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from mpexport.parity.exact import ExactSum, LogHistogram


def test_a_sum_is_exact_in_any_order():
    rng = np.random.default_rng(0)
    values = (rng.standard_normal(500) * 10.0 ** rng.integers(-300, 300, 500)).tolist()
    values += [1e308, -1e308, 5e-324, -0.0]
    expected = float(sum(map(Fraction, values)))
    for order in (values, values[::-1], sorted(values)):
        total = ExactSum()
        for value in order:
            total.add(value)
        assert total.value() == expected
    halves = [ExactSum(), ExactSum()]
    for i, value in enumerate(values):
        halves[i % 2].add(value)
    halves[1] = ExactSum.from_json(halves[1].to_json())
    halves[0].merge(halves[1])
    assert halves[0].to_json() == total.to_json()


def test_naive_addition_would_lose_what_the_exact_sum_keeps():
    total = ExactSum()
    for value in (1e16, 1.0, -1e16):
        total.add(value)
    assert total.value() == 1.0 != 1e16 + 1.0 - 1e16


def test_beyond_float64_a_sum_is_infinite():
    total = ExactSum()
    total.add(1.7e308)
    total.add(1.7e308)
    assert total.value() == math.inf
    total.add(-1.7e308)
    assert total.value() == 1.7e308


def test_a_bin_holds_what_is_at_most_its_edge():
    edges = [LogHistogram.edge(k) for k in range(-100, 100)]
    assert edges == sorted(edges)
    assert LogHistogram.edge(0) == 1.0
    assert LogHistogram.edge(32) == 2.0
    assert LogHistogram.edge(1) == pytest.approx(2 ** (1 / 32), rel=1e-14)
    values = np.array([e for edge in edges for e in (edge, np.nextafter(edge, 1e9))])
    assert LogHistogram.bins(values).tolist() == [k + i for k in range(-100, 100) for i in (0, 1)]
    tiny = np.array([5e-324, 1.7e308])
    assert all(
        LogHistogram.edge(int(k)) >= v for k, v in zip(LogHistogram.bins(tiny), tiny) if v < 1
    )


def test_quantiles_are_at_most_a_bin_above():
    rng = np.random.default_rng(1)
    values = np.abs(rng.standard_normal(10_000))
    values[:100] = 0
    histogram = LogHistogram()
    for part in np.array_split(values, 7):
        histogram.add(part)
    assert (histogram.count, histogram.zeros) == (10_000, 100)
    for share in (0.001, 0.01, 0.5, 0.99, 0.999, 1.0):
        exact = np.sort(values)[math.ceil(share * 10_000) - 1]
        assert exact <= histogram.quantile(share) <= exact * 2 ** (1 / 32) * (1 + 1e-14)


def test_merging_histograms_is_adding_everything_to_one():
    rng = np.random.default_rng(2)
    values = np.exp(rng.standard_normal(999) * 20)
    whole, left, right = LogHistogram(), LogHistogram(), LogHistogram()
    whole.add(values)
    left.add(values[:400])
    right.add(values[400:])
    right.merge(LogHistogram.from_json(left.to_json()))
    assert right.to_json() == whole.to_json()
    assert whole.above(1.0) == int((values > 1.0).sum())
    assert whole.above(0.0) == 999
