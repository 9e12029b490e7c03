"""Exported files as they lie on disk: which format, what they take and give, how long they take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from mpexport import formats, runtimes
from mpexport.errors import InputError
from mpexport.latency.report import LatencyReport
from mpexport.parity.cases import InputOptions, iterate
from mpexport.runtime_choice import RuntimeChoice
from mpexport.signature import Signature
from mpexport.tensors import save_npy_dir
from mpexport.verify import RunFile
from mpexport.worker.parent import Worker


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


def exported_file(
    path: Path, choice: Optional[RuntimeChoice] = None, num_threads: int = 1
) -> RunFile:
    """Recognizes an exported file by content.

    Args:
        path: Where it is.
        choice: The runtime to run it with; None for the preferred one.
        num_threads: Threads of the runtime.

    Raises:
        InputError: Missing, or no format of ours.
        MissingDependencyError: No runtime for it is installed.
    """
    spec = format_of(path)
    file = RunFile(path.absolute(), spec.name, num_threads=num_threads)
    if choice is None:
        runtimes.require_any(spec.name)
        return file
    return replace(file, runtime=choice.name, settings=choice.settings)


def inspect(worker: Worker, file: RunFile) -> tuple[RunFile, Signature]:
    """Opens a file in its runtime: its precision and its signature."""
    answer = worker.call("inspect", **file.request())
    environment = answer["environment"]
    stored = "float16-weights" if environment.get("weights") == "float16" else "float32"
    precision = "float16" if environment.get("compute") == "float16" else stored
    return replace(file, precision=precision), Signature.from_json(answer["signature"])


def measure(
    worker: Worker, file: RunFile, inputs: InputOptions, batch: int, timing: dict[str, Any]
) -> LatencyReport:
    """Times one file in a worker, on one case of ``batch`` samples."""
    file, signature = inspect(worker, file)
    case = next(iterate(signature, [signature], inputs, {}, batches=(batch,)))
    stored = worker.scratch / "inputs"
    save_npy_dir(case, stored)
    answer = worker.call("measure", **file.request(), case=str(stored), timing=timing)
    return LatencyReport.from_json(answer)
