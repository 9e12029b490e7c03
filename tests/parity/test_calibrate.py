"""The proposed gate: it parses, holds what it was made of, and fails what is worse."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import numpy as np
import pytest

from mpexport.errors import UsageError
from mpexport.findings import Verdict
from mpexport.parity import gate
from mpexport.parity.calibrate import propose
from mpexport.parity.compare import Comparison
from mpexport.parity.report import ParityReport
from mpexport.parity.tolerance import default_for

RNG = np.random.default_rng(0)
LOGITS = RNG.standard_normal((200, 4))
NOISE = RNG.standard_normal((200, 4))


def report(error=0.0, trained=2e-3, name="a.tflite", labels=None, size=3 * 2**20):
    comparison = Comparison(default_for("float32"), precision="float16-weights")
    comparison.add(
        0,
        {"logits": LOGITS},
        {"logits": LOGITS + error * NOISE},
        {"logits": LOGITS + trained * NOISE},
        labels=None if labels is None else {"logits": labels},
    )
    artifact = {"format": "tflite", "size_bytes": size, "sha256": "00"}
    return ParityReport(
        "model", name, {}, comparison.rows(), 0, 200, "00", artifact=artifact
    )  # fmt: skip


def parsed(reports):
    return gate.parse(tomllib.loads(propose(reports)), "proposed")


def test_it_holds_what_it_was_made_of_and_fails_what_is_worse():
    made = [report(0.0), report(1e-3, name="b.tflite", size=5 * 2**20)]
    found = parsed(made)
    assert found.min_samples == 200
    assert 5.2 < found.budgets["tflite"]["max_size_mib"] < 5.4
    for one in made:
        assert gate.judge(found, one) == []
    worse = gate.judge(found, report(1e-2, trained=1.0))
    assert {m.limit for m in worse} >= {"max_abs", "max_rmse", "min_snr_db"}
    (larger,) = gate.judge(found, report(size=6 * 2**20))
    assert larger.limit == "max_size_mib"
    (fewer,) = gate.judge(found, replace(made[0], num_samples=100))
    assert fewer.verdict is Verdict.INCONCLUSIVE


def test_every_number_has_a_reason():
    labels = LOGITS.argmax(axis=1)
    text = propose([report(1e-3, labels=labels)])
    numbers = [line for line in text.splitlines() if " = " in line and "version" not in line]
    assert len(numbers) >= 6
    assert all("  # " in line for line in numbers)
    assert "max_accuracy_drop" in text
    assert gate.judge(gate.parse(tomllib.loads(text), "x"), report(1e-3, labels=labels)) == []


def test_limits_are_rounded_up_never_down():
    found = parsed([report(1.234e-3)]).outputs["logits"].limits
    (row,) = report(1.234e-3).rows
    for key, value in (("max_abs", row.max_abs), ("max_rmse", row.rmse)):
        assert 2 * value <= found[key] <= 2.2 * value


def test_hostile_names_stay_names():
    name = 'x"]\n[evil]\x7f'
    row = replace(report(1e-3).rows[0], output=name)
    hostile = replace(report(1e-3, name="a\nmax_abs = 9\n.tflite"), rows=(row,))
    assert list(parsed([hostile]).outputs) == [name]


def test_nothing_is_proposed_for_what_fails():
    with pytest.raises(UsageError, match=r"b\.tflite: does not pass"):
        propose([report(), report(0.5, name="b.tflite")])
    with pytest.raises(UsageError):
        propose([])
