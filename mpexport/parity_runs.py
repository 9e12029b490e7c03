"""Running exported files for comparison and timing: what lies between the verbs and the workers."""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Optional

from mpexport import formats, runtimes
from mpexport.errors import InputError, UsageError
from mpexport.latency.report import LatencyReport
from mpexport.parity.compare import compare_cases
from mpexport.parity.inputs import digest
from mpexport.parity.report import ParityReport
from mpexport.parity.tolerance import Tolerances, default_for
from mpexport.scratch import make_scratch
from mpexport.signature import Signature
from mpexport.sources import SourceOptions
from mpexport.tensors import save_npy_dir
from mpexport.verify import (
    InputOptions,
    References,
    RunFile,
    compare_file,
    count_samples,
    has_rounded_weights,
    make_cases,
    run_file,
)
from mpexport.worker.parent import Worker

_PRECISIONS = ("float32", "float16-weights", "float16")  # the finest first

StartWorker = Callable[[], AbstractContextManager[Worker]]


def is_exported_file(path: Path) -> bool:
    """Whether a path is an exported file that needs no framework (TFLite, ONNX)."""
    return not path.is_dir() and formats.detect(path) is not None


def format_of(path: Path) -> formats.FormatSpec:
    """The format of an exported file, told from its content.

    Raises:
        InputError: Missing, or no format of ours.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file or directory", where=str(path))
    spec = formats.detect(path)
    if spec is None:
        raise InputError(
            f"{path}: is no exported file",
            hint="expected TFLite, ONNX or a SavedModel",
            where=str(path),
        )
    return spec


def exported_file(path: Path) -> RunFile:
    """Recognizes an exported file by content.

    Raises:
        InputError: Missing, or no format of ours.
        MissingDependencyError: No runtime for it is installed.
    """
    spec = format_of(path)
    runtimes.require_any(spec.name)
    return RunFile(path.absolute(), spec.name)


def inspect(worker: Worker, file: RunFile) -> tuple[RunFile, Signature]:
    """Opens a file in its runtime: its precision and its signature."""
    answer = worker.call(
        "inspect",
        format=file.format,
        runtime=None,
        path=str(file.path),
        options={"num_threads": 1, "signature": file.signature},
    )
    environment = answer["environment"]
    stored = "float16-weights" if environment.get("weights") == "float16" else "float32"
    precision = "float16" if environment.get("compute") == "float16" else stored
    return replace(file, precision=precision), Signature.from_json(answer["signature"])


def _inspect_all(start: StartWorker, files: list[RunFile]) -> list[tuple[RunFile, Signature]]:
    found = []
    for file in files:
        # One worker each: a file that crashes its runtime must not spoil the next.
        with start() as worker:
            found.append(inspect(worker, file))
    return found


def against_file(
    reference: Path,
    files: list[RunFile],
    inputs: InputOptions,
    tolerances: Optional[Tolerances],
    num_threads: int,
    start: StartWorker,
) -> list[ParityReport]:
    """Compares files with another exported file: two runs, no noise floor."""
    (base, signature), *rest = _inspect_all(start, [exported_file(reference), *files])
    cases = make_cases(signature, [signature, *(s for _, s in rest)], inputs, {})
    reports = []
    with ExitStack() as stack:
        scratch = make_scratch()
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        paths = [str(scratch / str(i)) for i in range(len(cases))]
        for case, path in zip(cases, paths):
            save_npy_dir(case, Path(path))
        with start() as worker:
            expected, _ = run_file(worker, base, paths, num_threads)
        for file, _ in rest:
            with start() as worker:
                outputs, environment = run_file(worker, file, paths, num_threads)
            precision = max(base.precision, file.precision, key=_PRECISIONS.index)
            reports.append(
                ParityReport(
                    reference=str(reference),
                    candidate=str(file.path),
                    environment=environment,
                    rows=compare_cases(
                        expected,
                        outputs,
                        tolerances or default_for(precision),
                        precision=precision,
                    ),
                    seed=inputs.seed,
                    num_samples=count_samples(cases),
                    inputs_sha256=digest(cases),
                    notes=("the reference is an exported file: there is no noise floor",),
                )
            )
    return reports


def against_model(
    source: SourceOptions,
    open_in: Callable[[Worker], dict[str, Any]],
    files: list[RunFile],
    inputs: InputOptions,
    tolerances: Optional[Tolerances],
    num_threads: int,
    start: StartWorker,
) -> list[ParityReport]:
    """Compares files with a source model: trained run, float64 reference, candidate."""
    inspected = _inspect_all(start, files)
    with ExitStack() as stack:
        scratch = make_scratch()
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        with start() as worker:
            described = open_in(worker)
            key = described["chosen"]
            if key is None:
                raise UsageError(
                    f"{source.path}: has several signatures: "
                    + ", ".join(sorted(described["signatures"])),
                    hint="choose one: --signature NAME",
                )
            references = References(worker, scratch)
            signature = Signature.from_json(described["original_signatures"][key])
            cases = make_cases(
                signature, [s for _, s in inspected], inputs, described["ranges"][key]
            )
            rounded = any(has_rounded_weights(f.precision) for f, _ in inspected)
            references.run(key, cases, rounded=rounded)
        reports = []
        for file, _ in inspected:
            named = replace(file, signature=key) if file.format == "savedmodel" else file
            with start() as worker:
                reports.append(
                    compare_file(
                        worker,
                        named,
                        key,
                        references,
                        reference=source.path,
                        shown=file.path,
                        seed=inputs.seed,
                        tolerances=tolerances,
                        num_threads=num_threads,
                    )
                )
    return reports


def measure(
    worker: Worker,
    file: RunFile,
    inputs: InputOptions,
    batch: int,
    num_threads: int,
    timing: dict[str, Any],
) -> LatencyReport:
    """Times one file in a worker, on one case of ``batch`` samples."""
    file, signature = inspect(worker, file)
    case = make_cases(signature, [signature], inputs, {}, batches=(batch,))[0]
    stored = worker.scratch / "inputs"
    save_npy_dir(case, stored)
    answer = worker.call(
        "measure",
        format=file.format,
        runtime=None,
        path=str(file.path),
        options={"num_threads": num_threads, "signature": file.signature},
        case=str(stored),
        timing=timing,
    )
    return LatencyReport.from_json(answer)
