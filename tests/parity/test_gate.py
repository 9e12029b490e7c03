"""The gate file: what it understands, what it refuses, and what it finds."""

from __future__ import annotations

import dataclasses
import textwrap
import tomllib

import pytest

from mpexport.errors import UsageError
from mpexport.findings import Verdict
from mpexport.parity import gate
from mpexport.parity.accuracy import PairedAccuracy
from mpexport.parity.report import ParityReport
from mpexport.parity.row import OK, TensorComparison
from mpexport.parity.tolerance import Tolerance, default_for

ROW = TensorComparison(
    "logits", Verdict.PASS, OK, "", Tolerance(), count=80, max_abs=0.5, abs_p99=0.1, mean_abs=0.01,
    rmse=0.02, max_rel=0.3, ulp=7, cosine=0.999, snr_db=40.0, top1_rows=8, top1_agree=6,
    top5_agree=8,
)  # fmt: skip
REPORT = ParityReport("r", "c", {}, (ROW,), 0, 8, "")


def read(text):
    return gate.parse(tomllib.loads(textwrap.dedent(text)), "mpexport.toml")


def test_a_whole_file():
    found = read((gate.__doc__ or "").partition("code-block:: toml")[2])
    assert found.min_samples == 360
    assert found.outputs["logits"].max_accuracy_drop == 0.002
    assert found.outputs["logits"].limits == {"min_top1_agreement": 0.995, "max_kl_mean": 1e-4}
    assert found.budgets == {"tflite": {"max_size_mib": 4.0}}
    assert found.tolerances() == {
        "": Tolerance(rtol=1e-5, atol_scale=1e-5),
        "logits": Tolerance(rtol=1e-4, atol_scale=1e-5),
    }


def test_an_absolute_tolerance_takes_the_place_of_the_scaled_one():
    found = read("version = 1\n[tolerance]\natol = 1e-3\n[outputs.y]\natol_scale = 1e-4")
    rtol = default_for("float32").rtol
    assert found.tolerances() == {
        "": Tolerance(rtol=rtol, atol=1e-3),
        "y": Tolerance(rtol=rtol, atol_scale=1e-4),
    }
    assert gate.Gate().tolerances() == default_for("float32")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[samples]\nmin = 3", "version = None"),
        ("version = 2", "version = 2"),
        ("version = 1\n[sample]\nmin = 3", "no such key: 'sample'; did you mean 'samples'"),
        ("version = 1\n[samples]\nmin = 0", "min = 0: need a whole number"),
        ("version = 1\n[samples]\nmin = true", "min = True: need a whole number"),
        ("version = 1\n[tolerance]\nrtol = nan", "rtol = nan: need a finite number"),
        ("version = 1\n[tolerance]\nrtol = -1e-5", "rtol = -1e-05: need a finite number"),
        ("version = 1\n[tolerance]\nrtol = '1e-5'", "rtol = '1e-5': need a finite number"),
        ("version = 1\n[outputs.y]\nmax_kl_maen = 1", "did you mean 'max_kl_mean'"),
        ("version = 1\n[outputs]\ny = 3", "outputs.y] = 3: need a table"),
        ("version = 1\n[budgets.tflite]\nmax_p50 = 1", "no such key: 'max_p50'"),
    ],
)
def test_what_is_no_gate_is_refused_by_place(text, message):
    with pytest.raises(UsageError) as error:
        read(text)
    assert message in str(error.value)
    assert "mpexport.toml" in str(error.value)


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("max_abs", 0.5, 0.49),
        ("max_abs_p99", 0.1, 0.09),
        ("max_mean_abs", 0.01, 0.009),
        ("max_rmse", 0.02, 0.01),
        ("max_rel", 0.3, 0.2),
        ("max_ulp", 7, 6),
        ("min_cosine", 0.999, 0.9999),
        ("min_snr_db", 40, 41),
        ("min_top1_agreement", 0.75, 0.76),
        ("min_top5_agreement", 1.0, None),
    ],
)
def test_every_limit_holds_at_its_value_and_not_beyond(key, good, bad):
    def missed(value):
        return gate.judge(
            gate.Gate(outputs={"logits": gate.OutputGate(limits={key: value})}), REPORT
        )

    assert missed(good) == []
    if bad is not None:
        (found,) = missed(bad)
        assert (found.verdict, found.where, found.limit) == (Verdict.FAIL, "logits", key)


def test_a_limit_on_what_was_not_measured_is_inconclusive():
    limits = {"max_kl_mean": 1.0, "max_abs": 1.0}
    row = dataclasses.replace(ROW, max_abs=None)
    report = dataclasses.replace(REPORT, rows=(row,))
    found = gate.judge(gate.Gate(outputs={"logits": gate.OutputGate(limits=limits)}), report)
    assert [m.verdict for m in found] == [Verdict.INCONCLUSIVE] * 2


def test_a_number_that_is_not_one_never_holds():
    row = dataclasses.replace(ROW, rmse=float("nan"))
    report = dataclasses.replace(REPORT, rows=(row,))
    for key in ("max_rmse",):
        (found,) = gate.judge(
            gate.Gate(outputs={"logits": gate.OutputGate(limits={key: 9})}), report
        )
        assert found.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        (PairedAccuracy(10_000, 9_000, 5, 5), None),
        (PairedAccuracy(10_000, 9_000, 50, 5), Verdict.FAIL),
        (PairedAccuracy(360, 350, 0, 0), Verdict.INCONCLUSIVE),
        (None, Verdict.INCONCLUSIVE),
    ],
)
def test_a_drop_in_accuracy_must_be_shown_to_be_small(seen, verdict):
    row = dataclasses.replace(ROW, accuracy=seen)
    report = dataclasses.replace(REPORT, rows=(row,))
    outputs = {"logits": gate.OutputGate(max_accuracy_drop=0.002)}
    found = [m.verdict for m in gate.judge(gate.Gate(outputs=outputs), report)]
    assert found == ([] if verdict is None else [verdict])


def test_too_few_samples_are_no_evidence():
    assert gate.judge(gate.Gate(min_samples=8), REPORT) == []
    (found,) = gate.judge(gate.Gate(min_samples=9), REPORT)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.message == "8 samples, but the gate asks for 9"


def test_a_gate_for_another_output_is_an_error():
    with pytest.raises(UsageError, match="names no output: 'logit'; did you mean 'logits'"):
        gate.judge(gate.Gate(outputs={"logit": gate.OutputGate()}), REPORT)


@pytest.mark.parametrize(
    ("seen", "labeled", "verdict"),
    [
        (PairedAccuracy(10_000, 9_000, 5, 5), None, None),
        (PairedAccuracy(10_000, 9_000, 5, 5), "logits", None),
        (PairedAccuracy(10_000, 9_000, 50, 5), None, Verdict.FAIL),
        (PairedAccuracy(10_000, 9_000, 50, 5), "logits", Verdict.FAIL),
        (PairedAccuracy(360, 350, 0, 0), None, Verdict.INCONCLUSIVE),
        (None, None, Verdict.INCONCLUSIVE),
        (None, "logits", Verdict.INCONCLUSIVE),
    ],
)
def test_a_drop_for_whatever_output_has_labels(seen, labeled, verdict):
    report = dataclasses.replace(REPORT, rows=(dataclasses.replace(ROW, accuracy=seen),))
    given = gate.Gate(max_accuracy_drop=0.002, labeled=labeled)
    found = [m.verdict for m in gate.judge(given, report)]
    assert found == ([] if verdict is None else [verdict])


def test_budgets():
    given = gate.Gate(budgets={"tflite": {"max_size_mib": 4.0}})

    def judged(format_name, size):
        artifact = {"format": format_name, "size_bytes": size, "sha256": ""}
        return gate.judge(given, dataclasses.replace(REPORT, artifact=artifact))

    assert judged("onnx", 2**30) == judged("tflite", 4 * 2**20) == []
    (found,) = judged("tflite", 5 * 2**20)
    assert (found.verdict, found.message) == (Verdict.FAIL, "5 MiB is above max_size_mib = 4")
