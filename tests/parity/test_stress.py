"""Made-up inputs that try a model's corners."""

from __future__ import annotations

import numpy as np
import pytest

from mpexport.errors import UsageError
from mpexport.parity.stress import stress_cases
from mpexport.signature import Signature, TensorSpec


def cases_of(*specs, unit=1, seed=0, **ranges):
    signature = Signature("serve", tuple(TensorSpec(*spec) for spec in specs), ())
    return list(stress_cases(signature, unit, seed, ranges))


def named(cases):
    return {case.name: case for case in cases}


X = ("x", (None, 4), "float32")
IDS = ("ids", (None, None), "int32")
MASK = ("mask", (None, None), "bool")


def test_values_batches_and_sizes_are_tried():
    cases = cases_of(X, IDS, MASK, ids=(0, 9))
    assert [case.name for case in cases] == [
        "normal", "zeros", "ones", "minus ones", "one-hot", "lowest of the range",
        "highest of the range", "masks all false", "masks all true", "batch 2", "batch 3",
        "batch 16", "open axes of 1", "open axes of 2", "open axes of 3", "open axes of 33",
    ]  # fmt: skip
    by_name = named(cases)
    assert (by_name["zeros"].inputs["x"] == 0).all()
    assert (by_name["highest of the range"].inputs["ids"] == 9).all()
    assert (by_name["lowest of the range"].inputs["ids"] == 0).all()
    assert not by_name["masks all false"].inputs["mask"].any()
    assert by_name["masks all true"].inputs["mask"].all()
    np.testing.assert_array_equal(by_name["one-hot"].inputs["x"], [[1, 0, 0, 0]])
    assert by_name["batch 16"].inputs["x"].shape == (16, 4)
    sized = by_name["open axes of 33"].inputs
    assert sized["ids"].shape == sized["mask"].shape == (1, 33)
    # What a case isn't about is as usual.
    np.testing.assert_array_equal(by_name["zeros"].inputs["ids"], by_name["normal"].inputs["ids"])


def test_only_the_usual_may_not_be_skipped_and_the_unusual_is_judged_apart():
    cases = cases_of(X, MASK)
    assert [case.name for case in cases if not case.may_skip] == ["normal"]
    assert {case.group for case in cases} == {
        "", "zeros", "ones", "minus ones", "one-hot", "masks all false", "masks all true",
    }  # fmt: skip


def test_a_fixed_batch_stays():
    cases = cases_of(("x", (2, 3), "float32"))
    assert {case.inputs["x"].shape for case in cases} == {(2, 3)}
    assert "normal, other numbers" in named(cases)


def test_batches_are_multiples_of_what_the_files_take():
    sizes = {len(case.inputs["x"]) for case in cases_of(X, unit=4)}
    assert sizes == {4, 8, 12, 16}


def test_a_range_bounds_the_constants():
    names = [case.name for case in cases_of(X, x=(0.0, 255.0))]
    assert "minus ones" not in names
    assert "ones" in names
    assert (named(cases_of(X, x=(0.0, 255.0)))["highest of the range"].inputs["x"] == 255).all()


def test_large_samples_come_in_small_batches():
    names = [case.name for case in cases_of(("x", (None, 512, 512, 3), "float32"))]
    assert "batch 4" in names
    assert "batch 16" not in names


def test_no_case_comes_twice():
    cases = cases_of(("flag", (None, 1), "bool"))
    contents = [(case.inputs["flag"].shape, case.inputs["flag"].tobytes()) for case in cases]
    assert len(set(contents)) == len(contents)


def test_what_cannot_be_made_up_is_asked_for():
    with pytest.raises(UsageError, match="never guessed"):
        cases_of(IDS)
