"""Timing an exported file in a runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from mpexport import optional, runtimes
from mpexport.latency import sampler
from mpexport.latency.environment import read_environment
from mpexport.latency.report import LatencyReport
from mpexport.latency.summary import summarize
from mpexport.tensors import load_npy_dir


def measure_file(
    runtime: str,
    path: Path,
    options: Mapping[str, Any],
    case: Path,
    timing: Mapping[str, Any],
) -> LatencyReport:
    """Opens a file, runs one case again and again, and reports the times.

    Inputs are checked and cast once, before; a timed call is setting them, running, and copying
    the outputs.

    Args:
        runtime: The runtime's name.
        path: The exported file.
        options: Fields of `mpexport.runtimes.RuntimeOptions`.
        case: Directory of input arrays, see `mpexport.tensors.save_npy_dir`.
        timing: Keyword arguments of `mpexport.latency.sampler.measure`.

    Raises:
        MpExportError: As opening and running the file, or `sampler.measure`.
    """
    spec = runtimes.get(runtime)
    spec.probe()
    for module in spec.modules:  # so that the load below is the file's, not the package's
        optional.require(module, spec.extra)
    inputs = load_npy_dir(case)
    settings = runtimes.RuntimeOptions(**options)
    # Read before the load that the measurement itself causes.
    environment = read_environment()
    start = perf_counter_ns()
    session = spec.open(path, settings)
    load_ns = perf_counter_ns() - start
    try:
        prepared = session.prepare(inputs)
        samples = sampler.measure(lambda: session.invoke(prepared), **timing)
        return LatencyReport(
            file=str(path),
            format=spec.formats[0],
            size_bytes=_size(path),
            runtime=session.environment(),
            load_ms=load_ns / 1e6,
            first_inference_ms=samples.first_ns / 1e6,
            summary=summarize(samples.steady_ns, samples.calls_per_sample),
            num_threads=settings.num_threads,
            input_shapes={name: array.shape for name, array in prepared.items()},
            environment=environment,
        )
    finally:
        session.close()


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
