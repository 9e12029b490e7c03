"""``report``: reports of a comparison from its stored JSON document."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from mpexport.errors import InputError

from .options import NO_RUN, Run
from .outcome import Outcome
from .reports import NO_REPORTS, ReportFiles


def report(
    document: Annotated[
        Path, Parameter(help="What mpexport parity --json printed.", metavar="FILE.json")
    ],
    /,
    *,
    written: ReportFiles = NO_REPORTS,
    run: Run = NO_RUN,
) -> Outcome:
    """Shows a stored comparison, and ends with the exit code that it ended with."""
    written.keep_off(str(document))
    try:
        source = document.read_text(encoding="utf-8")
    except OSError as e:
        raise InputError(f"{document}: {e.strerror or e}", where=str(document)) from e
    except UnicodeDecodeError as e:
        raise InputError(f"{document}: no JSON: {e}", where=str(document)) from e
    from mpexport.render import parity_document, parity_text

    data, view = parity_document.parse(source, str(document))
    return Outcome(view.result or {}, parity_text.blocks(view), (), view.error(), data)
