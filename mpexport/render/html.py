"""A comparison as one HTML page: no scripts, no network, every plot inline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from mpexport.findings import Verdict
from mpexport.render import svg, text
from mpexport.render._style import CSS
from mpexport.render.parity_document import CandidateView, OutputView, ParityDocument

# A page is to be looked at; the document holds everything. What is left out is counted, and the
# worst come first.
MOST_STRIPS = 24
MOST_HISTOGRAMS = 6
MOST_ROWS = 300
MOST_REASONS = 6

_SIGNS = {"PASS": "✓", "FAIL": "✕", "INCONCLUSIVE": "?", "ERROR": "!"}
_ORDER = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS)
_MEANING = {
    "PASS": "every file computes what the reference computes",
    "FAIL": "a file does not compute what the reference computes",
    "INCONCLUSIVE": "nothing is proved",
    "ERROR": "the comparison was not done",
}
# Nothing is loaded and nothing runs, even if a name should find a way through the escaping.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_HATCH = (
    '<svg class="defs" aria-hidden="true"><defs><pattern id="hatched" width="6" height="6" '
    'patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="hatch" width="6" height="6"/><line class="hatch-line" x1="0" x2="0" y1="0" '
    'y2="6"/></pattern></defs></svg>'
)


def render(document: ParityDocument) -> str:
    """The page; the same document gives the same bytes."""
    verdict = document.verdict
    worst_first = sorted(
        enumerate(document.candidates), key=lambda pair: _ORDER.index(pair[1].verdict)
    )
    cards = [_card(i, candidate) for i, candidate in worst_first]
    body = [
        "<h1>mpexport parity report</h1>",
        _hero(document),
        _totals(document),
        *cards,
        _warnings(document),
        f"<footer>Made by mpexport {escape(document.version)}. Errors are |candidate − reference| "
        "in float64; the noise floor is the error of the model as trained.</footer>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{verdict}: mpexport parity</title><style>{CSS}</style></head>\n"
        f"<body>{_HATCH}<main>\n" + "\n".join(filter(None, body)) + "\n</main></body></html>\n"
    )


def _name(value: str) -> str:
    """A foreign name: isolated, so that its script can't turn around what stands beside it."""
    return f"<bdi>{escape(value)}</bdi>"


def _pill(verdict: str) -> str:
    sign = f'<span aria-hidden="true">{_SIGNS[verdict]}</span>'
    return f'<span class="pill {verdict}">{sign}{verdict}</span>'


def _hero(document: ParityDocument) -> str:
    verdict = document.verdict
    reasons = [
        f'<li><a href="#candidate-{i}">{_name(candidate.path)}</a>: {reason}</li>'
        for i, candidate in enumerate(document.candidates)
        for reason in _reasons(candidate)
    ]
    if document.result is None:
        reasons = [f"<li>{_name(line)}</li>" for line in (document.message, document.hint) if line]
    listed = reasons[:MOST_REASONS]
    if reasons[MOST_REASONS:]:
        listed.append(f"<li>{len(reasons) - MOST_REASONS} more below</li>")
    line = _MEANING[verdict]
    if document.result is not None:
        line = f"{document.summary}: {line}"
    return (
        f'<section class="hero {verdict}" aria-label="Verdict">'
        f'<span class="sign" aria-hidden="true">{_SIGNS[verdict]}</span>'
        f'<div><strong id="verdict">{verdict}</strong><p>{escape(line)}</p>'
        + (f"<ul>{''.join(listed)}</ul>" if listed else "")
        + "</div></section>"
    )


def _reasons(candidate: CandidateView) -> list[str]:
    """What keeps a candidate from passing, as HTML."""
    reasons = [
        f"output {_name(o.name)}: {escape(o.message or o.cause)}"
        for o in candidate.worst_first()
        if o.verdict is not Verdict.PASS
    ]
    reasons += [
        f"{_name(m.limit)} of {_name(m.where)}: {escape(m.message)}" for m in candidate.missed
    ]
    if not candidate.outputs:
        reasons.append("no output was compared")
    return reasons


def _tiles(pairs: Iterable[tuple[str, str, str]]) -> str:
    """Facts: name, value and a remark, all HTML."""
    tiles = []
    for name, value, remark in pairs:
        small = f"<small>{remark}</small>" if remark else ""
        tiles.append(f"<div><dt>{name}</dt><dd>{value}{small}</dd></div>")
    return f'<dl class="tiles">{"".join(tiles)}</dl>'


def _totals(document: ParityDocument) -> str:
    outputs = [output for candidate in document.candidates for output in candidate.outputs]
    if not outputs:
        return ""
    passed = sum(c.verdict is Verdict.PASS for c in document.candidates)
    compared = sum(output.number("count") or 0.0 for output in outputs)
    beyond = sum(output.number("mismatched") or 0.0 for output in outputs)
    good = sum(output.verdict is Verdict.PASS for output in outputs)
    samples = {candidate.samples for candidate in document.candidates}
    return _tiles(
        [
            ("files passed", f"{passed} of {len(document.candidates)}", ""),
            ("outputs passed", f"{good} of {len(outputs)}", ""),
            ("samples", escape(" / ".join(sorted(samples))), ""),
            ("values compared", f"{compared:,.0f}", f"{beyond:,.0f} beyond their bound"),
        ]
    )


def _card(number: int, candidate: CandidateView) -> str:
    verdict = candidate.verdict.value
    ordered = candidate.worst_first()
    reasons = "".join(f"<li>{reason}</li>" for reason in _reasons(candidate))
    file = candidate.path.rstrip("/").rpartition("/")[2] or candidate.path
    place = "" if file == candidate.path else f"{_name(candidate.path)} · "
    parts = [
        f'<article class="card" id="candidate-{number}" aria-labelledby="file-{number}">',
        f'<header><div><h2 id="file-{number}">{_name(file)}</h2><p>{place}'
        f"{_name(candidate.runtime)}</p></div>{_pill(verdict)}</header>",
        _three_runs(candidate),
        f'<ul class="why {verdict}">{reasons}</ul>' if reasons else "",
        _strips(number, ordered),
        _histograms(number, ordered),
        _numbers(ordered),
        _worst_samples(ordered),
        _environment(candidate),
        "</article>",
    ]
    return "\n".join(filter(None, parts))


def _three_runs(candidate: CandidateView) -> str:
    """Reference, trained model and candidate, at the output that matters most."""
    reference = f'<span class="mono">{_name(candidate.reference)}</span>'
    tiles = [("reference", reference, "what the errors are measured from")]
    if candidate.outputs:
        worst = candidate.worst_first()[0]
        error, floor = worst.number("max_abs"), worst.number("noise_floor")
        where = f"largest error, output {_name(worst.name)}"
        tiles.append(("trained model", worst.shown("noise_floor"), f"noise floor, {where}"))
        tiles.append(("candidate", worst.shown("max_abs"), where))
        if error is not None and floor:
            tiles.append(("error ÷ noise floor", _ratio(error, floor), _closer(error, floor)))
    return _tiles(tiles).replace("<dd>", '<dd class="small">', 1)


def _ratio(error: float, floor: float) -> str:
    ratio = error / floor
    if not 1 <= ratio < 1e6:
        return f"{ratio:.2g}"
    return f"{ratio:,.1f}" if ratio < 100 else f"{ratio:,.0f}"


def _closer(error: float, floor: float) -> str:
    if error == 0:
        return "exactly the reference"
    if error <= floor:
        return f"{_ratio(floor, error)} times closer than the trained model"
    return f"{_ratio(error, floor)} times farther than the trained model"


def _left_out(total: int, most: int, what: str) -> str:
    if total <= most:
        return ""
    return f'<p class="note">{total - most:,} more {what} not shown; the worst come first.</p>'


def _legend(*entries: tuple[str, str]) -> str:
    items = "".join(
        f'<li><svg aria-hidden="true">{sign}</svg>{label}</li>' for sign, label in entries
    )
    return f'<ul class="legend">{items}</ul>'


def _strips(number: int, outputs: Sequence[OutputView]) -> str:
    known = [o for o in outputs if o.number("max_abs") is not None]
    if not known:
        return ""
    entries = [(svg.mark("candidate", 50, 8), "candidate, largest error")]
    if any(o.number("abs_p999") is not None for o in known):
        sign = '<rect class="bulk" x="0" y="4" width="26" height="8" rx="4"/>'
        entries.append((sign, "from its median to its 99.9% quantile"))
    if any(o.number("noise_floor") is not None for o in known):
        entries.append((svg.mark("trained", 50, 8), "noise floor: trained model, largest error"))
    if any(o.number("rounding_floor") is not None for o in known):
        entries.append((svg.mark("rounded", 50, 8), "what rounding to float16 does"))
    return (
        "<h3>Error against the noise floor</h3>"
        + _legend(*entries)
        + svg.strips(f"strips-{number}", known[:MOST_STRIPS])
        + _left_out(len(known), MOST_STRIPS, "outputs")
    )


def _histograms(number: int, outputs: Sequence[OutputView]) -> str:
    known = [
        (o, o.errors)
        for o in outputs
        if o.errors and (o.errors.counts or (o.noise_errors and o.noise_errors.counts))
    ]
    if not known:
        return ""
    candidate = '<rect class="bar candidate" x="6" y="2" width="12" height="13"/>'
    trained = '<rect class="bar trained" x="3" y="2" width="19" height="13"/>'
    figures = []
    for i, (output, errors) in enumerate(known[:MOST_HISTOGRAMS]):
        plot = svg.histogram(f"h-{number}-{i}", output.name, errors, output.noise_errors)
        figures.append(
            f"<figure><figcaption>{_name(svg.shorten(output.name))}{_pill(output.verdict.value)}"
            f"</figcaption>{plot}</figure>"
        )
    entries = [(candidate, "candidate")]
    if any(o.noise_errors for o, _ in known):
        entries.append((trained, "trained model"))
    return (
        "<h3>How the errors are spread</h3>"
        + _legend(*entries)
        + f'<div class="plots">{"".join(figures)}</div>'
        + '<p class="note">Share of the values by size of their error; what stands at 0 is '
        "exact.</p>" + _left_out(len(known), MOST_HISTOGRAMS, "histograms")
    )


def _table(label: str, columns: Sequence[str], rows: Iterable[Sequence[tuple[str, str]]]) -> str:
    """A table that scrolls by itself where it is too wide; cells are class and HTML."""
    head = "".join(
        f'<th scope="col"{" class=n" if title.startswith(">") else ""}>{title.lstrip(">")}</th>'
        for title in columns
    )
    body = "".join(
        "<tr>" + "".join(f'<td class="{kind}">{cell}</td>' for kind, cell in row) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{label}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _numbers(outputs: Sequence[OutputView]) -> str:
    if not outputs:
        return ""
    columns = (
        *("output", "verdict", "cause and bound", ">max abs", ">max rel", ">noise floor"),
        *(">rtol needed", ">atol needed", ">beyond bound"),
    )
    names = ("max_abs", "max_rel", "noise_floor", "required_rtol", "required_atol")
    rows = [
        [
            ("name", _name(o.name)),
            ("", _pill(o.verdict.value)),
            ("wide", f"{escape(o.cause)}<small>{escape(o.bound)}</small>"),
            *(("n", o.shown(name)) for name in names),
            ("n", escape(dict(o.facts()).get("beyond the bound", "-").partition(" of ")[0])),
        ]
        for o in outputs[:MOST_ROWS]
    ]
    table = _table("Numbers per output", columns, rows)
    return f"<h3>Numbers per output</h3>{table}{_left_out(len(outputs), MOST_ROWS, 'outputs')}"


def _worst_samples(outputs: Sequence[OutputView]) -> str:
    """The samples with the largest errors; of a document without them the worst element."""
    known = [
        (output, worst)
        for output in outputs
        for worst in output.samples or ([output.worst] if output.worst else [])
    ]
    if not known:
        return ""
    columns = ("output", ">case", "index", ">reference", ">candidate", ">error", ">÷ noise floor")
    rows = []
    for output, worst in known[:MOST_ROWS]:
        floor = output.number("noise_floor")
        has_ratio = worst.error is not None and math.isfinite(worst.error) and floor
        rows.append(
            [
                ("name", _name(output.name)),
                ("n", escape(worst.case)),
                ("", f'<span class="mono">{escape(worst.index)}</span>'),
                ("n", escape(worst.reference)),
                ("n", escape(worst.candidate)),
                ("n", text.number(worst.error)),
                ("n", _ratio(worst.error or 0.0, floor) if has_ratio and floor else text.NONE),
            ]
        )
    table = _table("Worst samples", columns, rows)
    note = '<p class="note">Of each sample the element that is farthest off.</p>'
    return f"<h3>Worst samples</h3>{table}{note}{_left_out(len(known), MOST_ROWS, 'samples')}"


def _environment(candidate: CandidateView) -> str:
    pairs = [
        ("candidate", candidate.path),
        ("reference", candidate.reference),
        ("samples", candidate.samples),
        ("seed", candidate.seed),
        ("inputs sha256", candidate.inputs_sha256),
        *candidate.environment,
        *(("note", note) for note in candidate.notes),
    ]
    items = "".join(f"<dt>{escape(name)}</dt><dd>{_name(value)}</dd>" for name, value in pairs)
    return f"<details><summary>Environment and inputs</summary><dl>{items}</dl></details>"


def _warnings(document: ParityDocument) -> str:
    if not document.warnings:
        return ""
    items = "".join(f"<li>{_name(line)}</li>" for line in document.warnings[:MOST_ROWS])
    return f'<section class="card"><h2>Warnings</h2><ul>{items}</ul></section>'
