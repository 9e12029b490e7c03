"""Export, parity and latency results as blocks of text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpexport.findings import Verdict
from mpexport.render.layout import Block, Facts, Table

if TYPE_CHECKING:
    from mpexport.latency.report import LatencyReport
    from mpexport.parity.report import ParityReport
    from mpexport.parity.row import TensorComparison
    from mpexport.results import ExportedFile, ExportResult

NONE = "-"
_WORST_FIRST = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.SKIPPED, Verdict.PASS)


def number(value: float | None) -> str:
    """Three significant digits; `NONE` for no number."""
    return NONE if value is None else f"{value:.3g}"


def size(size_bytes: int) -> str:
    """Bytes in decimal units, as file managers count.

    >>> size(1234567)
    '1.23 MB'
    """
    value, unit = float(size_bytes), "B"
    for bigger in ("kB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1000, bigger
    return f"{value:.0f} B" if unit == "B" else f"{value:.3g} {unit}"


def count(amount: int, noun: str) -> str:
    """``1 sample``, ``2 samples``."""
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def runtime(environment: dict[str, Any]) -> str:
    """``litert 2.3.0``."""
    return f"{environment.get('runtime', '?')} {environment.get('version', '')}".rstrip()


def _verdict(row: TensorComparison) -> str:
    """``PASS``, or the verdict with its cause where that says more."""
    cause = row.cause.removeprefix("ok").strip(" ()").removeprefix("within ")
    return f"{row.verdict.value} ({cause})" if cause else row.verdict.value


def _top1(row: TensorComparison) -> str:
    return f"{row.top1_agree}/{row.top1_rows}" if row.top1_rows else NONE


def _worst(reports: Iterable[ParityReport]) -> TensorComparison | None:
    """The row that matters most: the worst verdict, and there the largest error."""
    rows = [row for report in reports for row in report.rows]
    return min(
        rows, key=lambda r: (_WORST_FIRST.index(r.verdict), -(r.max_abs or 0.0)), default=None
    )


def _table(rows: Iterable[TensorComparison]) -> Table:
    return Table(
        (
            "output",
            ">max error",
            ">noise floor",
            ">rtol needed",
            ">atol needed",
            ">top-1",
            "verdict",
        ),
        [
            (
                row.output,
                number(row.max_abs),
                number(row.noise_floor),
                number(row.required_rtol),
                number(row.required_atol),
                _top1(row),
                _verdict(row),
            )
            for row in rows
        ],
    )


def _case(number: int | None, cases: Mapping[int, str]) -> str:
    name = cases.get(number) if number is not None else None
    return f"{number} ({name})" if name else str(number)


def _details(report: ParityReport) -> Facts:
    return Facts("", [pair for row in report.rows for pair in _found(row, report.cases)])


def _found(row: TensorComparison, cases: Mapping[int, str]) -> list[tuple[str, str]]:
    """What one output's comparison found, beyond its line in the table."""
    facts = [
        count(row.count, "value"),
        f"{row.mismatched:,} beyond {row.tolerance}",
        f"mean {number(row.mean_abs)}",
        f"rmse {number(row.rmse)}",
        f"ulp {NONE if row.ulp is None else row.ulp}",
        f"cosine {NONE if row.cosine is None else f'{row.cosine:.9g}'}",
        f"snr {number(row.snr_db)} dB",
    ]
    if row.top1_rows and row.flip_margin is not None:
        facts.append(f"largest margin of a flip {number(row.flip_margin)}")
    if row.reference_nan or row.candidate_nan or row.reference_inf or row.candidate_inf:
        facts.append(
            f"NaN {row.reference_nan} in the reference, {row.candidate_nan} in the file; "
            f"infinities {row.reference_inf} and {row.candidate_inf}"
        )
    if row.accuracy is not None:
        low, high = row.accuracy.interval()
        facts.append(
            f"accuracy {row.accuracy.reference:.3%} -> {row.accuracy.candidate:.3%} "
            f"(drop {low:.3%} to {high:.3%})"
        )
    lines = [(row.output, ", ".join(facts))]
    if row.verdict is not Verdict.PASS or row.cause != "ok":
        lines.append(("", row.message))
    if row.worst_index is not None:
        lines.append(
            (
                "",
                f"worst at case {_case(row.worst_case, cases)}, {list(row.worst_index)}: "
                f"{row.worst_candidate} for {row.worst_reference}",
            )
        )
    return lines


def _notes(notes: Iterable[str]) -> list[tuple[str, str]]:
    return [("note", note) for note in notes]


def exported(result: ExportResult, *, verbose: bool = False) -> list[Block]:
    """An export to one format: a line per fact."""
    file = result.files[0]
    pairs = [("size", size(file.artifact.size_bytes))]
    pairs += _proof(file)
    pairs += _notes(result.notes)
    blocks: list[Block] = [Facts(result.path, pairs)]
    if verbose:
        blocks += _outputs(file)
        blocks += _changes(result)
    return blocks


def _proof(file: ExportedFile) -> list[tuple[str, str]]:
    worst = _worst(file.parity)
    if worst is None:
        return [("verdict", "not verified")]
    report = next(r for r in file.parity if worst in r.rows)
    trained = "the trained model did not run"
    if worst.noise_floor is not None:
        trained = f"{number(worst.noise_floor)} off the same reference"
    samples = sum(r.num_samples for r in file.parity)
    return [
        ("max error", f"{number(worst.max_abs)} in output {worst.output}"),
        ("reference", report.reference),
        ("trained model", trained),
        ("verdict", f"{_verdict(worst)}: {worst.message}"),
        ("run in", f"{runtime(report.environment)}, {count(samples, 'sample')}"),
    ]


def _outputs(file: ExportedFile) -> list[Block]:
    blocks: list[Block] = []
    for report in file.parity:
        blocks += ["", _table(report.rows)]
        blocks.append(_details(report))
    return blocks


def _changes(result: ExportResult) -> list[Block]:
    if not result.changes:
        return []
    rows = [(str(c["pass"]), str(c["kind"]), f"{c['count']:,}") for c in result.changes]
    return ["", Table(("pass", "change", ">count"), rows)]


def release(result: ExportResult, *, verbose: bool = False) -> list[Block]:
    """A release folder: a row per format."""
    rows = []
    for file in result.files:
        worst = _worst(file.parity)
        rows.append(
            (
                file.artifact.format,
                size(file.artifact.size_bytes),
                number(worst.max_abs) if worst else NONE,
                number(worst.noise_floor) if worst else NONE,
                _top1(worst) if worst else NONE,
                _verdict(worst) if worst else "not verified",
            )
        )
    columns = ("format", ">size", ">max error", ">noise floor", ">top-1", "verdict")
    blocks: list[Block] = [result.path, Table(columns, rows)]
    if result.notes:
        blocks.append(Facts("", _notes(result.notes)))
    if verbose:
        for file in result.files:
            blocks += [f"{file.artifact.format}:", *_outputs(file)]
        blocks += _changes(result)
    return blocks


def parity(
    reports: Sequence[ParityReport], verdict: Verdict, *, verbose: bool = False
) -> list[Block]:
    """Candidates against a reference: a table each, and the verdict."""
    blocks: list[Block] = []
    for report in reports:
        pairs = [
            ("reference", report.reference),
            ("run in", f"{runtime(report.environment)}, {count(report.num_samples, 'sample')}"),
            *_notes(report.notes),
        ]
        if verbose:
            pairs.append(("inputs", f"seed {report.seed}, sha256 {report.inputs_sha256}"))
            pairs += [
                ("run to run", f"{name} differs by {number(spread)}")
                for name, spread in sorted(report.run_to_run.items())
            ]
        blocks += [Facts(report.candidate, pairs), "", _table(report.rows)]
        blocks += [_details(report), ""]
    passed = sum(report.passed for report in reports)
    blocks.append(f"{verdict.value}: {passed} of {count(len(reports), 'file')} passed")
    return blocks


def latency(reports: Sequence[LatencyReport], *, verbose: bool = False) -> list[Block]:
    """Timed files: a row each, in milliseconds."""
    rows = [
        (
            Path(r.file).name,
            _ms(r.load_ms),
            _ms(r.first_inference_ms),
            _ms(r.summary.median_ms),
            _ms(r.summary.p90_ms),
            f"{r.summary.count:,}",
            str(r.num_threads),
        )
        for r in reports
    ]
    columns = ("file", ">load ms", ">first ms", ">median ms", ">p90 ms", ">runs", ">threads")
    pairs = [("runtime", f"{Path(r.file).name}: {runtime(r.runtime)}") for r in reports]
    pairs += [
        ("no p90", f"{Path(r.file).name}: {r.summary.p90_reason}")
        for r in reports
        if r.summary.p90_reason
    ]
    if verbose:
        for r in reports:
            shapes = ", ".join(f"{n}: {list(s)}" for n, s in r.input_shapes.items())
            pairs.append(("inputs", f"{Path(r.file).name}: {shapes}"))
            pairs.append(
                (
                    "spread",
                    f"{Path(r.file).name}: min {_ms(r.summary.min_ms)}, mean "
                    f"{_ms(r.summary.mean_ms)}, max {_ms(r.summary.max_ms)}, median absolute "
                    f"deviation {_ms(r.summary.mad_ms)} ms",
                )
            )
    host = reports[0].environment
    load = "unknown" if host.load_average_1m is None else f"{host.load_average_1m:.2f}"
    pairs.append(
        (
            "machine",
            f"{host.cpu_model or host.architecture}, {host.usable_cores} usable cores, "
            f"governor {host.cpufreq_governor or 'unknown'}, load {load}",
        )
    )
    return [Table(columns, rows), Facts("", pairs)]


def _ms(value: float | None) -> str:
    """Milliseconds to the microsecond, or three digits."""
    if value is None:
        return NONE
    return f"{value:.3f}" if value < 100 else f"{value:,.0f}"
