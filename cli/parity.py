"""``parity``: do exported files compute what the reference computes?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from mpexport.errors import InconclusiveError, MpExportError, UsageError, VerificationError
from mpexport.findings import Verdict
from mpexport.render import text

from .options import (
    NO_MODEL,
    NO_RUN,
    NO_SAMPLES,
    Model,
    Positive,
    Run,
    Samples,
)
from .outcome import Outcome, warn
from .progress import library_options
from .reports import NO_REPORTS, ReportFiles

if TYPE_CHECKING:
    from mpexport.parity.report import ParityReport

_GOOD_FIRST = (Verdict.PASS, Verdict.SKIPPED, Verdict.INCONCLUSIVE, Verdict.FAIL)


app = App(name="parity", help="Compare exported files with a model, or with another exported file.")


@app.default
def parity(
    reference: Annotated[
        str,
        Parameter(help="The model that the files were made from, or an exported file."),
    ],
    candidates: Annotated[tuple[str, ...], Parameter(help="Exported files.", metavar="CANDIDATE")],
    /,
    *,
    rtol: Annotated[
        tuple[str, ...],
        Parameter(
            help="Relative tolerance, of one output with its name; default: 1e-5. Repeatable.",
            metavar="[NAME:]X",
            show_default=False,
        ),
    ] = (),
    atol: Annotated[
        tuple[str, ...],
        Parameter(
            help="Absolute tolerance, of one output with its name; default: 1e-5 of the largest "
            "value. Repeatable.",
            metavar="[NAME:]X",
            show_default=False,
        ),
    ] = (),
    gate: Annotated[
        Path | None,
        Parameter(help="TOML file with what the candidates must hold.", metavar="FILE"),
    ] = None,
    labels: Annotated[
        str | None,
        Parameter(
            help="True classes of the samples of --inputs, an .npy of integers.",
            metavar="[NAME:]FILE",
        ),
    ] = None,
    max_accuracy_drop: Annotated[
        str | None,
        Parameter(
            help="Largest drop in accuracy, for example 0.2%; must be shown by enough labels.",
            metavar="SHARE",
        ),
    ] = None,
    batch: Annotated[
        int | None,
        Parameter(help="Samples of --inputs per run.", metavar="N", validator=Positive),
    ] = None,
    threads: Annotated[
        int, Parameter(help="Threads of the candidates' runtimes.", metavar="N", validator=Positive)
    ] = 1,
    runtime: Annotated[
        tuple[str, ...],
        Parameter(
            help="Run the candidates in this runtime, for example litert:xnnpack=off or "
            "tflite_runtime:python=PATH. Repeatable. Default: the preferred one.",
            metavar="NAME[:KEY=VALUE,…]",
            show_default=False,
        ),
    ] = (),
    shard: Annotated[
        str | None,
        Parameter(
            help="Run one part of the cases, for example 2/8; --json tells what "
            "'parity merge' needs.",
            metavar="I/N",
        ),
    ] = None,
    calibrate: Annotated[
        bool,
        Parameter(
            help="Propose a gate file that the candidates hold, with a reason for every number.",
            negative="",
            show_default=False,
        ),
    ] = False,
    samples: Samples = NO_SAMPLES,
    source: Model = NO_MODEL,
    written: ReportFiles = NO_REPORTS,
    run: Run = NO_RUN,
) -> Outcome:
    """Compares exported files with a model, or with another exported file."""
    from .gates import labels_of, read_gate

    written.keep_off(reference, *candidates)
    place, labeled = labels_of(labels)
    limits = read_gate(gate, rtol, atol, max_accuracy_drop, labeled)
    inputs = replace(samples.to_library(), batch=batch, labels=place, labeled=labeled)
    part = None
    if shard is not None:
        from mpexport.parity.partial import Shard

        part = Shard.parse(shard)
        if written.asked:
            raise UsageError(
                "one shard has no report", hint="give the options of reports to: parity merge"
            )
        if calibrate:
            raise UsageError("one shard is no measure for a gate", hint="leave out --shard")
    options = {
        "inputs": inputs,
        "gate": limits,
        "runtimes": runtime,
        "num_threads": threads,
        **source.arguments(),
    }
    with library_options(run) as how:
        from mpexport import api

        if part is None:
            reports = api.compare(reference, candidates, run=how, **options)
            outcome = _outcome(reports, verbose=run.verbose)
            return _with_gate(outcome, reports) if calibrate and not outcome.error else outcome
        parts = api.compare_part(reference, candidates, shard=part, run=how, **options)
    whole = f"shard {part} is no verdict; all of them are: mpexport parity merge FILES"
    result = {"verdict": Verdict.SKIPPED.value, "parts": [p.to_json() for p in parts]}
    return Outcome(result, [whole], [warn("shard", whole, str(part))])


@app.command
def merge(
    files: Annotated[
        tuple[Path, ...],
        Parameter(help="What --shard … --json printed, of every shard.", metavar="FILE"),
    ],
    /,
    *,
    written: ReportFiles = NO_REPORTS,
    run: Run = NO_RUN,
) -> Outcome:
    """Gives the verdict of all shards: the one that a single run would give."""
    from mpexport.parity.partial import load_parts, merge_all

    written.keep_off(*map(str, files))
    reports = [part.report() for part in merge_all(load_parts(files))]
    return _outcome(reports, verbose=run.verbose)


def _outcome(reports: list[ParityReport], *, verbose: bool) -> Outcome:
    verdict = max((r.verdict for r in reports), key=_GOOD_FIRST.index)
    result = {"verdict": verdict.value, "reports": [r.to_json() for r in reports]}
    warnings = [warn("note", note, r.candidate) for r in reports for note in r.notes]
    blocks = text.parity(reports, verdict, verbose=verbose)
    return Outcome(result, blocks, warnings, _error(reports, verdict))


def _with_gate(outcome: Outcome, reports: list[ParityReport]) -> Outcome:
    from mpexport.parity.calibrate import propose

    proposed = propose(reports)
    result = {**outcome.result, "proposed_gate": proposed}
    return replace(outcome, result=result, blocks=proposed.splitlines())


def _error(reports: list[ParityReport], verdict: Verdict) -> MpExportError | None:
    """The first thing that keeps the comparison from passing."""
    if verdict is Verdict.PASS:
        return None
    report = next(r for r in reports if r.verdict is verdict)
    row = next((r for r in report.rows if r.verdict is verdict), None)
    limit = next((m for m in report.missed if m.verdict is verdict), None)
    cause = "no output was compared"
    if row:
        cause = f"output {row.output}: {row.message}"
    elif limit:
        cause = f"{limit.where}: {limit.message}"
    kind = VerificationError if verdict is Verdict.FAIL else InconclusiveError
    return kind(f"{report.candidate}: {verdict.value}: {cause}", where=report.candidate)
