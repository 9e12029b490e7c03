"""The proof behind every written file: run it in its runtime and compare it with the reference."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

import numpy as np

from mpexport.findings import Verdict
from mpexport.parity.compare import compare_cases
from mpexport.parity.inputs import cases_from_npz, digest, make_inputs
from mpexport.parity.report import ParityReport
from mpexport.parity.row import TensorComparison
from mpexport.parity.tolerance import Tolerances, default_for
from mpexport.signature import Signature, TensorSpec
from mpexport.tensors import TensorSet, load_npy_dir, save_npy_dir
from mpexport.worker.parent import Worker

BATCHES = (1, 3)
# How many times the emulated rounding a float16 file may be off in a runtime that rounds in other
# places: both errors are maxima of the same noise over as few as four numbers.
HALF_K = 4.0


@dataclass(frozen=True)
class InputOptions:
    """Where sample inputs come from.

    Attributes:
        data: An ``.npz`` file with one array per input, samples along the leading axis.
        ranges: Input name → (lowest, highest) for made-up inputs.
        seed: Seed of made-up inputs.
    """

    data: Optional[str] = None
    ranges: Optional[Mapping[str, tuple[float, float]]] = None
    seed: int = 0


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


def fixed_batch(signatures: list[Signature]) -> int:
    """The smallest batch that all files can run: the least common multiple of fixed batches."""
    sizes = [s.shape[0] for sig in signatures for s in sig.inputs if s.shape]
    return math.lcm(*[size for size in sizes if size])


def make_cases(
    signature: Signature,
    files: list[Signature],
    inputs: InputOptions,
    inferred: Mapping[str, Any],
    batches: Sequence[int] = BATCHES,
) -> list[TensorSet]:
    """Sample inputs for one signature.

    Args:
        signature: Of the source.
        files: Of the files to be verified; their fixed sizes are honored.
        inputs: What the user gave.
        inferred: Input name → [lowest, highest] index that its tables allow.
        batches: Samples per case, in units of the batch that the files have fixed.

    Raises:
        UsageError: An input cannot be made up.
    """
    batch = fixed_batch(files) if files else 1
    if inputs.data is not None:
        return cases_from_npz(Path(inputs.data), signature)
    names = {s.name for s in signature.inputs}
    ranges = {k: (v[0], v[1]) for k, v in inferred.items()}
    ranges.update({k: v for k, v in (inputs.ranges or {}).items() if k in names})
    wanted = _with_fixed_sizes(signature, files)
    own = {s.shape[0] for s in wanted.inputs if s.shape}
    # A model whose own batch is fixed gets as many cases, each of that batch.
    sizes = [batch * n for n in batches] if None in own or not own else [1 for _ in batches]
    return [make_inputs(wanted, size, inputs.seed + i, ranges) for i, size in enumerate(sizes)]


def _with_fixed_sizes(signature: Signature, files: list[Signature]) -> Signature:
    """The signature with the sizes (but the leading one) that a file has fixed."""
    specs = []
    for spec in signature.inputs:
        shape = spec.shape
        for other in files:
            match = next((s for s in other.inputs if s.name == spec.name), None)
            if match is None or match.shape is None or shape is None:
                continue
            rest = [a if a is not None else b for a, b in zip(shape, match.shape)]
            shape = (shape[0], *rest[1:]) if rest else ()
        specs.append(TensorSpec(spec.name, shape, spec.dtype))
    return Signature(signature.key, tuple(specs), signature.outputs)


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
        self, key: str, cases: list[TensorSet], *, rounded: bool, clamped: bool = False
    ) -> None:
        """Runs all cases of one signature in the worker."""
        self.cases[key] = cases
        for i, case in enumerate(cases):
            save_npy_dir(case, self._folder / key / "inputs" / str(i))
        kinds = ["trained", "reference"] + (["rounded"] if rounded else [])
        kinds += ["clamped"] if clamped else []
        self.facts[key] = self._worker.call(
            "reference",
            key=key,
            cases=self.inputs(key),
            kinds=kinds,
            output=str(self._folder / key),
        )

    def inputs(self, key: str) -> list[str]:
        """Directories of the input cases."""
        return [str(self._folder / key / "inputs" / str(i)) for i in range(len(self.cases[key]))]

    def outputs(self, key: str, kind: str) -> Optional[list[TensorSet]]:
        """Outputs of one kind of run; None when it could not run or was not asked for."""
        folder = self._folder / key / kind
        if kind == "trained" and "trained_unavailable" in self.facts[key]:
            return None
        if not folder.is_dir():
            return None
        return load_cases(folder, len(self.cases[key]))


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


def compare_file(
    worker: Worker,
    file: RunFile,
    key: str,
    references: References,
    *,
    reference: str,
    shown: Path,
    seed: int,
    tolerances: Optional[Tolerances] = None,
    num_threads: int = 1,
) -> ParityReport:
    """Runs one signature of an exported file and compares it with the model's runs.

    Args:
        worker: A worker for the runtime; must not have the source open.
        file: The file.
        key: Signature key of the source.
        references: Holds the runs to compare with.
        reference: Name of the source, for the report.
        shown: Name of the file, for the report.
        seed: Seed of the inputs, for the report.
        tolerances: Default: that of float32 files.
        num_threads: Threads of the runtime.

    Raises:
        VerificationError: A float16 file overflows; names the node.
    """
    cases = references.cases[key]
    facts = references.facts[key]
    outputs, environment = run_file(worker, file, references.inputs(key), num_threads)
    expected = references.outputs(key, "clamped" if file.is_clamped else "reference") or []
    floor = references.outputs(key, "rounded") if file.precision == "float16-weights" else None
    faults: tuple[TensorComparison, ...] = ()
    if file.precision == "float16":
        widened, rounded = _emulate(worker, file, references.inputs(key), len(cases))
        faults = _twin_faults(references, key, widened, rounded)
        floor = _farther(expected, widened, rounded)
    rows = faults or compare_cases(
        expected,
        outputs,
        tolerances or default_for("float32"),
        trained=None if file.is_clamped else references.outputs(key, "trained"),
        floor=floor,
        k=HALF_K if file.precision == "float16" else 2.0,
        precision=file.precision,
        constant=facts["constant_outputs"],
    )
    notes: tuple[str, ...] = ()
    if "trained_unavailable" in facts:
        notes = (f"the trained model cannot run here: {facts['trained_unavailable']}",)
    return ParityReport(
        reference=f"{reference} ({key}, {facts['reference_dtype']})",
        candidate=str(shown),
        rows=rows,
        environment=environment,
        seed=seed,
        num_samples=count_samples(cases),
        inputs_sha256=digest(cases),
        notes=notes,
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


def _twin_faults(
    references: References, key: str, widened: list[TensorSet], rounded: list[TensorSet]
) -> tuple[TensorComparison, ...]:
    """Rows of the twins that fail; empty when the outputs of the runtime can be judged.

    The emulated rounding is taken from the file, so a wrong graph would excuse itself: without the
    rounding of activations, a file is held to what rounding its weights and constants explains.
    And a runtime may round less than the device will: with all of the rounding, it is held to the
    bound of float16, or to the noise of the trained model.
    """
    expected = references.outputs(key, "reference") or []
    trained = references.outputs(key, "trained")
    faults: list[TensorComparison] = []
    for outputs, precision, floor, text in (
        (widened, "float16-weights", references.outputs(key, "rounded"), "computed in float32"),
        (rounded, "float16", None, "rounded to float16 at every step"),
    ):
        rows = compare_cases(
            expected, outputs, default_for(precision), trained, floor, precision=precision
        )
        faults = faults or [
            replace(row, message=f"{text}: {row.message}")
            for row in rows
            if row.verdict is Verdict.FAIL
        ]
    return tuple(faults)


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


def count_samples(cases: list[TensorSet]) -> int:
    """Samples in all cases: the leading sizes added up."""
    return sum(max((a.shape[0] if a.ndim else 1 for a in c.values()), default=0) for c in cases)
