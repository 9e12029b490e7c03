"""The proof behind every written file: run it in its runtime and compare it with the reference."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import numpy as np

from mpexport.parity.cases import count_samples
from mpexport.parity.inputs import case_digest, digest
from mpexport.parity.report import ParityReport
from mpexport.parity.tolerance import Tolerances, default_for
from mpexport.parity.verdict import FileVerdict, LabelList, ModelRuns
from mpexport.tensors import TensorSet, load_npy_dir, save_npy_dir
from mpexport.worker.parent import Worker


@dataclass(frozen=True)
class RunFile:
    """An exported file to be run.

    Attributes:
        path: Where it stands.
        format: Format name.
        precision: ``float32``, ``float16-weights`` or ``float16``.
        signature: Signature to run; None for the only one.
        runtime: Name of the runtime; None for the preferred one.
        num_threads: Threads of the runtime.
        settings: Further settings of the runtime, see `mpexport.runtimes.RuntimeSpec.settings`.
        is_clamped: Whether weights were clamped to what float16 holds. The model with its weights
            clamped is the reference then, and the trained one says nothing.
    """

    path: Path
    format: str
    precision: str = "float32"
    signature: Optional[str] = None
    runtime: Optional[str] = None
    num_threads: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    is_clamped: bool = False

    def request(self) -> dict[str, Any]:
        """What the jobs of a worker that open the file ask for."""
        return {
            "format": self.format,
            "runtime": self.runtime,
            "path": str(self.path),
            "options": {  # of `mpexport.runtimes.RuntimeOptions`
                "num_threads": self.num_threads,
                "signature": self.signature,
                "settings": dict(self.settings),
            },
        }


class References:
    """Outputs of the trained model and of the references, per signature, stored on disk.

    Args:
        worker: A worker that has the source open.
        folder: Where arrays are stored; outlives the worker.
    """

    def __init__(self, worker: Worker, folder: Path) -> None:
        self._worker = worker
        self._folder = folder
        self.cases: dict[str, list[TensorSet]] = {}
        self.facts: dict[str, dict[str, Any]] = {}

    def run(
        self,
        key: str,
        cases: list[TensorSet],
        *,
        rounded: bool,
        clamped: bool = False,
        keep: bool = False,
    ) -> None:
        """Runs cases of one signature in the worker; they take the place of those before.

        Args:
            key: Signature key.
            cases: Inputs by name.
            rounded: Whether the reference with rounded weights is wanted too.
            clamped: Whether the one with weights clamped to what float16 holds is.
            keep: Whether this will be called again for the same signature.
        """
        self.cases[key] = cases
        shutil.rmtree(self._folder / key, ignore_errors=True)
        for i, case in enumerate(cases):
            save_npy_dir(case, self._folder / key / "inputs" / str(i))
        kinds = ["trained", "reference", "single"] + (["rounded"] if rounded else [])
        kinds += ["clamped"] if clamped else []
        self.facts[key] = self._worker.call(
            "reference",
            key=key,
            cases=self.inputs(key),
            kinds=kinds,
            output=str(self._folder / key),
            keep=keep,
        )

    def inputs(self, key: str) -> list[str]:
        """Directories of the input cases."""
        return [str(self._folder / key / "inputs" / str(i)) for i in range(len(self.cases[key]))]

    def runs(self, key: str) -> ModelRuns:
        """What the model gave for the cases of one signature."""
        unavailable = "trained_unavailable" in self.facts[key]
        return ModelRuns(
            self._outputs(key, "reference") or [],
            trained=None if unavailable else self._outputs(key, "trained"),
            rounded=self._outputs(key, "rounded"),
            clamped=self._outputs(key, "clamped"),
            single=self._outputs(key, "single"),
            constant=tuple(self.facts[key]["constant_outputs"]),
        )

    def _outputs(self, key: str, kind: str) -> Optional[list[TensorSet]]:
        folder = self._folder / key / kind
        return load_cases(folder, len(self.cases[key])) if folder.is_dir() else None

    def describe(self, name: str, key: str) -> str:
        """The reference in words, for reports."""
        return f"{name} ({key}, {self.facts[key]['reference_dtype']})"

    def notes(self, key: str) -> tuple[str, ...]:
        """What the reader of a report should know about the runs."""
        reason = self.facts[key].get("trained_unavailable")
        return (f"the trained model cannot run here: {reason}",) if reason else ()


def load_cases(folder: Path, count: int) -> list[TensorSet]:
    """Reads the outputs that a job stored for ``count`` cases."""
    return [load_npy_dir(folder / str(i)) for i in range(count)]


def run_file(
    worker: Worker, file: RunFile, cases: list[str]
) -> tuple[list[TensorSet], dict[str, Any]]:
    """Runs a file on stored cases.

    Returns:
        Outputs by name per case (they outlive the worker), and the runtime's environment.
    """
    output = worker.scratch / "outputs"
    shutil.rmtree(output, ignore_errors=True)
    answer = worker.call("run", **file.request(), cases=cases, output=str(output))
    outputs = [
        {name: np.array(array) for name, array in case.items()}
        for case in load_cases(output, len(cases))
    ]
    return outputs, answer["environment"]


class FileComparison:
    """Runs one signature of an exported file, some cases at a time, and compares.

    Args:
        worker: A worker for the runtime; must not have the source open.
        file: The file.
        tolerances: Default: that of float32 files.
        is_emulated: Whether a float16 file is held to the emulation of its own roundings.
    """

    def __init__(
        self,
        worker: Worker,
        file: RunFile,
        tolerances: Optional[Tolerances] = None,
        *,
        is_emulated: bool = True,
    ) -> None:
        self.environment: dict[str, Any] = {}
        self._worker, self.file = worker, file
        self.verdict = FileVerdict(
            file.precision,
            tolerances or default_for("float32"),
            is_emulated=is_emulated and file.precision == "float16",
        )

    def add(
        self,
        numbers: list[int],
        inputs: list[str],
        runs: ModelRuns,
        labels: Optional[LabelList] = None,
        group: str = "",
    ) -> list[TensorSet]:
        """Runs the file on stored cases and compares.

        Args:
            numbers: Of the cases, unique over all parts of a comparison.
            inputs: Directories of the cases.
            runs: What the model gives for them.
            labels: True classes per case.
            group: See `FileVerdict.add`.

        Returns:
            What the file gave.

        Raises:
            VerificationError: A float16 file overflows; names the node.
        """
        outputs, self.environment = run_file(self._worker, self.file, inputs)
        if self.file.is_clamped:  # which the model as trained is not
            runs = runs._replace(expected=runs.clamped or [], trained=None, single=None)
        twins = None
        if self.verdict.is_emulated:
            twins = _emulate(self._worker, self.file, inputs, len(inputs))
        self.verdict.add(numbers, runs, outputs, twins, labels, group)
        return outputs


def compare_file(
    worker: Worker,
    file: RunFile,
    key: str,
    references: References,
    *,
    reference: str,
    shown: Path,
    seed: int,
) -> ParityReport:
    """Runs one signature of an exported file on the cases at hand and compares with the model's.

    Args:
        worker: A worker for the runtime; must not have the source open.
        file: The file.
        key: Signature key of the source.
        references: Holds the runs to compare with.
        reference: Name of the source, for the report.
        shown: Name of the file, for the report.
        seed: Seed of the inputs, for the report.

    Raises:
        VerificationError: A float16 file overflows; names the node.
    """
    cases = references.cases[key]
    comparison = FileComparison(worker, file)
    comparison.add(list(range(len(cases))), references.inputs(key), references.runs(key))
    return ParityReport(
        reference=references.describe(reference, key),
        candidate=str(shown),
        rows=comparison.verdict.rows(),
        environment=comparison.environment,
        seed=seed,
        num_samples=sum(map(count_samples, cases)),
        inputs_sha256=digest(map(case_digest, cases)),
        notes=references.notes(key),
    )


def _emulate(
    worker: Worker, file: RunFile, cases: list[str], count: int
) -> tuple[list[TensorSet], list[TensorSet]]:
    """Outputs of the widened and of the rounded twin; see `mpexport.tf.onnx_precision.emulate`."""
    output = worker.scratch / "twins"
    worker.call(
        "emulate",
        path=str(file.path),
        cases=cases,
        output=str(output),
        scratch=str(worker.scratch / "twin_files"),
    )
    widened, rounded = (
        [
            {name: np.array(array) for name, array in case.items()}
            for case in load_cases(output / kind, count)
        ]
        for kind in ("widened", "rounded")
    )
    shutil.rmtree(output)
    return widened, rounded


def has_rounded_weights(precision: str) -> bool:
    """Whether the outputs with rounded weights belong to the proof of a file."""
    return precision in ("float16-weights", "float16")
