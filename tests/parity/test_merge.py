"""Parts of a comparison, merged in any order, give the bytes of one comparison."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from mpexport.errors import UsageError
from mpexport.parity.compare import Comparison
from mpexport.parity.tolerance import Tolerance, default_for

F32 = default_for("float32")


def cases():
    """Outputs of all kinds, whose scale differs widely between cases; some beyond the bound."""
    rng = np.random.default_rng(5)
    made = []
    for i in range(7):
        logits = rng.standard_normal((3, 8)) * 10.0 ** (i % 4)
        odds = np.exp(logits / logits.std())
        reference = {
            "z": logits,
            "a": odds / odds.sum(axis=1, keepdims=True),
            "ids": rng.integers(0, 9, (3, 2)),
            "text": np.array([b"one", b"two", b"three"]),
        }
        noise = {n: rng.standard_normal(reference[n].shape) for n in ("z", "a")}
        candidate = dict(reference)
        candidate["z"] = logits + noise["z"] * 1e-3
        candidate["a"] = np.abs(reference["a"] + 1e-7 * noise["a"])
        trained = {**reference, "z": logits * (1 + 1e-3), "a": reference["a"] * (1 - 1e-3)}
        labels = {"a": rng.integers(0, 8, 3)}
        single = {**reference, "z": logits + np.where(noise["z"] > 0, 1e-3 * noise["z"], 0)}
        made.append((i, reference, candidate, trained, None, labels, single))
    made[3][2]["z"][1, 1] = np.nan
    return made


def one_run(given, tolerances=F32):
    comparison = Comparison(tolerances)
    for case in given:
        comparison.add(*case)
    return comparison


def as_bytes(comparison):
    return json.dumps([row.to_json() for row in comparison.rows()]).encode()


@pytest.mark.parametrize("tolerances", [F32, Tolerance(1e-4, 1e-4), {"z": Tolerance(), "": F32}])
def test_any_order_of_parts_gives_the_same_bytes(tolerances):
    given = cases()
    expected = as_bytes(one_run(given, tolerances))
    parts = [given[0::3], given[1::3], given[2::3]]
    for order in itertools.permutations(parts):
        merged = Comparison(tolerances)
        for part in order:
            state = json.loads(json.dumps(one_run(part, tolerances).to_json(), allow_nan=False))
            merged.load_json(state)
        assert as_bytes(merged) == expected


def test_the_order_of_cases_does_not_matter():
    given = cases()
    assert as_bytes(one_run(given[::-1])) == as_bytes(one_run(given))


def test_what_fails_only_beside_smaller_cases_is_judged_by_all_of_them():
    """A part alone would fail: its numbers are small. With the large part it is noise."""
    small = (0, {"y": np.array([1e-3, 2e-3])}, {"y": np.array([1.5e-3, 2e-3])})
    large = (1, {"y": np.array([100.0, 50.0])}, {"y": np.array([100.0, 50.0])})
    assert one_run([small]).rows()[0].verdict == "FAIL"
    merged = one_run([small])
    merged.merge(one_run([large]))
    assert merged.rows()[0].verdict == "PASS"
    assert (
        as_bytes(merged) == as_bytes(one_run([small, large])) == as_bytes(one_run([large, small]))
    )


def test_an_output_that_some_part_lacks_fails():
    given = cases()[:2]
    given[1][1].pop("ids")
    merged = one_run(given[:1])
    merged.merge(one_run(given[1:]))
    ids = next(r for r in merged.rows() if r.output == "ids")
    assert (ids.verdict, ids.message) == ("FAIL", "not in the reference in 1 of 2 cases")


def test_an_output_that_one_part_has_too_much_fails():
    given = cases()[:2]
    given[1][2]["more"] = np.zeros(3)
    merged = one_run(given[:1])
    merged.merge(one_run(given[1:]))
    assert [r.output for r in merged.rows()] == ["z", "a", "ids", "text", "more"]
    assert merged.rows()[-1].verdict == "FAIL"


def test_a_tolerance_for_no_output_is_an_error_in_the_end():
    with pytest.raises(UsageError, match="names no output: 'logit'"):
        one_run(cases()[:1], {"logit": F32, "": F32}).rows()


def test_numbers_beyond_those_of_one_case():
    rows = {r.output: r for r in one_run(cases()[:3]).rows()}
    assert rows["z"].top1_rows == 9
    assert rows["z"].abs_p50 <= rows["z"].abs_p99 <= rows["z"].abs_p999
    assert rows["z"].kl_mean is None
    assert rows["a"].accuracy.rows == 9
    assert rows["z"].accuracy is None
    assert 0 <= rows["a"].kl_mean <= rows["a"].kl_max < 1e-9
