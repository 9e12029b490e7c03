"""The report: what it says of its rows, and that it survives strict JSON."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from mpexport.findings import Verdict
from mpexport.parity.compare import compare_outputs
from mpexport.parity.report import ParityReport, verdict_of
from mpexport.parity.row import TensorComparison
from mpexport.parity.tolerance import default_for

F32 = default_for("float32")
REFERENCE = np.array([[1.0, -2.0, 3.0], [0.5, 0.25, -4.0]])


def compare(reference, candidate):
    return compare_outputs({"y": reference}, {"y": candidate}, F32)[0]


def moved(index, value):
    out = REFERENCE.copy()
    out[index] = value
    return out


def report(*rows):
    return ParityReport("a", "b", {"runtime": "x"}, rows, 0, 4, "00", ("note",))


@pytest.mark.parametrize(
    "candidate",
    [REFERENCE, moved((0, 0), math.nan), REFERENCE + 1, REFERENCE[:1], moved((0, 1), math.inf)],
)
def test_round_trip_through_strict_json(candidate):
    rows = compare_outputs({"NaN": moved((1, 1), 0)}, {"NaN": candidate}, F32)
    made = report(*rows)
    text = json.dumps(made.to_json(), allow_nan=False)
    again = ParityReport.from_json(json.loads(text))
    assert repr(again) == repr(made)
    assert made.to_json()["verdict"] == again.verdict.value


def test_round_trip_of_string_outputs():
    value = np.array([b"NaN", b"x"], object)
    (made,) = compare_outputs({"y": value}, {"y": value[::-1]}, F32)
    again = TensorComparison.from_json(json.loads(json.dumps(made.to_json(), allow_nan=False)))
    assert again == made
    assert again.worst_reference == "b'NaN'"


def test_a_report_is_true_only_when_all_passed():
    passed, failed = compare(REFERENCE, REFERENCE), compare(REFERENCE, REFERENCE + 1)
    unknown = compare(REFERENCE * 0, REFERENCE * 0)
    assert report(passed)
    assert report(passed).passed
    assert not report()
    assert verdict_of([passed]) is Verdict.PASS
    assert report(passed, unknown).verdict is Verdict.INCONCLUSIVE
    assert report(passed, unknown, failed).verdict is Verdict.FAIL
    assert not report(passed, unknown)
