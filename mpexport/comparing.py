"""How a comparison runs: cases go by in chunks, through a reference and every candidate."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Optional, Protocol

import numpy as np

from mpexport.artifacts import digest_of
from mpexport.errors import MpExportError, UsageError
from mpexport.exported import exported_file, format_of, inspect
from mpexport.parity.cases import InputOptions, count_samples, iterate_thoroughly
from mpexport.parity.gate import Gate
from mpexport.parity.inputs import case_digest
from mpexport.parity.partial import Partial, Shard
from mpexport.parity.stress import Case
from mpexport.parity.tolerance import default_for
from mpexport.parity.verdict import LabelList, ModelRuns
from mpexport.results import RunOptions
from mpexport.runtime_choice import RuntimeChoice
from mpexport.scratch import make_scratch
from mpexport.signature import Signature
from mpexport.sources import SourceOptions
from mpexport.tensors import Array, TensorSet, save_npy_dir
from mpexport.verify import (
    FileComparison,
    References,
    RunFile,
    has_rounded_weights,
    run_file,
)
from mpexport.worker.parent import Worker

# Inputs that are run in one go: enough for calls to cost little, too little to be felt.
_CHUNK_BYTES = 2**24
_PRECISIONS = ("float32", "float16-weights", "float16")  # the finest first
# See `mpexport.exporting.open_source`.
OpenSource = Callable[[Worker, SourceOptions, str], "dict[str, Any]"]


class Reference(Protocol):
    """What candidates are held against.

    Attributes:
        signature: What it takes.
        ranges: Input name → [lowest, highest] index that its tables allow.
        limits: Signatures whose fixed sizes inputs must have, beside those of the candidates.
    """

    signature: Signature
    ranges: dict[str, Any]
    limits: list[Signature]

    def prepare(self, files: list[RunFile]) -> None:
        """Hears what will be compared with it."""

    def comparison(self, worker: Worker, file: RunFile, gate: Gate) -> FileComparison:
        """A comparison of a file with it."""

    def run(self, cases: list[TensorSet]) -> tuple[list[str], ModelRuns]:
        """Runs cases; where their inputs are stored, and what the model gives."""

    def describe(self) -> tuple[str, tuple[str, ...]]:
        """Its name, and what the reader of a report should know; once it has run."""


class FileReference:
    """An exported file: two runs only, no noise floor."""

    def __init__(self, path: Path, worker: Worker, scratch: Path) -> None:
        """Opens the file in a worker of its own; arrays go to ``scratch``."""
        self._worker, self._scratch = worker, scratch
        self.file, self.signature = inspect(worker, exported_file(path))
        self.ranges: dict[str, Any] = {}
        self.limits = [self.signature]
        self._path = path

    def prepare(self, files: list[RunFile]) -> None:
        """See `Reference`."""

    def comparison(self, worker: Worker, file: RunFile, gate: Gate) -> FileComparison:
        """See `Reference`; of two precisions, the coarser one decides."""
        precision = max(self.file.precision, file.precision, key=_PRECISIONS.index)
        return FileComparison(
            worker,
            replace(file, precision=precision),
            gate.tolerances(default_for(precision)),
            is_emulated=False,
        )

    def run(self, cases: list[TensorSet]) -> tuple[list[str], ModelRuns]:
        """See `Reference`."""
        paths = [str(self._scratch / str(i)) for i in range(len(cases))]
        for case, path in zip(cases, paths):
            shutil.rmtree(path, ignore_errors=True)
            save_npy_dir(case, Path(path))
        return paths, ModelRuns(run_file(self._worker, self.file, paths)[0])

    def describe(self) -> tuple[str, tuple[str, ...]]:
        """See `Reference`."""
        return str(self._path), ("the reference is an exported file: there is no noise floor",)


class ModelReference:
    """A source model: the trained run, and the references in float64 and float32."""

    def __init__(
        self, source: SourceOptions, open_source: OpenSource, worker: Worker, scratch: Path
    ) -> None:
        """Opens the model in a worker of its own; arrays go to ``scratch``.

        Raises:
            UsageError: It has several signatures, and none was chosen.
        """
        described = open_source(worker, source, "float32")
        key = described["chosen"]
        if key is None:
            raise UsageError(
                f"{source.path}: has several signatures: "
                + ", ".join(sorted(described["signatures"])),
                hint="choose one: --signature NAME",
            )
        self._key: str = key
        self.signature = Signature.from_json(described["original_signatures"][key])
        self.ranges = described["ranges"][key]
        self.limits: list[Signature] = []
        self._rounded = False
        self._path = source.path
        self._references = References(worker, scratch)

    def prepare(self, files: list[RunFile]) -> None:
        """See `Reference`."""
        self._rounded = any(has_rounded_weights(file.precision) for file in files)

    def comparison(self, worker: Worker, file: RunFile, gate: Gate) -> FileComparison:
        """See `Reference`."""
        if file.format == "savedmodel":
            file = replace(file, signature=self._key)
        return FileComparison(worker, file, gate.tolerances())

    def run(self, cases: list[TensorSet]) -> tuple[list[str], ModelRuns]:
        """See `Reference`."""
        self._references.run(self._key, cases, rounded=self._rounded, keep=True)
        return self._references.inputs(self._key), self._references.runs(self._key)

    def describe(self) -> tuple[str, tuple[str, ...]]:
        """See `Reference`."""
        name = self._references.describe(self._path, self._key)
        return name, self._references.notes(self._key)


class Candidate:
    """An exported file in one runtime, in a worker of its own; call `start` before `add`."""

    comparison: FileComparison

    def __init__(self, worker: Worker, path: Path, file: RunFile, label: str) -> None:
        """Opens the file."""
        self.path, self.label = path, label
        self._worker = worker
        self.file, self.signature = inspect(worker, file)
        self.run_to_run: dict[str, float] = {}

    def start(self, reference: Reference, gate: Gate) -> None:
        """Settles what the file is held to."""
        self.comparison = reference.comparison(self._worker, self.file, gate)

    def add(
        self,
        cases: list[tuple[int, Case]],
        paths: list[str],
        runs: ModelRuns,
        labels: Optional[LabelList],
    ) -> None:
        """Runs cases and compares; the very first one twice.

        Raises:
            MpExportError: The file fails; names a made-up case.
        """
        try:
            numbers = [n for n, _ in cases]
            outputs = self.comparison.add(numbers, paths, runs, labels, cases[0][1].group)
            if cases[0][0] == 0:
                again, _ = run_file(self._worker, self.comparison.file, paths[:1])
                self.run_to_run = _spread(outputs[0], again[0])
        except MpExportError as e:
            name = cases[0][1].name
            if name and len(cases) == 1:
                raise type(e)(
                    f"{e.message} (inputs: {name})", hint=e.hint, where=e.where, details=e.details
                ) from e
            raise

    def digest(self) -> str:
        """SHA-256 of the file."""
        return digest_of(self.path)


def _spread(one: TensorSet, other: TensorSet) -> dict[str, float]:
    """Output → largest difference, for outputs of numbers."""
    return {
        name: float(np.max(np.abs(a.astype(np.float64) - other[name].astype(np.float64))))
        for name, a in one.items()
        if _is_number(a) and a.size and a.shape == other[name].shape
    }


def planned(
    paths: Sequence[Path], choices: Sequence[RuntimeChoice], num_threads: int
) -> list[tuple[Path, RunFile, str, Optional[str]]]:
    """Every candidate in every runtime that is asked for and runs its format.

    Returns:
        Path, what to run, name for people, and the Python that the runtime lives in.

    Raises:
        UsageError: A runtime runs none of the candidates.
    """
    formats = {path: format_of(path).name for path in paths}
    for choice in choices:
        if not set(choice.formats) & set(formats.values()):
            raise UsageError(
                f"--runtime {choice}: none of the candidates is {' or '.join(choice.formats)}"
            )
    plan: list[tuple[Path, RunFile, str, Optional[str]]] = []
    for path in paths:
        fitting = [c for c in choices if formats[path] in c.formats]
        for choice in fitting:
            label = f"{path} in {choice}" if len(fitting) > 1 else str(path)
            plan.append((path, exported_file(path, choice, num_threads), label, choice.python))
        if not fitting:
            plan.append((path, exported_file(path, None, num_threads), str(path), None))
    return plan


def compare(
    open_reference: Callable[[Worker, Path], Reference],
    paths: Sequence[Path],
    inputs: InputOptions,
    gate: Gate,
    run: RunOptions,
    *,
    choices: Sequence[RuntimeChoice] = (),
    num_threads: int = 1,
    shard: Optional[Shard] = None,
) -> list[Partial]:
    """Compares candidates with a reference.

    Args:
        open_reference: Opens the reference in a worker; gets a folder for arrays.
        paths: Exported files.
        inputs: Where sample inputs come from.
        gate: What the candidates must hold.
        run: How to run.
        choices: Runtimes.
        num_threads: Threads of the candidates' runtimes.
        shard: Which cases to run; all by default.

    Returns:
        One per candidate and runtime, in that order.
    """
    part = shard or Shard()
    plan = planned(paths, choices, num_threads)
    with ExitStack() as stack:
        scratch = make_scratch()
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        reference = open_reference(stack.enter_context(run.worker()), scratch)
        candidates = [
            Candidate(stack.enter_context(run.worker(python=python)), path, file, label)
            for path, file, label, python in plan
        ]
        reference.prepare([c.file for c in candidates])
        for candidate in candidates:
            candidate.start(reference, gate)
        seen = _Seen(run)
        seen.go(reference, candidates, inputs, part)
        name, notes = reference.describe()
        return [
            Partial(
                reference=name,
                candidate=candidate.label,
                environment=candidate.comparison.environment,
                seed=inputs.seed,
                notes=(*notes, *seen.notes),
                gate=gate,
                shard=part,
                verdict=candidate.comparison.verdict.to_json(),
                samples=seen.samples,
                digests=seen.digests,
                cases=seen.cases,
                run_to_run=candidate.run_to_run,
                files={"candidate": candidate.digest()},
            )
            for candidate in candidates
        ]


class _Seen:
    """The cases of one run: read, run, counted."""

    def __init__(self, run: RunOptions) -> None:
        self.samples = 0
        self.digests: dict[int, str] = {}
        self.cases: dict[int, str] = {}
        self.notes: list[str] = []
        self._progress = run.progress
        self._started = 0.0

    def go(
        self,
        reference: Reference,
        candidates: Iterable[Candidate],
        inputs: InputOptions,
        shard: Shard,
    ) -> None:
        """Runs every case of the shard through everything."""
        labels = inputs.open_labels()
        files = [*reference.limits, *(c.signature for c in candidates)]
        cases = iterate_thoroughly(reference.signature, files, inputs, reference.ranges)
        self._started = time.monotonic()
        for chunk in _chunks(cases):
            taken = [(n, case) for n, case in chunk if shard.takes(n)]
            true: dict[int, Any] = {}
            if taken:
                ran = self._reference(reference, taken)
                if ran is None:
                    continue
                paths, runs = ran
            if labels is not None:
                expected = dict(zip([n for n, _ in taken], runs.expected if taken else []))
                for n, case in chunk:
                    if n in expected:
                        true[n] = labels.take(expected[n])
                    else:
                        labels.skip(count_samples(case.inputs))
            if not taken:
                continue
            for candidate in candidates:
                candidate.add(
                    taken, paths, runs, None if labels is None else [true[n] for n, _ in taken]
                )
            self._count(taken)
        if labels is not None:
            labels.finish()

    def _reference(
        self, reference: Reference, taken: list[tuple[int, Case]]
    ) -> Optional[tuple[list[str], ModelRuns]]:
        """What the reference gives; None for a made-up case that says nothing."""
        case = taken[0][1]
        if not case.may_skip:
            return reference.run([case.inputs for _, case in taken])
        try:
            paths, runs = reference.run([case.inputs])
        except MpExportError as e:
            self.notes.append(f"inputs left out: {case.name}: the reference fails: {e.message}")
            return None
        strange = [n for n, a in runs.expected[0].items() if _is_number(a) and not _is_finite(a)]
        if strange:
            self.notes.append(
                f"inputs left out: {case.name}: the reference gives NaN or Inf for {strange[0]}"
            )
            return None
        return paths, runs

    def _count(self, taken: list[tuple[int, Case]]) -> None:
        for number, case in taken:
            self.samples += count_samples(case.inputs)
            self.digests[number] = case_digest(case.inputs)
            if case.name:
                self.cases[number] = case.name
        if self._progress is not None:
            rate = self.samples / max(time.monotonic() - self._started, 1e-9)
            self._progress(f"compared {self.samples} samples, {rate:.3g} per second")


def _is_number(array: Array) -> bool:
    return array.dtype.kind in "fiu"


def _is_finite(array: Array) -> bool:
    return bool(np.all(np.isfinite(array.astype(np.float64))))


def _chunks(cases: Iterator[Case]) -> Iterator[list[tuple[int, Case]]]:
    """Numbered cases to be run in one go; one that may be skipped comes by itself."""
    chunk: list[tuple[int, Case]] = []
    size = 0
    for number, case in zip(itertools.count(), cases):
        if case.may_skip:
            if chunk:
                yield chunk
            yield [(number, case)]
            chunk, size = [], 0
            continue
        chunk.append((number, case))
        size += sum(array.nbytes for array in case.inputs.values())
        if size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
