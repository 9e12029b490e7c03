"""Running exported files for comparison and timing: what lies between the verbs and the workers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

from mpexport import formats, runtimes
from mpexport.errors import InputError, UsageError
from mpexport.latency.report import LatencyReport
from mpexport.parity.cases import InputOptions, count_samples, iterate
from mpexport.parity.compare import Comparison
from mpexport.parity.gate import Gate, judged
from mpexport.parity.inputs import case_digest, digest
from mpexport.parity.report import ParityReport
from mpexport.parity.tolerance import default_for
from mpexport.scratch import make_scratch
from mpexport.signature import Signature
from mpexport.sources import SourceOptions
from mpexport.tensors import TensorSet, save_npy_dir
from mpexport.verify import (
    FileComparison,
    References,
    RunFile,
    compare_all,
    has_rounded_weights,
    only,
    run_file,
)
from mpexport.worker.parent import Worker

# Inputs that are run in one go: enough for calls to cost little, too little to be felt.
_CHUNK_BYTES = 2**24
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


class _Tally:
    """What all reports of one run share: the numbers and digests of the cases."""

    def __init__(self) -> None:
        self.samples = 0
        self.digests: list[str] = []

    def count(self, cases: list[TensorSet]) -> None:
        """Takes in cases."""
        self.samples += sum(map(count_samples, cases))
        self.digests += map(case_digest, cases)


def _chunks(cases: Iterator[TensorSet]) -> Iterator[tuple[int, list[TensorSet]]]:
    """Cases to be run in one go, with the number of the first."""
    number, chunk, size = 0, [], 0
    for case in cases:
        chunk.append(case)
        size += sum(array.nbytes for array in case.values())
        if size >= _CHUNK_BYTES:
            yield number, chunk
            number, chunk, size = number + len(chunk), [], 0
    if chunk:
        yield number, chunk


def against_file(
    reference: Path,
    files: list[RunFile],
    inputs: InputOptions,
    gate: Gate,
    num_threads: int,
    start: StartWorker,
) -> list[ParityReport]:
    """Compares files with another exported file: two runs, no noise floor."""
    (base, signature), *rest = _inspect_all(start, [exported_file(reference), *files])
    cases = iterate(signature, [signature, *(s for _, s in rest)], inputs, {})
    tally, labels = _Tally(), inputs.open_labels()
    with ExitStack() as stack:
        scratch = make_scratch()
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        runner = stack.enter_context(start())
        candidates = []
        for file, _ in rest:
            precision = max(base.precision, file.precision, key=_PRECISIONS.index)
            bounds = gate.tolerances(default_for(precision))
            comparison = Comparison(bounds, precision=precision)
            candidates.append((file, stack.enter_context(start()), comparison))
        environments: list[dict[str, Any]] = [{} for _ in candidates]
        for first, chunk in _chunks(cases):
            tally.count(chunk)
            paths = [str(scratch / str(i)) for i in range(len(chunk))]
            for case, path in zip(chunk, paths):
                shutil.rmtree(path, ignore_errors=True)
                save_npy_dir(case, Path(path))
            expected, _ = run_file(runner, base, paths, num_threads)
            true = None if labels is None else [labels.take(outputs) for outputs in expected]
            for i, (file, worker, comparison) in enumerate(candidates):
                outputs, environments[i] = run_file(worker, file, paths, num_threads)
                compare_all(comparison, first, only(expected), outputs, labels=true)
        if labels is not None:
            labels.finish()
        return [
            judged(
                gate,
                ParityReport(
                    reference=str(reference),
                    candidate=str(file.path),
                    environment=environment,
                    rows=comparison.rows(),
                    seed=inputs.seed,
                    num_samples=tally.samples,
                    inputs_sha256=digest(tally.digests),
                    notes=("the reference is an exported file: there is no noise floor",),
                ),
            )
            for (file, _, comparison), environment in zip(candidates, environments)
        ]


def against_model(
    source: SourceOptions,
    open_in: Callable[[Worker], dict[str, Any]],
    files: list[RunFile],
    inputs: InputOptions,
    gate: Gate,
    num_threads: int,
    start: StartWorker,
) -> list[ParityReport]:
    """Compares files with a source model: trained run, float64 reference, candidate."""
    inspected = _inspect_all(start, files)
    tally, labels = _Tally(), inputs.open_labels()
    with ExitStack() as stack:
        scratch = make_scratch()
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        worker = stack.enter_context(start())
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
        cases = iterate(signature, [s for _, s in inspected], inputs, described["ranges"][key])
        rounded = any(has_rounded_weights(f.precision) for f, _ in inspected)
        candidates = []
        for file, _ in inspected:
            named = replace(file, signature=key) if file.format == "savedmodel" else file
            runner = stack.enter_context(start())
            candidates.append((file, FileComparison(runner, named, gate.tolerances(), num_threads)))
        for first, chunk in _chunks(cases):
            tally.count(chunk)
            references.run(key, chunk, rounded=rounded, keep=True)
            runs = references.runs(key)
            true = None if labels is None else [labels.take(case) for case in runs.expected]
            for _, comparison in candidates:
                comparison.add(first, references.inputs(key), runs, true)
        if labels is not None:
            labels.finish()
        return [
            judged(
                gate,
                ParityReport(
                    reference=references.describe(source.path, key),
                    candidate=str(file.path),
                    rows=comparison.rows(),
                    environment=comparison.environment,
                    seed=inputs.seed,
                    num_samples=tally.samples,
                    inputs_sha256=digest(tally.digests),
                    notes=references.notes(key),
                ),
            )
            for file, comparison in candidates
        ]


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
    case = next(iterate(signature, [signature], inputs, {}, batches=(batch,)))
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
