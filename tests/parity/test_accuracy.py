"""Accuracy with labels: a drop is shown or not shown, never assumed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mpexport.errors import UsageError
from mpexport.findings import Verdict
from mpexport.parity.accuracy import PairedAccuracy, beta_share, binomial_interval


def test_counts_by_hand():
    reference = np.array([[3.0, 1.0], [0.0, 2.0], [5.0, 5.0], [1.0, 0.0]])
    candidate = np.array([[1.0, 3.0], [0.0, 2.0], [5.0, 5.1], [math.nan, 0.0]])
    seen = PairedAccuracy()
    seen.add(reference[:2], candidate[:2], np.array([0, 1]))
    more = PairedAccuracy()
    more.add(reference[2:], candidate[2:], np.array([1, 0]))
    seen.merge(PairedAccuracy.from_json(more.to_json()))
    assert seen == PairedAccuracy(rows=4, both=1, lost=2, won=1)
    assert (seen.reference, seen.candidate, seen.drop) == (0.75, 0.5, 0.25)


def test_a_label_that_is_no_class_is_an_error():
    with pytest.raises(UsageError, match="labels from 1 to 2 for an output of 2 classes"):
        PairedAccuracy().add(np.zeros((2, 2)), np.zeros((2, 2)), np.array([1, 2]))


@pytest.mark.parametrize(
    ("n", "k", "x"), [(10, 3, 0.2), (10, 3, 0.7), (100, 1, 0.001), (300, 299, 0.99), (50, 50, 0.9)]
)
def test_beta_is_the_tail_of_the_binomial(n, k, x):
    tail = sum(math.comb(n, j) * x**j * (1 - x) ** (n - j) for j in range(k, n + 1))
    assert beta_share(x, k, n - k + 1) == pytest.approx(tail, rel=1e-11)


def test_the_exact_interval_of_a_share():
    assert binomial_interval(0, 100, 0.025) == (0.0, pytest.approx(1 - 0.025**0.01, rel=1e-10))
    assert binomial_interval(100, 100, 0.025) == (pytest.approx(0.025**0.01, rel=1e-10), 1.0)
    low, high = binomial_interval(5, 100, 0.025)
    # The definition: at either end the observation lies in a tail of 2.5%.
    assert beta_share(low, 5, 96) == pytest.approx(0.025, rel=1e-9)
    assert beta_share(high, 6, 95) == pytest.approx(0.975, rel=1e-9)


def test_the_interval_holds_the_truth_as_often_as_promised():
    rng = np.random.default_rng(0)
    lost, won, rows, runs = 0.03, 0.01, 400, 2000
    draws = rng.multinomial(rows, [0.9, lost, won, 1 - 0.9 - lost - won], size=runs)
    hits = 0
    for both, a, b, _ in draws.tolist():
        low, high = PairedAccuracy(rows, both, a, b).interval()
        hits += low <= lost - won <= high
    assert hits / runs >= 0.95


@pytest.mark.parametrize(
    ("seen", "verdict", "text"),
    [
        (PairedAccuracy(10_000, 9_000, 5, 5), Verdict.PASS, "at most 0.200% is shown"),
        (PairedAccuracy(360, 350, 0, 0), Verdict.INCONCLUSIVE, "2,880 samples would show it"),
        (PairedAccuracy(10_000, 9_000, 50, 5), Verdict.FAIL, "more than 0.200%"),
        (PairedAccuracy(100, 90, 1, 0), Verdict.INCONCLUSIVE, "seen, but not shown"),
        (PairedAccuracy(), Verdict.INCONCLUSIVE, "no labeled samples"),
    ],
)
def test_too_few_samples_show_nothing(seen, verdict, text):
    found, message = seen.judge(0.002)
    assert found is verdict
    assert text in message
