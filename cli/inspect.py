"""``inspect``: what do exported files hold?"""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from mpexport.render.inspection import inspection

from .options import NO_RUN, Run
from .outcome import Outcome
from .progress import library_options


def inspect(
    files: Annotated[tuple[str, ...], Parameter(help="TFLite or ONNX files.", metavar="FILE")],
    /,
    *,
    run: Run = NO_RUN,
) -> Outcome:
    """Tells what exported files hold and which runtime they need."""
    with library_options(run):
        from mpexport import api

        reports = [api.inspect(file) for file in files]
    blocks: list[Any] = []
    for report in reports:
        blocks += ([""] if blocks else []) + inspection(report)
    return Outcome({"reports": [r.to_json() for r in reports]}, blocks)
