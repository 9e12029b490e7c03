"""``--json``: one document of one shape, whatever happens."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from mpexport import __version__
from mpexport.errors import InputError, PrecisionError
from mpexport.findings import Severity, Verdict
from mpexport.render import envelope

COMMANDS = [
    ["check", "m"],
    ["savedmodel", "m"],
    ["tflite", "m"],
    ["onnx", "m"],
    ["export", "m", "-o", "d"],
    ["parity", "m", "f"],
    ["bench", "f", "g"],
]


def check_schema(document: Any) -> None:
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    validator.check_schema(envelope.schema())
    validator(envelope.schema()).validate(document)


def strict(text: str) -> Any:
    """Parses JSON proper: no NaN, no Infinity, nothing behind."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda w: w[0])
def test_success(cli: Callable[..., Any], library: Any, words: list[str]) -> None:
    ended = cli(*words, "--json")
    document = strict(ended.out)
    assert (ended.code, ended.err) == (0, "")
    assert document["tool"] == {"name": "mpexport", "version": __version__}
    assert document["schema_version"] == "1.0"
    assert document["command"] == words[0]
    assert (document["status"], document["error"]) == ("ok", None)
    assert document["result"]
    assert ended.out == json.dumps(document, indent=2, sort_keys=True) + "\n"
    check_schema(document)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda w: w[0])
def test_failure(cli: Callable[..., Any], library: Any, words: list[str]) -> None:
    for verb in library.answers:
        library.answers[verb] = InputError("m: no such file", hint="look again", where="m")
    document = strict(cli(*words, "--json").out)
    assert document["status"] == "error"
    assert document["error"] == {
        "code": "input",
        "details": {},
        "exit_code": 3,
        "hint": "look again",
        "message": "m: no such file",
        "where": "m",
    }
    check_schema(document)


def test_a_bad_verdict_has_a_result_and_an_error(
    cli: Callable[..., Any], library: Any, make: Any
) -> None:
    row = make.row(verdict=Verdict.FAIL, cause="conversion", max_rel=math.inf, rmse=math.nan)
    library.answers["compare"] = [make.parity("f", row)]
    document = strict(cli("parity", "m", "f", "--json").out)
    assert document["status"] == "failed"
    assert document["error"]["exit_code"] == 7
    output = document["result"]["reports"][0]["outputs"][0]
    assert (output["max_rel"], output["rmse"], output["snr_db"]) == ("Infinity", "NaN", "Infinity")
    check_schema(document)


def test_unknown_command(cli: Callable[..., Any]) -> None:
    for words in (["nothing", "--json"], ["--json"], ["check", "--json"]):
        document = strict(cli(*words).out)
        assert document["error"]["exit_code"] == 2
        check_schema(document)


def test_alias_has_the_name_of_its_command(cli: Callable[..., Any], library: Any) -> None:
    assert strict(cli("normalize", "m", "--json").out)["command"] == "savedmodel"


def test_warnings(cli: Callable[..., Any], library: Any, make: Any) -> None:
    library.answers["check"] = make.precision(Severity.WARNING, Severity.INFO)
    assert strict(cli("check", "m", "--json").out)["warnings"] == [
        {"code": "half-head", "message": "Softmax in float16", "where": "f/softmax"},
        {"code": "note", "message": "serve is used", "where": "m.keras"},
    ]
    library.answers["convert"] = make.export("/out/m.tflite", verified=False)
    codes = [w["code"] for w in strict(cli("tflite", "m", "--json").out)["warnings"]]
    assert codes == ["note", "not-verified"]
    library.answers["compare"] = [make.parity("f", notes=("no noise floor",))]
    assert strict(cli("parity", "m", "f", "--json").out)["warnings"] == [
        {"code": "note", "message": "no noise floor", "where": "f"}
    ]


def test_numbers_that_json_lacks() -> None:
    document = envelope.build(
        "x", result={"a": [math.nan, (math.inf, -math.inf)], 1: {"b": 0.5, "c": True}}
    )
    assert strict(envelope.to_text(document))["result"] == {
        "a": ["NaN", ["Infinity", "-Infinity"]],
        "1": {"b": 0.5, "c": True},
    }


def test_what_is_no_data_is_a_bug() -> None:
    with pytest.raises(TypeError):
        envelope.to_text(envelope.build("x", result={"a": object()}))


def test_schema_refuses() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    good = envelope.build("x", result={})
    check_schema(good)
    bad = envelope.build("x", error=PrecisionError("no"))
    check_schema(bad)
    for change in (
        {"status": "ok", "error": bad["error"]},
        {"status": "error", "error": None},
        {"status": "ok", "result": None},
        {"status": "fine"},
        {"schema_version": "2.0"},
        {"warnings": [{"code": "x"}]},
    ):
        with pytest.raises(jsonschema.ValidationError):
            check_schema({**good, **change})
