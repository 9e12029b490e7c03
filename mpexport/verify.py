"""The proof behind every written file: run it in its runtime and compare it with the reference."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Optional

import numpy as np

from mpexport.findings import Verdict
from mpexport.parity.cases import count_samples
from mpexport.parity.compare import Comparison
from mpexport.parity.inputs import case_digest, digest
from mpexport.parity.report import ParityReport
from mpexport.parity.row import TensorComparison
from mpexport.parity.tolerance import Tolerances, default_for
from mpexport.tensors import Array, TensorSet, load_npy_dir, save_npy_dir
from mpexport.worker.parent import Worker

# How many times the emulated rounding a float16 file may be off in a runtime that rounds in other
# places: both errors are maxima of the same noise over as few as four numbers.
HALF_K = 4.0


@dataclass(frozen=True)
class RunFile:
    """An exported file to be run.

    Attributes:
        path: Where it stands.
        format: Format name.
        precision: ``float32``, ``float16-weights`` or ``float16``.
        signature: Signature to run; None for the only one.
        is_clamped: Whether weights were clamped to what float16 holds. The model with its weights
            clamped is the reference then, and the trained one says nothing.
    """

    path: Path
    format: str
    precision: str = "float32"
    signature: Optional[str] = None
    is_clamped: bool = False


# Output name → true classes of the samples, per case.
LabelList = list[Mapping[str, Array]]


class ModelRuns(NamedTuple):
    """Outputs of one model, per case.

    Attributes:
        expected: Of the reference.
        trained: Of the model as trained; None where it can't run.
        rounded: Of the reference with float16-rounded weights; None where nobody asked.
        clamped: Of the reference with weights clamped to what float16 holds; likewise.
        single: Of the reference computed in float32; None where it is in float32 anyway.
        constant: Outputs that depend on no input.
    """

    expected: list[TensorSet]
    trained: Optional[list[TensorSet]]
    rounded: Optional[list[TensorSet]]
    clamped: Optional[list[TensorSet]]
    single: Optional[list[TensorSet]]
    constant: tuple[str, ...]


def only(expected: list[TensorSet]) -> ModelRuns:
    """Runs of which nothing else is known."""
    return ModelRuns(expected, None, None, None, None, ())


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
            None if unavailable else self._outputs(key, "trained"),
            self._outputs(key, "rounded"),
            self._outputs(key, "clamped"),
            self._outputs(key, "single"),
            tuple(self.facts[key]["constant_outputs"]),
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
    worker: Worker, file: RunFile, cases: list[str], num_threads: int
) -> tuple[list[TensorSet], dict[str, Any]]:
    """Runs a file on stored cases.

    Returns:
        Outputs by name per case (they outlive the worker), and the runtime's environment.
    """
    output = worker.scratch / "outputs"
    shutil.rmtree(output, ignore_errors=True)
    answer = worker.call(
        "run",
        format=file.format,
        runtime=None,
        path=str(file.path),
        options={"num_threads": num_threads, "signature": file.signature},
        cases=cases,
        output=str(output),
    )
    outputs = [
        {name: np.array(array) for name, array in case.items()}
        for case in load_cases(output, len(cases))
    ]
    return outputs, answer["environment"]


class FileComparison:
    """One signature of an exported file against the model's runs, some cases at a time.

    Args:
        worker: A worker for the runtime; must not have the source open.
        file: The file.
        tolerances: Default: that of float32 files.
        num_threads: Threads of the runtime.
    """

    def __init__(
        self,
        worker: Worker,
        file: RunFile,
        tolerances: Optional[Tolerances] = None,
        num_threads: int = 1,
    ) -> None:
        self.environment: dict[str, Any] = {}
        self._worker, self._file, self._num_threads = worker, file, num_threads
        k = HALF_K if file.precision == "float16" else 2.0
        self._main = Comparison(tolerances or default_for("float32"), k, file.precision)
        # Of a float16 file, what it computes without and with all of its roundings.
        self._twins = [
            (Comparison(default_for(precision), precision=precision), text)
            for precision, text in _TWINS
            if file.precision == "float16"
        ]

    def add(
        self,
        first: int,
        inputs: list[str],
        runs: ModelRuns,
        labels: Optional[LabelList] = None,
    ) -> None:
        """Runs the file on stored cases and compares.

        Args:
            first: Number of the first case.
            inputs: Directories of the cases.
            runs: What the model gives for them.
            labels: True classes per case.

        Raises:
            VerificationError: A float16 file overflows; names the node.
        """
        outputs, self.environment = run_file(self._worker, self._file, inputs, self._num_threads)
        if self._file.is_clamped:  # which the model as trained is not
            runs = runs._replace(expected=runs.clamped or [], trained=None, single=None)
        self._main.note_constants(runs.constant)
        floors = runs.rounded if self._file.precision == "float16-weights" else None
        if self._twins:
            twins = _emulate(self._worker, self._file, inputs, len(inputs))
            asides: tuple[Any, Any] = (runs.rounded, None)
            for (comparison, _), made, aside in zip(self._twins, twins, asides):
                compare_all(comparison, first, runs, made, aside)
            floors = _farther(runs.expected, *twins)
        compare_all(self._main, first, runs, outputs, floors, labels)

    def rows(self) -> tuple[TensorComparison, ...]:
        """One row per output over all cases so far.

        The emulated rounding of a float16 file is taken from the file, so a wrong graph would
        excuse itself: without the rounding of activations, a file is held to what rounding its
        weights and constants explains. And a runtime may round less than the device will: with all
        of the rounding, it is held to the bound of float16, or to the noise of the trained model.
        """
        for comparison, text in self._twins:
            faults = [
                replace(row, message=f"{text}: {row.message}")
                for row in comparison.rows()
                if row.verdict is Verdict.FAIL
            ]
            if faults:
                return tuple(faults)
        return self._main.rows()


_TWINS = (
    ("float16-weights", "computed in float32"),
    ("float16", "rounded to float16 at every step"),
)


def compare_all(
    comparison: Comparison,
    first: int,
    runs: ModelRuns,
    outputs: list[TensorSet],
    floors: Optional[list[TensorSet]] = None,
    labels: Optional[LabelList] = None,
) -> None:
    """Gives cases to a comparison; the first one has the number ``first``."""
    for i, (reference, candidate) in enumerate(zip(runs.expected, outputs)):
        comparison.add(
            first + i,
            reference,
            candidate,
            None if runs.trained is None else runs.trained[i],
            None if floors is None else floors[i],
            None if labels is None else labels[i],
            None if runs.single is None else runs.single[i],
        )


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
    comparison.add(0, references.inputs(key), references.runs(key))
    return ParityReport(
        reference=references.describe(reference, key),
        candidate=str(shown),
        rows=comparison.rows(),
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


def _farther(
    expected: list[TensorSet], first: list[TensorSet], second: list[TensorSet]
) -> list[TensorSet]:
    """Of two runs, each number that is farther from the reference.

    A runtime that leaves out some roundings lies between the two twins, and they may cancel.
    """
    return [
        {
            name: np.where(abs(b[name] - r[name]) > abs(a[name] - r[name]), b[name], a[name])
            if name in r and a[name].dtype.kind == "f" and a[name].shape == r[name].shape
            else b[name]
            for name in b
        }
        for r, a, b in zip(expected, first, second)
    ]


def has_rounded_weights(precision: str) -> bool:
    """Whether the outputs with rounded weights belong to the proof of a file."""
    return precision in ("float16-weights", "float16")
