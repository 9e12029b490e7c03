"""The proof behind every written file: run it in its runtime and compare it with the reference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Optional

from mpexport import runtimes
from mpexport.errors import UsageError
from mpexport.formats import Contract, Conversion
from mpexport.optional import is_installed, require_installed
from mpexport.parity.compare import compare_cases
from mpexport.parity.inputs import cases_from_npz, digest, make_inputs
from mpexport.parity.report import ParityReport
from mpexport.parity.tolerance import default_for
from mpexport.signature import Signature, TensorSpec
from mpexport.tensors import TensorSet, load_npy_dir, save_npy_dir
from mpexport.worker.parent import Worker

BATCHES = (1, 3)


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
class Written:
    """A file that was made and waits for its proof.

    Attributes:
        name: Format or variant name.
        format: Format name.
        building: Where it stands now.
        path: Where it will stand.
        conversion: What it promises.
        contract: What it holds.
    """

    name: str
    format: str
    building: Path
    path: Path
    conversion: Conversion
    contract: Contract


def fixed_batch(signatures: list[Signature]) -> int:
    """The smallest batch that all files can run: the least common multiple of fixed batches."""
    sizes = [s.shape[0] for sig in signatures for s in sig.inputs if s.shape]
    return math.lcm(*[size for size in sizes if size])


def make_cases(
    signature: Signature,
    files: list[Signature],
    inputs: InputOptions,
    inferred: Mapping[str, Any],
) -> list[TensorSet]:
    """Sample inputs for one signature.

    Args:
        signature: Of the source.
        files: Of the files to be verified; their fixed sizes are honored.
        inputs: What the user gave.
        inferred: Input name → [lowest, highest] index that its tables allow.

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
    batches = [batch * n for n in BATCHES] if None in own or not own else [1, 1]
    return [
        make_inputs(wanted, size, inputs.seed + i, ranges) for i, size in enumerate(batches)
    ]


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

    def run(self, key: str, cases: list[TensorSet], *, rounded: bool) -> None:
        """Runs all cases of one signature in the worker."""
        self.cases[key] = cases
        for i, case in enumerate(cases):
            save_npy_dir(case, self._folder / key / "inputs" / str(i))
        kinds = ["trained", "reference"] + (["rounded"] if rounded else [])
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


def verify_file(
    file: Written,
    key: str,
    references: References,
    worker: Worker,
    source: str,
    seed: int,
    num_threads: int = 1,
) -> ParityReport:
    """Runs one signature of a written file and compares it with the reference.

    Args:
        file: The file.
        key: Signature key.
        references: Holds the runs to compare with.
        worker: A worker for the runtime; must not have the source open.
        source: Name of the source, for the report.
        seed: Seed of the inputs, for the report.
        num_threads: Threads of the runtime.
    """
    cases = references.cases[key]
    output = worker.scratch / "outputs" / file.name / key
    answer = worker.call(
        "run",
        format=file.format,
        runtime=None,
        path=str(file.building),
        options={"num_threads": num_threads, "signature": key},
        cases=references.inputs(key),
        output=str(output),
    )
    reference = references.outputs(key, "reference")
    if reference is None:
        raise UsageError(f"there is no reference for signature {key}")
    half = file.conversion.precision == "float16-weights"
    rows = compare_cases(
        reference,
        load_cases(output, len(cases)),
        default_for("float32"),
        trained=references.outputs(key, "trained"),
        floor=references.outputs(key, "rounded") if half else None,
        precision=file.conversion.precision,
    )
    facts = references.facts[key]
    notes = [f"reference computed in {facts['reference_dtype']}"]
    if "trained_unavailable" in facts:
        notes.append(f"the trained model cannot run here: {facts['trained_unavailable']}")
    return ParityReport(
        reference=f"{source} ({key}, {facts['reference_dtype']})",
        candidate=str(file.path),
        rows=rows,
        environment=answer["environment"],
        seed=seed,
        num_samples=count_samples(cases),
        inputs_sha256=digest(cases),
        notes=tuple(notes),
    )


def count_samples(cases: list[TensorSet]) -> int:
    """Samples in all cases: the leading sizes added up."""
    return sum(max((a.shape[0] if a.ndim else 1 for a in c.values()), default=0) for c in cases)


def require_runtime(format_name: str) -> None:
    """Fails before a conversion when no runtime is installed that could verify its file.

    Raises:
        MissingDependencyError: Names the extra of the preferred runtime.
    """
    specs = [s for s in runtimes.all().values() if format_name in s.formats]
    specs.sort(key=lambda s: s.priority)
    if not any(all(is_installed(m) for m in s.modules) for s in specs):
        require_installed(specs[0].modules, specs[0].extra)
