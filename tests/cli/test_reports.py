"""Reports beside the result: written whatever the verdict, whole or not at all, in their places."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mpexport.errors import InputError, WorkerError
from mpexport.findings import Verdict

FLAGS = ("junit", "markdown", "html")


def flags(folder: Path) -> list[str]:
    return [word for name in FLAGS for word in (f"--{name}", str(folder / name))]


def failing(make: Any) -> list[Any]:
    return [make.parity("bad.tflite", make.row(verdict=Verdict.FAIL, cause="conversion"))]


@pytest.mark.parametrize("verdict", ["PASS", "FAIL", "INCONCLUSIVE"])
def test_reports_are_written_whatever_the_verdict(
    verdict: str, cli: Callable[..., Any], library: Any, make: Any, tmp_path: Path
) -> None:
    row = make.row(verdict=Verdict(verdict), cause="ok")
    library.answers["compare"] = [make.parity("m.tflite", row, notes=("a note",))]
    ended = cli("parity", "m", "f", *flags(tmp_path), "--github", "--json")
    assert ended.code == {"PASS": 0, "FAIL": 7, "INCONCLUSIVE": 9}[verdict]
    root = ET.parse(tmp_path / "junit").getroot()
    counts = {"PASS": ("0", "0"), "FAIL": ("1", "0"), "INCONCLUSIVE": ("0", "1")}[verdict]
    assert (root.get("failures"), root.get("errors")) == counts
    assert f"parity: {verdict}\n" in (tmp_path / "markdown").read_text(encoding="utf-8")
    assert f'id="verdict">{verdict}<' in (tmp_path / "html").read_text(encoding="utf-8")
    # Standard output is the result alone; annotations go where GitHub reads them too.
    assert json.loads(ended.out)["result"]["verdict"] == verdict
    assert f"::notice title=mpexport parity::{verdict}: " in ended.err
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(FLAGS)


def test_a_stored_document_gives_the_same_reports(
    cli: Callable[..., Any], library: Any, make: Any, tmp_path: Path
) -> None:
    row = make.row(
        output="a|<b>\x00", verdict=Verdict.FAIL, cause="precision", max_rel=float("inf")
    )
    library.answers["compare"] = [make.parity("good.tflite"), make.parity("bad.onnx", row)]
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    ended = cli("parity", "m", "f", *flags(first), "--github", "--json")
    stored = tmp_path / "parity.json"
    stored.write_text(ended.out, encoding="utf-8")
    again = cli("report", str(stored), *flags(second), "--github")
    assert again.code == ended.code == 7
    for name in FLAGS:
        assert (first / name).read_bytes() == (second / name).read_bytes()
    assert ended.err == again.err
    assert "bad.onnx" in again.out
    assert "FAIL: 1 of 2 files passed" in again.out
    document = json.loads(cli("report", str(stored), "--json").out)
    assert document["command"] == "report"
    assert document["result"] == json.loads(ended.out)["result"]


def test_a_run_that_breaks_off_is_reported(
    cli: Callable[..., Any], library: Any, tmp_path: Path
) -> None:
    library.answers["compare"] = WorkerError("m.tflite: the worker was killed", hint="try again")
    ended = cli("parity", "m", "f", *flags(tmp_path), "--github", "--json")
    assert ended.code == 10
    (error,) = ET.parse(tmp_path / "junit").getroot().iter("error")
    assert error.get("message") == "m.tflite: the worker was killed"
    assert "::error title=mpexport parity::m.tflite: the worker was killed\n" in ended.err
    assert 'id="verdict">ERROR<' in (tmp_path / "html").read_text(encoding="utf-8")
    stored = tmp_path / "parity.json"
    stored.write_text(ended.out, encoding="utf-8")
    again = cli("report", str(stored))
    assert again.code == 10
    assert "mpexport: error: m.tflite: the worker was killed\nhint: try again\n" in again.err


def test_places_are_tried_before_the_work(
    cli: Callable[..., Any], library: Any, tmp_path: Path
) -> None:
    for place, message in (
        (tmp_path / "none" / "r.xml", "no such folder"),
        (tmp_path, "is a folder, a file is to be written"),
        (Path(os.devnull), "exists and is no regular file"),
        (Path("/proc/r.xml"), "cannot be written to"),  # not even by root
    ):
        ended = cli("parity", "m", "f", "--junit", str(place))
        assert ended.code == 6
        assert message in ended.err
    for name in FLAGS:
        ended = cli("parity", "m", "f", f"--{name}", "f/r")
        assert ended.code == 6
    assert library.calls == []
    assert Path(os.devnull).is_char_device()


def test_a_report_that_fails_leaves_the_old_one(
    cli: Callable[..., Any],
    library: Any,
    make: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = tmp_path / "r.xml"
    report.write_text("old", encoding="utf-8")
    library.answers["compare"] = failing(make)

    def full(self: Path, *args: Any, **kwargs: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    ended = cli("parity", "m", "f", "--junit", str(report), "--json")
    assert ended.code == 6
    document = json.loads(ended.out)
    assert (document["status"], document["error"]["code"]) == ("error", "output")
    assert "the disk is full" in ended.err
    assert report.read_text(encoding="utf-8") == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["r.xml"]


def test_reports_replace_nothing_that_is_read(
    cli: Callable[..., Any], library: Any, tmp_path: Path
) -> None:
    stored = tmp_path / "f"
    stored.write_text("precious", encoding="utf-8")
    link = tmp_path / "link"
    link.symlink_to(stored)
    for words in (
        ["parity", "m", str(stored), "--html", str(stored)],
        ["parity", str(stored), "f", "--html", str(link)],
        ["report", str(stored), "--junit", str(stored)],
        ["parity", "m", "f", "--html", str(tmp_path / "r"), "--junit", str(tmp_path / "r")],
    ):
        assert cli(*words).code == 2, words
    assert library.calls == []
    assert stored.read_text(encoding="utf-8") == "precious"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f", "link"]


def test_bad_documents(cli: Callable[..., Any], tmp_path: Path) -> None:
    stored, old = tmp_path / "d.json", tmp_path / "r.xml"
    old.write_text("old", encoding="utf-8")
    for content, message in (
        (None, "No such file"),
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[]", "no document of mpexport parity"),
        (json.dumps({"command": "check"}).encode(), "no document of mpexport parity"),
    ):
        if content is not None:
            stored.write_bytes(content)
        ended = cli("report", str(stored), "--junit", str(old))
        assert ended.code == InputError.exit_code
        assert message in ended.err
        assert ended.err.count("\n") <= 2
    assert old.read_text(encoding="utf-8") == "old"


def test_no_name_becomes_a_command_of_the_log(
    cli: Callable[..., Any], library: Any, make: Any
) -> None:
    """GitHub's runner reads commands from every line, the result's lines included."""
    row = make.row(output="::error::x", verdict=Verdict.FAIL, message="##[error]y")
    library.answers["compare"] = [make.parity("::add-mask::z", row, notes=("::stop-commands::t",))]
    for words in ([], ["--json"], ["--github"], ["-v"]):
        ended = cli("parity", "m", "f", *words)
        lines = (ended.out + ended.err).splitlines()
        commands = [x for x in lines if x.lstrip().startswith("::") or "##[" in x]
        assert len(commands) == (2 if words == ["--github"] else 0), commands
        assert all(c.startswith(("::error title=", "::notice title=")) for c in commands)
    document = json.loads(cli("parity", "m", "f", "--json").out)
    assert document["result"]["reports"][0]["outputs"][0]["message"] == "##[error]y"
