"""Errors become messages and exit codes in one place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mpexport import errors
from mpexport.findings import Severity, Verdict

CODES = [
    (errors.MpExportError, 1, "error"),
    (errors.UsageError, 2, "error"),
    (errors.InputError, 3, "error"),
    (errors.UnsafeModelError, 4, "error"),
    (errors.ConversionError, 5, "error"),
    (errors.OutputError, 6, "error"),
    (errors.VerificationError, 7, "failed"),
    (errors.InconclusiveError, 9, "failed"),
    (errors.WorkerError, 10, "error"),
    (errors.MissingDependencyError, 11, "error"),
    (errors.PrecisionError, 12, "failed"),
]


@pytest.mark.parametrize(("kind", "code", "status"), CODES)
def test_exit_codes(
    cli: Callable[..., Any], library: Any, kind: type[Any], code: int, status: str
) -> None:
    library.answers["convert"] = kind(
        "no op\nfor this", hint="use another", where="layer", details={"log": "/tmp/w.log"}
    )
    ended = cli("tflite", "m")
    assert ended.code == code
    assert ended.out == ""
    assert ended.err == "mpexport: error: no op for this\nhint: use another\nlog: /tmp/w.log\n"
    ended = cli("tflite", "m", "--json")
    document = json.loads(ended.out)
    assert ended.code == document["error"]["exit_code"] == code
    assert (document["status"], document["result"]) == (status, None)
    assert document["error"]["where"] == "layer"


def test_no_hint_no_line(cli: Callable[..., Any], library: Any) -> None:
    library.answers["check"] = errors.InputError("m: no such file")
    assert cli("check", "m").err == "mpexport: error: m: no such file\n"


def test_names_from_a_model_cannot_command_the_terminal(
    cli: Callable[..., Any], library: Any
) -> None:
    library.answers["check"] = errors.ConversionError("layer \x1b[2J\x07 \udc80 é")
    assert cli("check", "m").err == "mpexport: error: layer \\x1b[2J\\x07 \\udc80 é\n"


def test_debug_shows_the_traceback(cli: Callable[..., Any], library: Any) -> None:
    library.answers["check"] = errors.InputError("m: no such file")
    ended = cli("check", "m", "--debug")
    assert "Traceback" in ended.err
    assert ended.err.endswith("mpexport: error: m: no such file\n")


def test_a_bug(cli: Callable[..., Any], library: Any) -> None:
    library.answers["check"] = KeyError("lost\nand found")
    ended = cli("check", "m")
    assert ended.code == 1
    assert ended.err == (
        "mpexport: internal error: KeyError: 'lost\\nand found' "
        "(please report; --debug shows the traceback)\n"
    )
    ended = cli("check", "m", "--json", "--debug")
    assert "Traceback" in ended.err
    assert json.loads(ended.out)["error"]["code"] == "internal"


def test_parity_verdicts(cli: Callable[..., Any], library: Any, make: Any) -> None:
    good = make.parity("good.tflite")
    bad = make.parity("bad.tflite", make.row(verdict=Verdict.FAIL, cause="conversion"))
    unknown = make.parity(
        "unknown.tflite", make.row(verdict=Verdict.INCONCLUSIVE, cause="no evidence")
    )
    for reports, code, verdict in (
        ([good], 0, "PASS"),
        ([good, bad], 7, "FAIL"),
        ([good, unknown], 9, "INCONCLUSIVE"),
        ([unknown, bad], 7, "FAIL"),
    ):
        library.answers["compare"] = reports
        ended = cli("parity", "m", "f")
        assert ended.code == code
        assert ended.out.splitlines()[-1].startswith(f"{verdict}: ")
        assert ended.err.startswith("mpexport: error: ") == bool(code)
        document = json.loads(cli("parity", "m", "f", "--json").out)
        assert document["result"]["verdict"] == verdict
        assert document["status"] == ("failed" if code else "ok")


def test_nothing_compared(cli: Callable[..., Any], library: Any, make: Any) -> None:
    empty = make.parity("empty.tflite")
    library.answers["compare"] = [replace(empty, rows=())]
    ended = cli("parity", "m", "f")
    assert ended.code == 9
    assert "no output was compared" in ended.err


@pytest.mark.parametrize(
    ("severities", "code"),
    [((), 0), ((Severity.WARNING, Severity.INFO), 0), ((Severity.WARNING, Severity.ERROR), 12)],
)
def test_check_fails_on_errors_only(
    cli: Callable[..., Any], library: Any, make: Any, severities: tuple[Severity, ...], code: int
) -> None:
    library.answers["check"] = make.precision(*severities)
    ended = cli("check", "m")
    assert ended.code == code
    assert "dtype" in ended.out
    if code:
        assert ended.err == (
            "mpexport: error: m: the check found 1 error: Softmax in float16\nhint: use float32\n"
        )


def test_quiet(cli: Callable[..., Any], library: Any, make: Any) -> None:
    assert cli("tflite", "m", "-q").out == ""
    library.answers["check"] = make.precision(Severity.ERROR)
    assert "error half-head" in cli("check", "m", "-q").out


FAKE = """
import sys
from mpexport import api
from mpexport.precision import PrecisionReport
from mpexport.cli.main import main
api.check = lambda *a, **k: PrecisionReport("\\xe9" * 100000, (), (), (), (), ())
sys.exit(main(sys.argv[1:]))
"""


def test_reader_goes_away(process: Callable[..., Any]) -> None:
    for words in (["check", "m"], ["check", "m", "--json"], ["--help"]):
        reader, writer = os.pipe()
        os.close(reader)
        ended = subprocess.run(
            [sys.executable, "-c", FAKE, *words], stdout=writer, stderr=subprocess.PIPE, check=False
        )
        os.close(writer)
        assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_full_disk() -> None:
    for words in (["check", "m"], ["check", "m", "--json"], ["--help"]):
        with open("/dev/full", "wb") as full:
            ended = subprocess.run(
                [sys.executable, "-c", FAKE, *words],
                stdout=full,
                stderr=subprocess.PIPE,
                check=False,
            )
        assert ended.returncode == 6
        assert ended.stderr.count(b"\n") == 1
        assert b"standard output cannot be written to" in ended.stderr


@pytest.mark.parametrize(("closed", "code"), [(">&-", 6), ("2>&-", 0)])
def test_closed_stream(process: Callable[..., Any], closed: str, code: int) -> None:
    ended = process("-c", f'"$0" -c "$1" check m {closed}', sys.executable, FAKE, command=["sh"])
    assert ended.code == code
    assert "Traceback" not in ended.err


def test_ascii_terminal(process: Callable[..., Any]) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    ended = process("check", "m", command=[sys.executable, "-c", FAKE], env=environment)
    assert ended.code == 0
    assert ended.out.startswith("\\xe9\\xe9")
