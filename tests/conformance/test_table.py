"""The page that is made of the suite's results: nothing bad can look good in it."""

from __future__ import annotations

import pytest

from tests.conformance.case import TARGETS, Case
from tests.conformance.table import render, state


def _never(build):
    raise AssertionError("the page builds nothing")


def cell(code=0, agrees=True, message="", **more):
    twin = {"agrees": agrees, "ratio": 0.5, "problem": ""} if code == 0 else None
    problem = message if code else "" if agrees else "the twin disagrees: 9.00 times the bound"
    return {"code": code, "message": message, "twin": twin, "problem": problem, **more}


def result(name, old=None, bare="ok", **cells):
    targets = {t: cells.get(t.replace("-", "_"), cell()) for t in TARGETS}
    policy = {
        "targets": targets,
        "old_runtime": {"tflite": old or {"runs": True, "problem": "", "predicted": []}},
    }
    return {
        "case": name,
        "seconds": 60.0,
        "bare_float32": {"tflite": "ok", "onnx": "ok"},
        "policies": {
            "mixed_float16": {**policy, "bare": {"tflite": bare, "onnx": "ok"}},
            "mixed_bfloat16": policy,
        },
    }


def page(*results, **cases):
    known = {r["case"]: Case(r["case"], _never, **cases) for r in results}
    return render(known, list(results), ["# Title"])


@pytest.mark.parametrize(
    ("given", "refused", "expected"),
    [
        (cell(), False, "ok"),
        (cell(agrees=False), False, "wrong"),
        (cell(), True, "wrong"),
        (cell(5, message="no op"), True, "refused"),
        (cell(5, message="no op"), False, "refused"),
        (cell(7, message="NaN"), False, "exit 7"),
        (cell(7, message="NaN"), True, "exit 7"),
        (cell(10, message="died"), False, "exit 10"),
    ],
)
def test_state_of_a_cell(given, refused, expected):
    case = Case("g/m", _never, refused={"onnx": "strings"} if refused else {})
    assert state(case, "onnx", given) == expected


def test_a_written_file_that_disagrees_is_a_fault_in_bold():
    text = page(result("layers/Dense"), result("layers/Bad", onnx=cell(agrees=False)))
    assert "| Bad | ok | ok | ok | **wrong** | ok | ok | ok | ok | ok | ok |" in text
    assert "| mixed_float16 | ONNX | 2 | 1 (50.0%) | 0 | 0 | 0 | 1 |" in text
    faults = text.partition("## Faults")[2].partition("##")[0]
    assert "the twin disagrees: 9.00 times the bound (mixed_float16, ONNX): `layers/Bad`" in faults
    assert "Dense" not in faults


def test_refusals_are_grouped_by_reason_and_count_as_not_converted():
    text = page(
        *(
            result(f"layers/{name}", onnx=cell(5, message=f"no op Foo at call/{name}/Foo"))
            for name in ("A", "B")
        )
    )
    assert "- no op Foo (ONNX): `layers/A`, `layers/B`" in text
    assert "| mixed_bfloat16 | ONNX | 2 | 0 (0.0%) | 2 | 0 | 0 | 0 |" in text
    assert text.partition("## Faults")[2].partition("##")[0].strip() == "None."


def test_an_unexplained_op_is_called_so():
    text = page(result("layers/A", tflite=cell(ops_beyond_twin={"CAST": 2})))
    assert "**unexplained**: CAST +2 (mixed_float16, TFLite): `layers/A`" in text


def test_bare_tools_are_counted_and_their_reasons_stay_out_of_the_cells():
    text = page(result("layers/A", bare="fails: ConverterError: x"), result("layers/B"))
    assert "| TFLiteConverter | 2 | 1 | 1 | 0 | 0 |" in text
    assert "| A | ok | ok | ok | ok | ok | fails | ok | ok | ok | ok |" in text


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        (
            {"runs": False, "problem": "no op v9", "predicted": ["Foo v9"]},
            "no op v9 (predicted: Foo v9, TFLite)",
        ),
        (
            {"runs": False, "problem": "no op v9", "predicted": []},
            "no op v9 (not predicted, TFLite)",
        ),
        (
            {"runs": True, "problem": "", "predicted": ["Foo v9"]},
            "runs (predicted: Foo v9, TFLite)",
        ),
    ],
)
def test_the_old_runtime_is_held_against_the_prediction(old, expected):
    text = page(result("layers/A", old=old))
    assert expected in text
    count = 2 if bool(old["predicted"]) != old["runs"] else 0
    assert f"2 files were run there, and {count} did what" in text
