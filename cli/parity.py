"""``parity``: do exported files compute what the reference computes?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mpexport.errors import InconclusiveError, MpExportError, VerificationError
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

if TYPE_CHECKING:
    from mpexport.parity.report import ParityReport
    from mpexport.parity.tolerance import Tolerance

_GOOD_FIRST = (Verdict.PASS, Verdict.SKIPPED, Verdict.INCONCLUSIVE, Verdict.FAIL)


def parity(
    reference: Annotated[
        str,
        Parameter(help="The model that the files were made from, or an exported file."),
    ],
    candidates: Annotated[tuple[str, ...], Parameter(help="Exported files.", metavar="CANDIDATE")],
    /,
    *,
    rtol: Annotated[
        float | None, Parameter(help="Relative tolerance; default: 1e-5.", metavar="X")
    ] = None,
    atol: Annotated[
        float | None,
        Parameter(help="Absolute tolerance; default: 1e-5 of the largest value.", metavar="X"),
    ] = None,
    threads: Annotated[
        int, Parameter(help="Threads of the candidates' runtimes.", metavar="N", validator=Positive)
    ] = 1,
    samples: Samples = NO_SAMPLES,
    source: Model = NO_MODEL,
    run: Run = NO_RUN,
) -> Outcome:
    """Compares exported files with a model, or with another exported file."""
    tolerance = _tolerance(rtol, atol)
    inputs = samples.to_library()
    with library_options(run) as how:
        from mpexport import api

        reports = api.compare(
            reference,
            candidates,
            inputs=inputs,
            tolerances=tolerance,
            num_threads=threads,
            run=how,
            **source.arguments(),
        )
    verdict = max((r.verdict for r in reports), key=_GOOD_FIRST.index)
    result = {"verdict": verdict.value, "reports": [r.to_json() for r in reports]}
    warnings = [warn("note", note, r.candidate) for r in reports for note in r.notes]
    blocks = text.parity(reports, verdict, verbose=run.verbose)
    return Outcome(result, blocks, warnings, _error(reports, verdict))


def _tolerance(rtol: float | None, atol: float | None) -> Tolerance | None:
    """The library's default with the given parts replaced; None for its own choice."""
    if rtol is None and atol is None:
        return None
    from mpexport.parity.tolerance import default_for

    tolerance = default_for("float32")
    if rtol is not None:
        tolerance = replace(tolerance, rtol=rtol)
    if atol is not None:
        tolerance = replace(tolerance, atol=atol, atol_scale=0.0)
    return tolerance


def _error(reports: list[ParityReport], verdict: Verdict) -> MpExportError | None:
    """The first thing that keeps the comparison from passing."""
    if verdict is Verdict.PASS:
        return None
    report = next(r for r in reports if r.verdict is verdict)
    row = next((r for r in report.rows if r.verdict is verdict), None)
    cause = f"output {row.output}: {row.message}" if row else "no output was compared"
    kind = VerificationError if verdict is Verdict.FAIL else InconclusiveError
    return kind(f"{report.candidate}: {verdict.value}: {cause}", where=report.candidate)
