"""``bench``: how long do exported files take?"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from mpexport.render import text

from .options import NO_RUN, NO_SAMPLES, Positive, Run, Samples
from .outcome import Outcome
from .progress import library_options


def bench(
    files: Annotated[
        tuple[str, ...],
        Parameter(help="TFLite or ONNX files, or SavedModel directories.", metavar="FILE"),
    ],
    /,
    *,
    num_threads: Annotated[
        int, Parameter(help="Threads of the runtime.", metavar="N", validator=Positive)
    ] = 1,
    num_runs: Annotated[
        int, Parameter(help="Least number of counted runs.", metavar="N", validator=Positive)
    ] = 50,
    warmup_runs: Annotated[
        int, Parameter(help="Runs not counted, first.", metavar="N", validator=Number(gte=0))
    ] = 5,
    min_secs: Annotated[float, Parameter(help="Least measuring time.", metavar="SECONDS")] = 1.0,
    max_secs: Annotated[
        float, Parameter(help="Time at which measuring stops.", metavar="SECONDS")
    ] = 30.0,
    batch: Annotated[
        int, Parameter(help="Size of a dynamic first axis.", metavar="N", validator=Positive)
    ] = 1,
    samples: Samples = NO_SAMPLES,
    run: Run = NO_RUN,
) -> Outcome:
    """Times exported files: load, first inference, steady state."""
    inputs = samples.to_library()
    with library_options(run) as how:
        from mpexport import api

        reports = [
            api.measure(
                file,
                inputs=inputs,
                batch=batch,
                num_threads=num_threads,
                warmup_runs=warmup_runs,
                num_runs=num_runs,
                min_secs=min_secs,
                max_secs=max_secs,
                run=how,
            )
            for file in files
        ]
    result = {"reports": [r.to_json() for r in reports]}
    return Outcome(result, text.latency(reports, verbose=run.verbose))
