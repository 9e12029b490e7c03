"""A stored comparison as blocks of text."""

from __future__ import annotations

from collections.abc import Sequence

from mpexport.parity.report import ParityReport
from mpexport.render import envelope, parity_document, text
from mpexport.render.layout import Block, Facts, Table, plain
from mpexport.render.parity_document import CandidateView, OutputView, ParityDocument

_COLUMNS = ("output", ">max error", ">noise floor", ">rtol needed", ">atol needed", "verdict")


def blocks(document: ParityDocument) -> list[Block]:
    """Each candidate with a table of its outputs, what is wrong with it, and the verdict."""
    found: list[Block] = []
    for candidate in document.candidates:
        pairs = [
            ("reference", candidate.reference),
            ("run in", f"{candidate.runtime}, samples: {candidate.samples}"),
            *(("note", note) for note in candidate.notes),
        ]
        rows = [_row(output) for output in candidate.outputs]
        found += [Facts(candidate.path, pairs), ""]
        found.append(Table(_COLUMNS, rows) if rows else "no output was compared")
        found += [Facts("", _problems(candidate)), ""]
    found.append(f"{document.verdict}: {document.summary}")
    return found


def of_reports(reports: Sequence[ParityReport]) -> str:
    """The same of reports, as plain text that needs nothing but numpy."""
    verdicts = {report.verdict.value for report in reports}
    verdict = next((v for v in ("FAIL", "INCONCLUSIVE", "PASS") if v in verdicts), "INCONCLUSIVE")
    result = {"verdict": verdict, "reports": [report.to_json() for report in reports]}
    return plain(blocks(parity_document.read(envelope.build("parity", result=result))))


def failure(reports: Sequence[ParityReport]) -> str:
    """What a test that failed says: how many files, and the tables of those; empty if all pass."""
    failed = [report for report in reports if not report]
    if reports and not failed:
        return ""
    verb = "does" if len(failed) == 1 else "do"
    what = f"{len(failed)} of {text.count(len(reports), 'file')} {verb} not pass"
    return f"{what}\n\n{of_reports(failed)}"


def _row(output: OutputView) -> tuple[str, ...]:
    numbers = ("max_abs", "noise_floor", "required_rtol", "required_atol")
    return (output.name, *map(output.shown, numbers), f"{output.verdict.value} ({output.cause})")


def _problems(candidate: CandidateView) -> list[tuple[str, str]]:
    pairs = [
        (output.name, line)
        for output in candidate.outputs
        if output.verdict.value != "PASS"
        for line in (output.message, dict(output.facts()).get("worst element", ""))
        if line
    ]
    return pairs + [(f"{m.limit} of {m.where}", m.message) for m in candidate.missed]
