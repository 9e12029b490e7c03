"""Running files for comparison and timing: what lies between the verbs and the workers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional

from mpexport import formats
from mpexport.errors import InputError, UsageError
from mpexport.latency.report import LatencyReport
from mpexport.parity.compare import compare_cases
from mpexport.parity.inputs import digest
from mpexport.parity.report import ParityReport
from mpexport.parity.tolerance import default_for
from mpexport.signature import Signature
from mpexport.sources import SourceOptions
from mpexport.tensors import TensorSet, save_npy_dir
from mpexport.verify import (
    InputOptions,
    References,
    count_samples,
    load_cases,
    make_cases,
    require_runtime,
)
from mpexport.worker.parent import Worker

StartWorker = Callable[[], Worker]


@dataclass(frozen=True)
class Candidate:
    """An exported file and its format."""

    path: Path
    format: str


def is_exported_file(path: Path) -> bool:
    """Whether a path is an exported file that needs no framework (TFLite, ONNX)."""
    if path.is_dir():
        return False
    return formats.detect(path) is not None


def candidate(path: Path) -> Candidate:
    """Recognizes a candidate by content.

    Raises:
        InputError: Missing, or no format of ours.
        MissingDependencyError: No runtime for it is installed.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file or directory", where=str(path))
    spec = formats.detect(path)
    if spec is None:
        raise InputError(
            f"{path}: is no exported file", hint="expected TFLite, ONNX or a SavedModel", where=str(path)
        )
    require_runtime(spec.name)
    return Candidate(path.absolute(), spec.name)


def _inspect(worker: Worker, file: Candidate, num_threads: int = 1) -> tuple[Signature, dict[str, Any]]:
    answer = worker.call(
        "inspect",
        format=file.format,
        runtime=None,
        path=str(file.path),
        options={"num_threads": num_threads, "signature": None},
    )
    return Signature.from_json(answer["signature"]), answer["environment"]


def _run(
    worker: Worker, file: Candidate, cases: list[str], num_threads: int, signature: Optional[str]
) -> tuple[list[TensorSet], dict[str, Any]]:
    output = worker.scratch / "outputs"
    answer = worker.call(
        "run",
        format=file.format,
        runtime=None,
        path=str(file.path),
        options={"num_threads": num_threads, "signature": signature},
        cases=cases,
        output=str(output),
    )
    outputs = [
        {name: array.copy() for name, array in case.items()}
        for case in load_cases(output, len(cases))
    ]
    return outputs, answer["environment"]


def _precision(environment: dict[str, Any]) -> str:
    return "float16-weights" if environment.get("weights") == "float16" else "float32"


def against_file(
    reference: Path,
    files: list[Candidate],
    inputs: InputOptions,
    tolerances: Any,
    num_threads: int,
    start: StartWorker,
) -> list[ParityReport]:
    """Compares files with another exported file: two runs, no noise floor."""
    base = candidate(reference)
    shapes, precisions = [], []
    for file in files:
        with start() as worker:
            signature, environment = _inspect(worker, file)
        shapes.append(signature)
        precisions.append(_precision(environment))
    with start() as worker:
        signature, environment = _inspect(worker, base)
        precisions.append(_precision(environment))
        cases = make_cases(signature, [signature, *shapes], inputs, {})
        stored = worker.scratch / "inputs"
        paths = [str(stored / str(i)) for i in range(len(cases))]
        for case, path in zip(cases, paths):
            save_npy_dir(case, Path(path))
        expected, _ = _run(worker, base, paths, num_threads, None)
        reports = []
        for file, precision in zip(files, precisions):
            with start() as other:
                outputs, environment = _run(other, file, paths, num_threads, None)
            worst = "float16-weights" if "float16-weights" in (precision, precisions[-1]) else precision
            reports.append(
                ParityReport(
                    reference=str(reference),
                    candidate=str(file.path),
                    environment=environment,
                    rows=compare_cases(
                        expected, outputs, tolerances or default_for(worst), precision=worst
                    ),
                    seed=inputs.seed,
                    num_samples=count_samples(cases),
                    inputs_sha256=digest(cases),
                    notes=("the reference is an exported file: no float64 reference, no noise floor",),
                )
            )
    return reports


def against_model(
    source: SourceOptions,
    open_in: Callable[[Worker], dict[str, Any]],
    files: list[Candidate],
    inputs: InputOptions,
    tolerances: Any,
    num_threads: int,
    start: StartWorker,
) -> list[ParityReport]:
    """Compares files with a source model: trained run, float64 reference, candidate."""
    inspected = []
    for file in files:
        with start() as worker:
            inspected.append(_inspect(worker, file))
    with start() as worker:
        described = open_in(worker)
        key = described["chosen"]
        if key is None:
            names = ", ".join(sorted(described["signatures"]))
            raise UsageError(
                f"{source.path}: has several signatures: {names}", hint="choose one: --signature NAME"
            )
        references = References(worker, worker.scratch / "references")
        signature = Signature.from_json(described["original_signatures"][key])
        shapes = [s for s, _ in inspected]
        cases = make_cases(signature, shapes, inputs, described["ranges"][key])
        half = [_precision(environment) == "float16-weights" for _, environment in inspected]
        references.run(key, cases, rounded=any(half))
        reports = []
        for file, is_half in zip(files, half):
            named = key if file.format == "savedmodel" else None
            with start() as other:
                outputs, environment = _run(
                    other, file, references.inputs(key), num_threads, named
                )
            expected = references.outputs(key, "reference")
            assert expected is not None
            reports.append(
                ParityReport(
                    reference=f"{source.path} ({key}, {references.facts[key]['reference_dtype']})",
                    candidate=str(file.path),
                    environment=environment,
                    rows=compare_cases(
                        expected,
                        outputs,
                        tolerances or default_for("float32"),
                        trained=references.outputs(key, "trained"),
                        floor=references.outputs(key, "rounded") if is_half else None,
                        precision="float16-weights" if is_half else "float32",
                    ),
                    seed=inputs.seed,
                    num_samples=count_samples(cases),
                    inputs_sha256=digest(cases),
                    notes=_notes(references.facts[key]),
                )
            )
    return reports


def _notes(facts: dict[str, Any]) -> tuple[str, ...]:
    if "trained_unavailable" in facts:
        return (f"the trained model cannot run here: {facts['trained_unavailable']}",)
    return ()


def measure(
    worker: Worker,
    format_name: str,
    path: Path,
    inputs: InputOptions,
    batch: int,
    num_threads: int,
    timing: dict[str, Any],
) -> LatencyReport:
    """Times one file in a worker."""
    file = Candidate(path.absolute(), format_name)
    signature, _ = _inspect(worker, file, num_threads)
    case = make_cases(signature, [signature], inputs, {})[0]
    if inputs.data is None and batch != 1:
        from mpexport.parity.inputs import make_inputs

        case = make_inputs(signature, batch, inputs.seed, dict(inputs.ranges or {}))
    stored = worker.scratch / "inputs"
    save_npy_dir(case, stored)
    answer = worker.call(
        "measure",
        format=format_name,
        runtime=None,
        path=str(file.path),
        options={"num_threads": num_threads, "signature": None},
        case=str(stored),
        timing=timing,
    )
    return LatencyReport.from_json(answer)
