"""Cases out of the ordinary are judged apart from the usual ones."""

from __future__ import annotations

import json

import numpy as np

from mpexport.findings import Verdict
from mpexport.parity.tolerance import default_for
from mpexport.parity.verdict import FileVerdict, ModelRuns

USUAL = np.linspace(-1, 1, 12).reshape(3, 4)


def verdict():
    return FileVerdict("float32", default_for("float32"))


def add(to, number, reference, candidate, trained=None, group=""):
    runs = ModelRuns([{"y": reference}], None if trained is None else [{"y": trained}])
    to.add([number], runs, [{"y": candidate}], group=group)


def test_what_is_lost_on_strange_inputs_excuses_no_fault_on_usual_ones():
    judged = verdict()
    add(judged, 0, USUAL, USUAL + 1e-2, USUAL + 1e-6)
    add(judged, 1, USUAL, USUAL, USUAL + 0.05, group="zeros")
    (row,) = judged.rows()
    assert row.verdict is Verdict.FAIL
    assert row.noise_floor < 1e-5


def test_a_fault_on_strange_inputs_fails_and_says_on_which():
    judged = verdict()
    add(judged, 0, USUAL, USUAL)
    add(judged, 1, USUAL, USUAL * 1.01, group="zeros")
    (row,) = judged.rows()
    assert row.verdict is Verdict.FAIL
    assert row.message.startswith("inputs zeros: ")


def test_strange_inputs_have_the_scale_and_the_noise_of_usual_ones():
    judged = verdict()
    small = USUAL * 1e-6
    add(judged, 0, USUAL, USUAL, USUAL + 1e-3)
    add(judged, 1, small, small + 1e-6, group="zeros")  # within 1e-5 of the usual scale
    add(judged, 2, USUAL, USUAL + 4e-4, group="ones")  # within the usual noise
    (row,) = judged.rows()
    assert row.verdict is Verdict.PASS


def test_one_number_for_strange_inputs_is_no_lack_of_evidence():
    judged = verdict()
    add(judged, 0, USUAL, USUAL)
    add(judged, 1, np.zeros((3, 4)), np.zeros((3, 4)), group="zeros")
    assert judged.rows()[0].verdict is Verdict.PASS


def test_strange_inputs_alone_are_no_evidence():
    judged = verdict()
    add(judged, 0, USUAL, USUAL, group="zeros")
    assert all(row.verdict is not Verdict.PASS for row in judged.rows())


def test_groups_travel_and_merge():
    one, other = verdict(), verdict()
    add(one, 0, USUAL, USUAL)
    add(other, 1, USUAL, USUAL * 1.01, group="zeros")
    both = FileVerdict.from_json(json.loads(json.dumps(one.to_json(), allow_nan=False)))
    both.load_json(json.loads(json.dumps(other.to_json(), allow_nan=False)))
    assert both.rows()[0].message.startswith("inputs zeros: ")
