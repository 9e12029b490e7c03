"""The bound: its formula, its defaults, and that it can't be disarmed."""

from __future__ import annotations

import numpy as np
import pytest

from mpexport import dtypes
from mpexport.errors import UsageError
from mpexport.parity import tolerance
from mpexport.parity.tolerance import Tolerance


def test_the_formula():
    bound = Tolerance(rtol=0.1, atol=0.5, atol_scale=0.01)
    limits = bound.limit(np.array([-10.0, 0.0, 4.0]), scale=10.0)
    np.testing.assert_allclose(limits, [0.5 + 0.1 + 1.0, 0.6, 0.6 + 0.4], rtol=1e-15)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e-9, "1e-3", None])
@pytest.mark.parametrize("part", ["rtol", "atol", "atol_scale"])
def test_only_finite_numbers(part, value):
    with pytest.raises(UsageError) as caught:
        Tolerance(**{part: value})
    assert caught.value.exit_code == 2


def test_defaults_stand_in_the_stated_relation_to_the_unit_roundoff():
    u16, u32 = (dtypes.get(n).unit_roundoff for n in ("float16", "float32"))
    single, weights, half = (
        tolerance.default_for(p) for p in ("float32", "float16-weights", "float16")
    )
    assert 160 * u32 < single.rtol < 170 * u32
    assert weights.rtol == 4 * u16
    assert half.rtol == 16 * u16
    for bound in (single, weights, half):
        assert bound.rtol == bound.atol_scale
        assert bound.atol == 0
    with pytest.raises(UsageError, match="did you mean 'float16'"):
        tolerance.default_for("float17")


def test_per_output():
    a, b = Tolerance(rtol=1.0), Tolerance(rtol=2.0)
    assert tolerance.for_output(a, "x") is a
    assert tolerance.for_output({"x": a, "": b}, "x") is a
    assert tolerance.for_output({"x": a, "": b}, "y") is b
    with pytest.raises(UsageError, match="no tolerance for output 'y'"):
        tolerance.for_output({"x": a}, "y")
    with pytest.raises(UsageError, match="did you mean 'logits'"):
        tolerance.check_names({"logit": a, "": b}, {"logits": 0})


def test_round_trip_and_text():
    bound = Tolerance(1e-5, 0.0, 1e-5)
    assert Tolerance.from_json(bound.to_json()) == bound
    assert str(bound) == "rtol 1e-05, atol 1e-05·max|r|"
    assert str(Tolerance()) == "rtol 0, atol 0"
