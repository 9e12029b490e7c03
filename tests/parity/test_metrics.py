"""The numbers, checked against numbers worked out by hand and against numpy's own."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mpexport.parity import metrics


def differences(reference, candidate):
    sums = metrics.Differences()
    sums.add(np.array(reference, float), np.array(candidate, float))
    return sums


def test_by_hand():
    sums = differences([3.0, 4.0, 0.0], [3.0, 2.0, 0.0])
    assert sums.count == 3
    assert sums.max_abs == 2
    assert sums.mean_abs == pytest.approx(2 / 3)
    assert sums.rmse == pytest.approx(math.sqrt(4 / 3))
    assert sums.max_rel == 0.5
    assert sums.required_rtol == 0.5
    assert sums.cosine == pytest.approx((9 + 8) / (5 * math.sqrt(13)))
    assert sums.snr_db == pytest.approx(10 * math.log10(25 / 4))
    assert (sums.low, sums.high) == (0, 4)


def test_zeros():
    sums = differences([0.0, 1.0], [1e-30, 1.0])
    assert sums.max_rel == 0
    assert sums.required_rtol == math.inf
    assert differences([0.0, 0.0], [0.0, 0.0]).cosine is None
    assert differences([0.0, 0.0], [0.0, 0.0]).snr_db == math.inf
    assert differences([0.0], [1.0]).snr_db == -math.inf
    assert differences([], []).count == 0


def test_streaming_equals_one_pass():
    rng = np.random.default_rng(3)
    r = rng.standard_normal(1000)
    c = r + 1e-3 * rng.standard_normal(1000)
    whole, parts = differences(r, c), metrics.Differences()
    for start in range(0, 1000, 300):
        parts.add(r[start : start + 300], c[start : start + 300])
    for name in ("count", "max_abs", "max_rel", "required_rtol", "max_ulp", "low", "high"):
        assert getattr(parts, name) == getattr(whole, name)
    assert parts.errors.to_json() == whole.errors.to_json()
    for name in ("mean_abs", "rmse", "cosine", "snr_db"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name), rel=1e-12)


def test_ulp_of_neighbors_is_one_everywhere():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    values = values[np.isfinite(values) & (np.abs(values) < np.finfo(np.float32).max)]
    up = np.nextafter(values, np.float32(np.inf))
    distance = metrics.ulp_distance(values.astype(float), up.astype(float))
    assert (distance == 1).all()
    assert (metrics.ulp_distance(up.astype(float), values.astype(float)) == 1).all()


def test_ulp_by_hand():
    def ulp(a, b):
        return int(metrics.ulp_distance(np.array([a]), np.array([b]))[0])

    assert ulp(0.0, -0.0) == 0
    assert ulp(1.0, 2.0) == 2**23
    assert ulp(-1e-45, 1e-45) == 2
    assert ulp(-1.0, 1.0) == 2 * 0x3F800000
    assert ulp(1.0, 1.0 + 2**-40) == 0
    assert ulp(1e300, 3.4028234663852886e38) == 1  # infinity follows the largest float32
    assert ulp(0.1, float(np.float16(0.1))) == abs(
        int(np.float32(0.1).view(np.int32)) - int(np.float32(np.float16(0.1)).view(np.int32))
    )


def test_top_one():
    top = metrics.TopK()
    reference = np.array([[1.0, 5.0, 2.0], [3.0, 2.9, 0.0], [1.0, 1.0, 0.0]])
    candidate = np.array([[0.0, 9.0, 0.0], [2.9, 3.0, 0.0], [1.0, 1.0, 0.0]])
    top.add(reference, candidate)
    assert (top.rows, top.agree) == (3, 2)
    assert top.flip_margin == pytest.approx(0.1)
    top.add(np.array([[0.0, 7.0]]), np.array([[1.0, 0.0]]))
    assert (top.rows, top.agree, top.flip_margin) == (4, 2, 7.0)
    same = metrics.TopK()
    same.add(reference, reference)
    assert same.flip_margin is None
