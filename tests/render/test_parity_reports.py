"""JUnit, Markdown and GitHub annotations say what the document says, whatever names it holds."""

from __future__ import annotations

import copy
import re
import xml.etree.ElementTree as ET
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from mpexport.errors import InputError
from mpexport.findings import Verdict
from mpexport.parity.exact import Octaves
from mpexport.render import github, junit, layout, markdown, parity_document
from tests.render import documents

VERDICTS = {"pass": "PASS", "fail": "FAIL", "inconclusive": "INCONCLUSIVE", "early": "ERROR"}
ATTACKS = (
    "]]>",
    "a|b",
    "\\|",
    "`code`",
    "<script>alert(1)</script>",
    "line\r\nbreak\u2028here",
    "::error::x",
    "  ::add-mask::x",
    "##[error]x",
    "\ud800",
    "\u202eevil\u202c",
    "\x00\x1b[2J\x7f\ufffe",
    "&amp;&#0;",
    "\"'><img src=x onerror=alert(1)>",
    "[link](https://example.com) www.example.com @user #1 :tada: $x$",
    "![i](x) <!-- --> </details>",
    "- list",
    "# heading",
    "%0A::error::",
    "a,b:c%",
    "x" * 5000,
)
hostile = st.one_of(
    st.sampled_from(ATTACKS),
    st.text(st.characters(), max_size=30),  # lone surrogates included
    st.text("|`<>&\"'\\*_[]()#!:@\n\r\x00\u202e\ud800\ufffe%,-", max_size=20),
)


def hostile_document(names: list[str]) -> dict[str, Any]:
    """A failing document with the names wherever a model's author can put one."""
    document = documents.failing()
    it = iter(names)
    for candidate in document["result"]["reports"]:
        candidate["candidate"], candidate["reference"] = next(it), next(it)
        candidate["environment"] = {next(it): next(it)}
        candidate["notes"] = [next(it)]
        for row in candidate["outputs"]:
            row["output"], row["message"], row["worst_candidate"] = next(it), next(it), next(it)
        for limit in candidate["missed"]:
            limit["where"], limit["limit"], limit["message"] = next(it), next(it), next(it)
    document["error"]["message"], document["error"]["hint"] = next(it), next(it)
    return document


many_names = st.lists(hostile, min_size=24, max_size=24)


def read(document: dict[str, Any]) -> parity_document.ParityDocument:
    return parity_document.read(document)


def shown(name: str) -> str:
    """As people see it: on one line, controls escaped, of bounded length."""
    line = layout.one_line(name)
    return line if len(line) <= 600 else line[:599] + "…"


@pytest.mark.parametrize("kind", documents.ALL)
def test_verdict(kind):
    document = documents.ALL[kind]()
    assert read(document).verdict == VERDICTS[kind]
    for render in (junit.render, markdown.render, github.render):
        assert render(read(document)) == render(read(copy.deepcopy(document)))
    assert VERDICTS[kind] in markdown.render(read(document)).splitlines()[0]
    assert f"%3A%3A{VERDICTS[kind]}" not in github.render(read(document))
    assert f"::{VERDICTS[kind]}: " in github.render(read(document)).splitlines()[-1]


# --- the document ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", documents.ALL)
def test_schema(kind):
    validator = jsonschema.Draft202012Validator(parity_document.schema())
    validator.check_schema(parity_document.schema())
    document = documents.ALL[kind]()
    validator.validate(document)
    # Readers and the schema let members be that a later version adds.
    document["later"] = 1
    for candidate in (document["result"] or {"reports": []})["reports"]:
        candidate["later"] = {"a": 1}
        for row in candidate["outputs"]:
            row["later"] = [1]
    validator.validate(document)
    assert read(document).verdict == VERDICTS[kind]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d.update(command="bench"),
        lambda d: d.update(schema_version="2.0"),
        lambda d: d.update(status="ok"),
        lambda d: d["result"].update(verdict="SKIPPED"),
        lambda d: d["result"]["reports"].clear(),
        lambda d: d["result"]["reports"][0].pop("outputs"),
        lambda d: d["result"]["reports"][1].update(verdict="PASS"),
        lambda d: d["result"]["reports"][0]["outputs"][0].update(max_abs="big"),
        lambda d: d["result"]["reports"][0]["outputs"][0].update(errors={"zeros": 0}),
        lambda d: d["result"]["reports"][0]["outputs"][0]["tolerance"].update(rtol=-1),
        lambda d: d["error"].pop("exit_code"),
    ],
)
def test_schema_refuses(spoil):
    document = documents.failing()
    spoil(document)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, parity_document.schema())


def test_what_is_not_known_to_be_good_is_not_good():
    """Nothing in a document turns a bad member into a PASS of the whole."""
    good = documents.passing()
    assert read(good).error() is None
    spoils = [
        lambda d: d["result"].update(verdict="FAIL"),
        lambda d: d["result"].update(verdict="SKIPPED"),
        lambda d: d["result"].pop("verdict"),
        lambda d: d["result"].update(reports=[]),
        lambda d: d["result"]["reports"].append({"verdict": "PASS"}),
        lambda d: d["result"]["reports"].append(7),
        lambda d: d["result"]["reports"][0]["outputs"][0].update(verdict="FAIL"),
        lambda d: d["result"]["reports"][0]["outputs"].append(None),
        lambda d: d["result"]["reports"][0].update(missed=[{"verdict": "PASS"}]),
        lambda d: d.update(error={"code": "of a later version", "exit_code": 40}),
    ]
    for spoil in spoils:
        document = documents.passing()
        spoil(document)
        view = read(document)
        assert view.verdict in ("FAIL", "INCONCLUSIVE")
        assert view.error() is not None
        assert view.error().exit_code != 0
        root = ET.fromstring(junit.render(view).encode())
        assert int(root.get("failures")) + int(root.get("errors")) > 0
        assert re.search("^::(error|warning) ", github.render(view), re.MULTILINE)
        assert f": {view.verdict}\n" in markdown.render(view)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "no document of mpexport parity"),
        ('{"command": "bench"}', "no document of mpexport parity"),
        ('{"command": "parity"}', "schema version None"),
        ('{"command": "parity", "schema_version": "2.0"}', "schema version '2.0'"),
        ('{"command": "parity", "schema_version": "1.0"}', "neither a result nor an error"),
    ],
)
def test_no_document(source, message):
    with pytest.raises(InputError, match=message):
        parity_document.parse(source, "f.json")


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), hostile),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_member_may_be_anything(data):
    """No renderer fails, whatever stands in place of one member."""
    document = documents.failing()
    spots: list[tuple[Any, Any]] = []

    def collect(value: Any) -> None:
        for key in value if isinstance(value, dict) else range(len(value)):
            spots.append((value, key))
            if isinstance(value[key], (dict, list)):
                collect(value[key])

    collect(document["result"])
    holder, key = data.draw(st.sampled_from(spots))
    holder[key] = data.draw(json_values)
    view = read(document)
    assert view.verdict != "PASS"
    ET.fromstring(junit.render(view).encode())
    markdown.render(view).encode()
    github.render(view).encode()


def test_names_of_cases_and_spread_of_runs_are_shown_where_they_are_known():
    document = documents.failing()
    for report in document["result"]["reports"]:
        report["cases"] = {"0": "largest values"}
        report["run_to_run"] = {"logits": 3.25e-7}
    jsonschema.validate(document, parity_document.schema())
    facts = dict(read(document).candidates[1].outputs[0].facts())
    assert facts["run to run"] == "3.25e-07"
    assert facts["worst element"].startswith("case 0 (largest values), [")
    assert "run to run" not in dict(read(documents.failing()).candidates[1].outputs[0].facts())


# --- JUnit ----------------------------------------------------------------------------------------


def test_junit_counts_what_the_document_says():
    root = ET.fromstring(junit.render(read(documents.failing())).encode())
    suites = {s.get("name"): s for s in root}
    bad, good = suites["release/stale.tflite"], suites["release/cnn.tflite"]
    assert [s.get(k) for s in (good, bad) for k in ("tests", "failures", "errors")] == [
        *("1", "0", "0"),
        *("3", "3", "0"),
    ]
    assert [root.get(k) for k in ("tests", "failures", "errors", "skipped")] == ["4", "3", "0", "0"]
    names = [case.get("name") for case in bad.iter("testcase")]
    assert names == ["output logits", "output embedding", "limit max_ulp of logits"]
    failure = bad.find("testcase/failure")
    row = documents.failing()["result"]["reports"][1]["outputs"][0]
    assert failure.get("type") == row["cause"] == "conversion"
    assert failure.get("message") == row["message"]
    for line in ("max abs error: ", "noise floor (trained model): ", "worst element: case 0, ["):
        assert line in failure.text
    environment = {p.get("name"): p.get("value") for p in bad.iter("property")}
    assert environment["environment.runtime"] == "litert"
    assert environment["samples"] == "64"


def test_junit_makes_errors_of_what_was_not_compared():
    root = ET.fromstring(junit.render(read(documents.inconclusive())).encode())
    assert root.get("failures") == root.get("skipped") == "0"
    assert root.get("errors") == "3"
    found = {s.get("name"): [e.get("message") for e in s.iter("error")] for s in root}
    assert found == {
        "constant.onnx": ["all of the reference is one number, which proves nothing"],
        "empty.onnx": ["no output was compared"],
        "release/cnn.tflite": ["64 samples, 360 needed"],
    }
    root = ET.fromstring(junit.render(read(documents.ended_early())).encode())
    (error,) = root.iter("error")
    assert error.get("type") == "worker"
    assert error.get("message") == "m.tflite: the worker was killed"


@settings(max_examples=150, deadline=None)
@given(many_names)
def test_junit_with_hostile_names(names):
    document = hostile_document(names)
    root = ET.fromstring(junit.render(read(document)).encode("utf-8"))
    reports = document["result"]["reports"]
    assert [s.get("name") for s in root] == [shown(r["candidate"]) for r in reports]
    for suite, candidate in zip(root, reports, strict=True):
        cases = suite.findall("testcase")
        wanted = [f"output {shown(row['output'])}" for row in candidate["outputs"]]
        wanted += [f"limit {shown(m['limit'])} of {shown(m['where'])}" for m in candidate["missed"]]
        assert [case.get("name") for case in cases] == wanted
        assert {child.tag for case in cases for child in case} <= {"failure", "system-out"}
    assert [root.get(k) for k in ("tests", "failures", "errors")] == ["4", "3", "0"]


# --- Markdown -------------------------------------------------------------------------------------

PARSER = MarkdownIt("commonmark").enable("table")
TAGS = re.compile(r"</?(code|details|summary)>")


def cells(source: str) -> list[list[str]]:
    """The texts of the rows of all tables, as a reader sees them."""
    rows: list[list[str]] = []
    in_row = False
    for token in PARSER.parse(source):
        if token.type == "tr_open":
            rows.append([])
        if token.type in ("tr_open", "tr_close"):
            in_row = token.type == "tr_open"
        if token.type == "inline" and in_row:
            children = token.children or []
            assert {c.type for c in children} <= {"text", "html_inline", "text_special"}
            assert all(TAGS.fullmatch(c.content) for c in children if c.type == "html_inline")
            rows[-1].append("".join(c.content for c in children if c.type != "html_inline"))
    return rows


def test_markdown_of_a_failure():
    source = markdown.render(read(documents.failing()))
    lines = source.splitlines()
    assert lines[0] == "## ❌ mpexport parity: FAIL"
    head, *rows = cells(source)[:4]
    assert head[:4] == ["candidate", "output", "verdict", "cause"]
    assert [row[0] for row in rows] == ["release/stale.tflite"] * 2 + ["release/cnn.tflite"]
    assert rows[0][3] == "conversion"
    number = documents.failing()["result"]["reports"][0]["outputs"][0]["max_abs"]
    assert rows[2][4] == f"{number:.3g}"
    assert "max&#95;ulp" in source


@settings(max_examples=150, deadline=None)
@given(many_names)
def test_markdown_with_hostile_names(names):
    document = hostile_document(names)
    source = markdown.render(read(document))
    source.encode("utf-8")
    rows = cells(source)
    wanted = [
        [shown(report["candidate"]), shown(row["output"])]
        for report in document["result"]["reports"]
        for row in report["outputs"]
    ]
    visible = [[cell.replace("\u200b", "") for cell in row] for row in rows[1 : len(wanted) + 1]]
    squeezed = sorted([c.strip() for c in row[:2]] for row in visible)
    assert squeezed == sorted([n.replace("\u200b", "").strip() for n in row] for row in wanted)
    assert all(len(row) == 8 for row in rows[: len(wanted) + 1])
    tokens = PARSER.parse(source)
    assert sum(t.type == "heading_open" for t in tokens) == 1
    html = [t.content for t in tokens if t.type == "html_block"]
    for block in html:
        assert re.sub(TAGS, "", block).count("<") == 0
    found = [c for t in tokens for c in t.children or []]
    assert not {"link_open", "image", "code_inline"} & {c.type for c in found}


def test_markdown_stays_below_what_github_shows():
    names = tuple(f"{'|' * 580}{i}" for i in range(900))
    source = markdown.render(read(documents.of(documents.report(names=names))))
    assert len(source.encode()) < 2**20
    assert "more outputs left out" in source
    assert source.rstrip().splitlines()[-1].startswith("mpexport ")


# --- GitHub ---------------------------------------------------------------------------------------

COMMAND = re.compile(r"::(error|warning|notice) title=([^:,\r\n]*)::([^\r\n]*)")


def decoded(value: str) -> str:
    """As the runner does it."""
    for escape, character in (
        ("%0D", "\r"),
        ("%0A", "\n"),
        ("%3A", ":"),
        ("%2C", ","),
        ("%25", "%"),
    ):
        value = value.replace(escape, character)
    return value


def test_github_levels():
    lines = github.render(read(documents.failing())).splitlines()
    assert [COMMAND.fullmatch(line)[1] for line in lines] == ["error"] * 3 + ["notice"]
    assert decoded(COMMAND.fullmatch(lines[0])[2]).startswith("release/stale.tflite: output ")
    levels = {
        line.split(" ")[0] for line in github.render(read(documents.inconclusive())).split("\n")
    }
    assert levels == {"::warning", "::notice", ""}
    assert github.render(read(documents.passing())).count("\n") == 1
    assert github.render(read(documents.ended_early())).startswith("::error ")


def test_github_shows_ten_of_a_kind_and_the_count():
    names = tuple(f"o{i}" for i in range(25))
    lines = github.render(read(documents.of(documents.report(error=0.5, names=names)))).splitlines()
    assert len(lines) == 11
    assert lines[-1].endswith("; 15 more not shown here")


@settings(max_examples=150, deadline=None)
@given(many_names)
def test_github_with_hostile_names(names):
    document = hostile_document(names)
    lines = github.render(read(document)).encode("utf-8").decode().split("\n")
    assert lines.pop() == ""
    found = [COMMAND.fullmatch(line) for line in lines]
    assert all(found)
    assert [match[1] for match in found] == ["error"] * 3 + ["notice"]
    assert not any("##[" in line for line in lines)
    bad = document["result"]["reports"][1]
    titles = {f"{shown(bad['candidate'])}: output {shown(o['output'])}" for o in bad["outputs"]}
    assert {decoded(match[2]) for match in found[:2]} == titles


# --- histograms -----------------------------------------------------------------------------------


def test_histograms_of_a_row_are_those_of_the_numbers():
    row = documents.report().rows[0]
    for octaves, largest in ((row.errors, row.max_abs), (row.noise_errors, row.noise_floor)):
        assert octaves.zeros + sum(count for _, count in octaves.counts) == row.count == 640
        top = octaves.counts[-1][0]
        assert 2.0 ** (top - 1) < largest <= 2.0**top
        assert Octaves.from_json(octaves.to_json()) == octaves
    assert row.verdict is Verdict.PASS
    assert type(row).from_json(row.to_json()) == row
