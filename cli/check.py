"""``check``: what a model computes in which precision."""

from __future__ import annotations

from mpexport.errors import PrecisionError
from mpexport.findings import Severity
from mpexport.render.precision import precision

from .options import NO_MODEL, NO_RUN, Model, ModelPath, Run
from .outcome import Outcome, warn
from .progress import library_options


def check(model: ModelPath, /, *, source: Model = NO_MODEL, run: Run = NO_RUN) -> Outcome:
    """Tells what a model computes in which precision, and what may go wrong."""
    with library_options(run) as how:
        from mpexport import api

        report = api.check(model, run=how, **source.arguments())
    errors = [f for f in report.findings if f.severity is Severity.ERROR]
    warnings = [
        warn(f.rule, f.message, f.where) for f in report.findings if f.severity is Severity.WARNING
    ]
    warnings += [warn("note", note, report.source) for note in report.notes]
    error = None
    if errors:
        count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
        error = PrecisionError(
            f"{model}: the check found {count}: {errors[0].message}",
            hint=errors[0].hint,
            where=errors[0].where,
        )
    return Outcome(report.to_json(), precision(report, verbose=run.verbose), warnings, error)
