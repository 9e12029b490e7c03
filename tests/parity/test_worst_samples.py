"""The samples with the largest errors: found over all cases, the same however they are spread."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mpexport.parity.compare import Comparison, compare_cases
from mpexport.parity.row import TensorComparison
from mpexport.parity.tolerance import default_for

BOUND = default_for("float32")


def compared(*cases: tuple[np.ndarray, np.ndarray]) -> TensorComparison:
    (row,) = compare_cases([{"y": r} for r, _ in cases], [{"y": c} for _, c in cases], BOUND)
    return row


def test_five_samples_by_their_worst_element():
    rng = np.random.default_rng(0)
    cases = [
        (r := rng.standard_normal((8, 3, 4)), r + rng.standard_normal((8, 3, 4))) for _ in "ab"
    ]
    row = compared(*cases)
    found = [
        (float(error.max()), case, sample)
        for case, (r, c) in enumerate(cases)
        for sample, error in enumerate(np.abs(c - r))
    ]
    wanted = sorted(found, key=lambda item: -item[0])[:5]
    assert [(s.error, s.case, s.index[0]) for s in row.worst_samples] == wanted
    for sample in row.worst_samples:
        r, c = cases[sample.case]
        assert (sample.reference, sample.candidate) == (r[sample.index], c[sample.index])
        assert sample.error == abs(c[sample.index] - r[sample.index])
    first = row.worst_samples[0]
    assert (row.worst_case, row.worst_index) == (first.case, first.index)
    assert row.max_abs == first.error


def test_a_wrong_nan_comes_first_and_its_sample_only_once():
    r = np.arange(12.0).reshape(4, 3)
    c = r.copy()
    c[2, 1], c[2, 0], c[1, 1] = math.nan, 99, 7
    row = compared((r, c))
    assert [(s.error, s.index) for s in row.worst_samples] == [(math.inf, (2, 1)), (3.0, (1, 1))]
    # By its JSON, since a NaN is no equal of itself.
    assert TensorComparison.from_json(row.to_json()).to_json() == row.to_json()


def test_samples_without_an_error_are_not_listed():
    r = np.arange(6.0).reshape(2, 3)
    row = compared((r, r))
    assert row.worst_samples == ()
    assert row.worst_index == (0, 0)


def test_numbers_without_axes_and_text():
    row = compared((np.array(1.0), np.array(2.0)))
    assert [(s.error, s.index) for s in row.worst_samples] == [(1.0, ())]
    row = compared((np.array([b"a", b"b"]), np.array([b"a", b"c"])))
    assert [(s.index, s.candidate) for s in row.worst_samples] == [((1,), "b'c'")]
    assert TensorComparison.from_json(row.to_json()) == row


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.booleans(), min_size=6, max_size=6))
def test_shards_merge_to_the_same(seed, first):
    """Few different errors, so that many samples are equally bad."""
    rng = np.random.default_rng(seed)
    cases = [
        ({"y": rng.integers(0, 3, (4, 2)).astype(float)}, {"y": rng.integers(0, 3, (4, 2)) + 0.5})
        for _ in first
    ]
    whole, *shards = (Comparison(BOUND) for _ in range(3))
    for number, (r, c) in enumerate(cases):
        for comparison in (whole, shards[first[number]]):
            comparison.add(number, r, c, {"y": r["y"] + 0.25})
    shards[1].merge(shards[0])
    assert shards[1].rows() == whole.rows()
    (row,) = whole.rows()
    assert len(row.worst_samples) == 5
    assert row.noise_errors.counts == ((-2, 48),)
