"""A comparison as Markdown, for a step summary or a comment: the verdict first, then a table."""

from __future__ import annotations

import re

from mpexport.findings import Verdict
from mpexport.render.parity_document import ERROR, CandidateView, OutputView, ParityDocument

# GitHub drops a step summary above 1 MiB as a whole.
MAX_BYTES = 2**20
# What is said after the rows, and the fences of open sections.
_RESERVED = 4096
_SIGNS = {"PASS": "✅", "FAIL": "❌", "INCONCLUSIVE": "⚠️", ERROR: "❌"}
_COLUMNS = (
    ("candidate", "---"),
    ("output", "---"),
    ("verdict", "---"),
    ("cause", "---"),
    ("max abs", "---:"),
    ("max rel", "---:"),
    ("noise floor", "---:"),
    ("worst element", "---"),
)
# Everything that Markdown or GitHub may read as more than itself: structure, HTML, math, mentions,
# issue numbers, emoji and links. Bare entities never open or close anything.
_WEB = re.compile(r"(www)\.", re.IGNORECASE)
_SPECIAL = set("\\`*_{}[]<>#!|&~@:$\"'^")


def render(document: ParityDocument) -> str:
    """The Markdown, below 1 MiB: outputs that don't fit are counted, the worst come first."""
    page = _Page()
    page.add(f"## {_SIGNS[document.verdict]} mpexport parity: {document.verdict}\n\n")
    # No line begins with a foreign text, which could be a list or a heading.
    if document.result is not None:
        page.add(f"{document.summary}\n\n")
    for name, line in (("Error", document.message), ("Hint", document.hint)):
        if line:
            page.add(f"{name}: {escape(line)}\n\n")
    rows = [(c, output) for c in document.candidates for output in c.worst_first()]
    rows.sort(key=lambda row: _ORDER.index(row[1].verdict))
    if rows:
        page.add(_line([name for name, _ in _COLUMNS]) + _line([rule for _, rule in _COLUMNS]))
        page.add_all([_row(candidate, output) for candidate, output in rows], "outputs")
        page.add("\n")
    page.add_all([_limits(c) for c in document.candidates if c.missed], "candidates with limits")
    page.add_all([_empty(c) for c in document.candidates if not c.outputs], "candidates")
    details = [_details(c) for c in document.candidates]
    page.add_all(details, "candidates' details")
    page.add(f"mpexport {escape(document.version)}\n")
    return page.text()


_ORDER = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS)


class _Page:
    """Text that stays below the limit."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0

    def add(self, part: str) -> None:
        self._parts.append(part)
        self._size += len(part.encode())

    def add_all(self, parts: list[str], what: str) -> None:
        """Adds what fits, and says how much didn't."""
        for i, part in enumerate(parts):
            if self._size + len(part.encode()) > MAX_BYTES - _RESERVED:
                self.add(f"\n{len(parts) - i} more {what} left out\n\n")
                return
            self.add(part)

    def text(self) -> str:
        return "".join(self._parts)


def escape(value: str) -> str:
    """Text that shows as itself anywhere in a line.

    >>> escape("a|b *c* <script>")
    'a&#124;b &#42;c&#42; &#60;script&#62;'
    """
    # A zero-width space keeps a name from notifying someone, or from becoming a link.
    shown = "".join(f"&#{ord(c)};" if c in _SPECIAL else c for c in value)
    return _WEB.sub(r"\1&#46;&#8203;", shown.replace("&#64;", "&#64;&#8203;"))


def _code(value: str) -> str:
    return f"<code>{escape(value)}</code>"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _row(candidate: CandidateView, output: OutputView) -> str:
    worst = output.worst
    element = "-"
    if worst is not None:
        where = f"case {worst.case}, {worst.index}"
        element = f"{escape(where)}: {escape(f'{worst.candidate} for {worst.reference}')}"
    return _line(
        [
            _code(candidate.path),
            _code(output.name),
            f"{_SIGNS[output.verdict.value]} {output.verdict.value}",
            escape(output.cause),
            *(output.shown(name) for name in ("max_abs", "max_rel", "noise_floor")),
            element,
        ]
    )


def _limits(candidate: CandidateView) -> str:
    lines = [
        f"- {_SIGNS[m.verdict.value]} {_code(candidate.path)}, {escape(m.where)}, "
        f"{_code(m.limit)}: {escape(m.message)}\n"
        for m in candidate.missed
    ]
    return f"Limits of the gate that aren't held:\n\n{''.join(lines)}\n"


def _empty(candidate: CandidateView) -> str:
    return f"{_SIGNS['INCONCLUSIVE']} {_code(candidate.path)}: no output was compared\n\n"


def _details(candidate: CandidateView) -> str:
    summary = f"{_code(candidate.path)}: {candidate.verdict.value}"
    lines = [
        f"- reference: {escape(candidate.reference)}",
        f"- inputs: {escape(candidate.samples)} samples, seed {escape(candidate.seed)}, "
        f"sha256 {_code(candidate.inputs_sha256)}",
        *(f"- {escape(name)}: {escape(value)}" for name, value in candidate.environment),
        *(f"- note: {escape(note)}" for note in candidate.notes),
    ]
    for output in candidate.worst_first():
        facts = "; ".join(f"{escape(name)} {escape(value)}" for name, value in output.facts())
        lines.append(f"- {_code(output.name)}: {escape(output.message)}; {facts}")
    body = "\n".join(lines)
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>\n\n"
