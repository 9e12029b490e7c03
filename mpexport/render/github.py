"""A comparison as workflow commands of GitHub Actions, which shows them beside the run.

The runner reads them from both streams of a step, at the start of a line.
"""

from __future__ import annotations

from mpexport.findings import Verdict
from mpexport.render.parity_document import CandidateView, ParityDocument

# GitHub shows no more of a kind per step.
MOST_PER_KIND = 10

_LEVELS = {Verdict.FAIL: "error", Verdict.INCONCLUSIVE: "warning"}


def render(document: ParityDocument) -> str:
    """One line per annotation: ``error`` for what fails, ``warning`` for what proves nothing.

    The last line is a ``notice`` with the verdict and with how many were left out.
    """
    found = [pair for candidate in document.candidates for pair in _problems(candidate)]
    if document.verdict != Verdict.PASS.value and not found:
        message = document.message or document.summary
        found.append(("error", _command("error", "mpexport parity", message)))
    lines, left_out = [], 0
    for level in ("error", "warning"):
        commands = [command for kind, command in found if kind == level]
        lines += commands[:MOST_PER_KIND]
        left_out += len(commands[MOST_PER_KIND:])
    message = f"{document.verdict}: {document.summary}"
    if left_out:
        message += f"; {left_out} more not shown here"
    lines.append(_command("notice", "mpexport parity", message))
    return "".join(line + "\n" for line in lines)


def _problems(candidate: CandidateView) -> list[tuple[str, str]]:
    """Level and command of what keeps a candidate from passing, the worst first."""
    found: list[tuple[Verdict, str, str]] = []
    for output in candidate.worst_first():
        if output.verdict is not Verdict.PASS:
            numbers = (
                f"max error {output.shown('max_abs')}, "
                f"noise floor {output.shown('noise_floor')} ({output.cause})"
            )
            title = f"{candidate.path}: output {output.name}"
            found.append((output.verdict, title, f"{output.message}\n{numbers}"))
    for missed in candidate.missed:
        title = f"{candidate.path}: {missed.limit} of {missed.where}"
        found.append((missed.verdict, title, missed.message))
    explained = {Verdict.PASS, *(verdict for verdict, *_ in found)}
    if candidate.verdict not in explained:
        found.append((candidate.verdict, candidate.path, "no output was compared"))
    return [(_LEVELS[v], _command(_LEVELS[v], title, text)) for v, title, text in found]


def _command(level: str, title: str, message: str) -> str:
    return f"::{level} title={escape_property(title)}::{escape_data(message)}"


def escape_data(value: str) -> str:
    r"""What stands after the second ``::``.

    >>> escape_data("100%\nof a: b")
    '100%25%0Aof a: b'
    """
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(value: str) -> str:
    """The value of a property.

    >>> escape_property("a: b, c")
    'a%3A b%2C c'
    """
    return escape_data(value).replace(":", "%3A").replace(",", "%2C")
