"""Makes ``docs/mutation.md`` of what the gate said about the mutants."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpexport.parity.accuracy import binomial_interval
from tests.mutation.subjects import SUBJECTS

UNTOUCHED = "untouched"
Row = dict[str, Any]
_TAIL = 0.025  # on each side of a 95% interval


def is_effective(row: Row) -> bool:
    """Whether a mutant moves an output further from the twin than the trained model is.

    One that gives a NaN has an infinite effect, and one that doesn't run has no effect to measure.
    """
    return "error" not in row and any(row["effect"][k] > n for k, n in row["noise"].items())


def is_detected(row: Row, inputs: str) -> bool:
    """Whether the gate fails it, or ends in an error that names it; inconclusive is neither."""
    return bool(row[inputs].startswith(("FAIL", "error")))


def share(count: int, of: int) -> str:
    """A share with its exact 95% interval."""
    if not of:
        return "none"
    low, high = binomial_interval(count, of, _TAIL)
    return f"{count} of {of} ({count / of:.2%}, 95% interval {low:.2%} to {high:.2%})"


def _ratio(row: Row) -> float:
    return max((e / row["noise"][k] if row["noise"][k] else 0.0) for k, e in row["effect"].items())


def _kinds(mutants: list[Row]) -> list[str]:
    lines = [
        "| fault | made | loadable | effective | detected, data | missed | detected, made up |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for kind in dict.fromkeys(row["kind"] for row in mutants):
        rows = [row for row in mutants if row["kind"] == kind]
        loadable = [row for row in rows if "error" not in row]
        effective = [row for row in rows if is_effective(row)]
        found = {k: sum(is_detected(r, k) for r in effective) for k in ("data", "made_up")}
        lines.append(
            f"| {kind} | {len(rows)} | {len(loadable)} | {len(effective)} | {found['data']} "
            f"| {len(effective) - found['data']} | {found['made_up']} |"
        )
    return lines


def _missed(rows: list[Row], inputs: str) -> list[str]:
    missed = [row for row in rows if is_effective(row) and not is_detected(row, inputs)]
    return [
        f"- {row['kind']}, {row['subject']}, {row['target']}: {row['what']}: effect "
        f"{_ratio(row):.3g} times the trained noise, NaN in {row['nan_samples']} samples; "
        f"{row[inputs]}"
        for row in sorted(missed, key=lambda r: -_ratio(r))
    ] or ["None."]


def render(rows: list[Row]) -> str:
    """The page."""
    mutants = [row for row in rows if row["kind"] != UNTOUCHED]
    clean = [row for row in rows if row["kind"] == UNTOUCHED]
    effective = [row for row in mutants if is_effective(row)]
    broken = [row for row in mutants if "error" in row]
    small = [row for row in mutants if "error" not in row and not is_effective(row)]
    verdicts = [v for row in clean for v in [row["data"], row["made_up"], *row["seeds"]]]

    def found(rows: list[Row], inputs: str) -> str:
        return share(sum(is_detected(row, inputs) for row in rows), len(rows))

    def part(title: str, choose: Callable[[Row], bool]) -> str:
        chosen = [row for row in effective if choose(row)]
        return f"| {title} | {found(chosen, 'data')} | {found(chosen, 'made_up')} |"

    subjects = list(dict.fromkeys(row["subject"] for row in rows))
    waiting = [s.name for s in SUBJECTS if s.name not in subjects]
    lines = [
        _ABOUT,
        f"{len(mutants)} mutants of {len(clean)} files of {len(subjects)} models: "
        f"{', '.join(subjects)}.",
        *([f"**Not run yet, so this is a part only:** {', '.join(waiting)}."] if waiting else []),
        "",
        "| effect above the trained noise | detected, given data | detected, made-up inputs |",
        "|---|---|---|",
        part("all", lambda row: True),
        part("trained on digits", lambda row: not row["subject"].startswith(("layers", "common"))),
        part("of the suite", lambda row: row["subject"].startswith(("layers", "common"))),
        part("above twice the noise", lambda row: _ratio(row) > 2),
        "",
        f"- Too small to matter: {len(small)}, of which found with data: "
        f"{sum(is_detected(row, 'data') for row in small)}.",
        f"- No runtime runs it, apart from the table above: {len(broken)}, of which found: "
        f"{sum(is_detected(row, 'data') for row in broken)}.",
        "- False alarms on the untouched files (data, and made-up inputs of several seeds): "
        f"{share(sum(not v.startswith('PASS') for v in verdicts), len(verdicts))}. "
        "The conformance suite is the larger measurement of these.",
        "",
        *_kinds(mutants),
        "",
        "## Missed with data",
        "",
        *_missed(mutants, "data"),
        "",
        "## Missed with made-up inputs only",
        "",
        *_missed([row for row in mutants if is_detected(row, "data")], "made_up"),
    ]
    return "\n".join(lines) + "\n"


def write(rows: list[Row], page: Path) -> None:
    """Writes the page."""
    page.parent.mkdir(exist_ok=True)
    page.write_text(render(rows))


_ABOUT = """\
# Faults the parity gate must find

Good files, exported from models trained or built in 16 bits, get one fault each, at a place drawn
with a fixed seed. What a fault does is measured by a process that shares nothing with mpexport: the
plain runtime runs the file on 2,003 fresh samples, and the result is compared in float64 with the
float32 *twin* (the same Keras model, rebuilt in float32 with the same weights). A mutant counts
when any output is further from the twin than the trained model itself is, at most, on the same
samples (the *trained noise*), or is NaN. It is detected when `mpexport.compare(model, [file])`
fails or names it in an error; an inconclusive comparison is no detection.

The gate gets 5,000 samples of data, other than the fresh ones, and apart from that the inputs it
makes up when it is given none. `make mutation` makes this page.
"""
