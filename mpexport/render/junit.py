"""A comparison as JUnit XML: a suite per candidate, a case per output and per limit not held."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import quoteattr

from mpexport.findings import Verdict
from mpexport.render.parity_document import CandidateView, OutputView, ParityDocument

# Elements of a case that say why it didn't pass. There is no third: "skipped" reads as harmless.
_ELEMENTS = {Verdict.FAIL: "failure", Verdict.INCONCLUSIVE: "error"}


def render(document: ParityDocument) -> str:
    """The XML, without time stamps: the same document gives the same bytes.

    What fails is a ``failure``; what was not compared, and a run that ended early, is an ``error``.
    Only PASS is neither.
    """
    suites = [_suite(candidate) for candidate in document.candidates]
    known = {Verdict.PASS.value, *(c.verdict.value for c in document.candidates)}
    if document.verdict not in known:
        # An early end, or a verdict that no candidate accounts for.
        kind = document.stated.code if document.stated else "inconclusive"
        message = document.message or f"{document.verdict}: {document.summary}"
        verdict = Verdict.FAIL if document.verdict == Verdict.FAIL.value else Verdict.INCONCLUSIVE
        case = _case("mpexport parity", "run", verdict, kind, message, document.hint)
        suites.append(_element_suite("mpexport parity", [], [(verdict, case)]))
    counts = [sum(pair) for pair in zip(*(counts for counts, _ in suites))]
    head = f"<testsuites name={_attribute('mpexport parity')} {_counted(counts)}>"
    body = [line for _, lines in suites for line in lines]
    declaration = '<?xml version="1.0" encoding="UTF-8"?>'
    return "\n".join([declaration, head, *body, "</testsuites>"]) + "\n"


def _suite(candidate: CandidateView) -> tuple[list[int], list[str]]:
    path = candidate.path
    cases = []
    for output in candidate.outputs:
        body = _numbers(output)
        message = output.message or output.cause
        name = f"output {output.name}"
        cases.append(
            (
                output.verdict,
                _case(path, name, output.verdict, output.cause, message, body),
            )
        )
    for missed in candidate.missed:
        name = f"limit {missed.limit} of {missed.where}"
        cases.append(
            (
                missed.verdict,
                _case(path, name, missed.verdict, "gate", missed.message, missed.message),
            )
        )
    worst = {verdict for verdict, _ in cases}
    if candidate.verdict not in worst and candidate.verdict is not Verdict.PASS:
        message = "the verdict of the whole" if cases else "no output was compared"
        case = _case(path, "verdict", candidate.verdict, "no evidence", message, message)
        cases.append((candidate.verdict, case))
    properties = [
        ("reference", candidate.reference),
        ("samples", candidate.samples),
        ("seed", candidate.seed),
        ("inputs_sha256", candidate.inputs_sha256),
        *((f"environment.{name}", value) for name, value in candidate.environment),
        *(("note", note) for note in candidate.notes),
    ]
    return _element_suite(path, properties, cases)


def _element_suite(
    name: str, properties: list[tuple[str, str]], cases: list[tuple[Verdict, list[str]]]
) -> tuple[list[int], list[str]]:
    """Counts of tests, failures and errors; the lines of the suite."""
    verdicts = [verdict for verdict, _ in cases]
    counts = [len(cases), *(verdicts.count(verdict) for verdict in _ELEMENTS)]
    lines = [f"  <testsuite name={_attribute(name)} {_counted(counts)}>"]
    if properties:
        lines.append("    <properties>")
        lines += [
            f"      <property name={_attribute(key)} value={_attribute(value)}/>"
            for key, value in properties
        ]
        lines.append("    </properties>")
    for _, case in cases:
        lines += case
    lines.append("  </testsuite>")
    return counts, lines


def _counted(counts: Iterable[int]) -> str:
    names = ("tests", "failures", "errors")
    return " ".join(f'{name}="{count}"' for name, count in zip(names, counts)) + ' skipped="0"'


def _case(suite: str, name: str, verdict: Verdict, kind: str, message: str, body: str) -> list[str]:
    opening = f'    <testcase classname={_attribute(suite)} name={_attribute(name)} time="0"'
    if verdict is Verdict.PASS:
        return [
            f"{opening}>",
            f"      <system-out>{_content(body)}</system-out>",
            "    </testcase>",
        ]
    element = _ELEMENTS[verdict]
    return [
        f"{opening}>",
        f"      <{element} type={_attribute(kind)} message={_attribute(message)}>"
        f"{_content(body)}</{element}>",
        "    </testcase>",
    ]


def _numbers(output: OutputView) -> str:
    return "\n".join([output.message, *(f"{name}: {value}" for name, value in output.facts())])


def _content(value: str) -> str:
    # The texts of a document hold no character that XML forbids, see `layout.one_line`.
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _attribute(value: str) -> str:
    return quoteattr(value)
