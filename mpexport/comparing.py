"""How a comparison runs: cases go by in chunks, through a reference and every candidate."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Optional

import numpy as np

from mpexport.artifacts import digest_of, size_of
from mpexport.errors import MpExportError, UsageError
from mpexport.exported import exported_file, format_of, inspect
from mpexport.optional import require_installed
from mpexport.parity.cases import InputOptions, count_samples, iterate_thoroughly
from mpexport.parity.gate import Gate
from mpexport.parity.inputs import case_digest
from mpexport.parity.labels import Labels
from mpexport.parity.partial import Partial, Shard
from mpexport.parity.streams import Stream, is_saved_dataset
from mpexport.parity.stress import Case
from mpexport.parity.verdict import LabelList, ModelRuns
from mpexport.reference import Reference
from mpexport.results import RunOptions
from mpexport.runtime_choice import RuntimeChoice
from mpexport.scratch import make_scratch
from mpexport.signature import Signature
from mpexport.tensors import Array, TensorSet, as_float64, kind_of, load_npy_dir
from mpexport.verify import FileComparison, RunFile, run_file
from mpexport.worker.parent import Worker

# Inputs that are run in one go: enough for calls to cost little, too little to be felt.
_CHUNK_BYTES = 2**24
# See `planned`.
Plan = list[tuple[Path, RunFile, str, Optional[str]]]


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

    def artifact(self) -> dict[str, Any]:
        """See `mpexport.parity.report.ParityReport`."""
        return {
            "format": self.file.format,
            "size_bytes": size_of(self.path),
            "sha256": digest_of(self.path),
        }


def _spread(one: TensorSet, other: TensorSet) -> dict[str, float]:
    """Output → largest difference, for outputs of numbers."""
    return {
        name: float(np.abs(as_float64(a) - as_float64(other[name])).max())
        for name, a in one.items()
        if _is_number(a) and a.size and a.shape == other[name].shape
    }


def planned(paths: Sequence[Path], choices: Sequence[RuntimeChoice], num_threads: int) -> Plan:
    """Every candidate in every runtime that is asked for and runs its format.

    Returns:
        Path, what to run, name for people, and the Python that the runtime lives in.

    Raises:
        InputError: A candidate is missing, or no format of ours.
        MissingDependencyError: No runtime for it is installed.
        UsageError: A runtime runs none of the candidates.
    """
    formats = {path: format_of(path).name for path in paths}
    for choice in choices:
        if not set(choice.formats) & set(formats.values()):
            raise UsageError(
                f"--runtime {choice}: none of the candidates is {' or '.join(choice.formats)}"
            )
    plan: Plan = []
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
    plan: Plan,
    inputs: InputOptions,
    gate: Gate,
    run: RunOptions,
    *,
    shard: Optional[Shard] = None,
) -> list[Partial]:
    """Compares candidates with a reference.

    Args:
        open_reference: Opens the reference in a worker; gets a folder for arrays.
        plan: What to run; see `planned`.
        inputs: Where sample inputs come from.
        gate: What the candidates must hold.
        run: How to run.
        shard: Which cases to run; all by default.

    Returns:
        One per candidate and runtime, in that order.
    """
    part = shard or Shard()
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
        if isinstance(inputs.data, str) and is_saved_dataset(Path(inputs.data)):
            require_installed(("tensorflow",), "tensorflow")
            reader = stack.enter_context(run.worker())
            stream = _saved_dataset(reader, inputs.data, reference.signature)
            inputs = replace(inputs, data=stream)
        seen = _Seen(run)
        seen.go(reference, candidates, inputs, part)
        name, notes = reference.describe()
        return [
            Partial(
                reference=name,
                candidate=candidate.label,
                environment=candidate.comparison.environment,
                seed=inputs.seed,
                notes=notes,
                gate=gate,
                shard=part,
                verdict=candidate.comparison.verdict.to_json(),
                samples=seen.samples,
                digests=seen.digests,
                cases=seen.cases,
                left_out=seen.left_out,
                run_to_run=candidate.run_to_run,
                artifact=candidate.artifact(),
            )
            for candidate in candidates
        ]


def _saved_dataset(worker: Worker, path: str, signature: Signature) -> Stream:
    """The samples of a dataset on disk, read in a worker."""
    ranks = {s.name: len(s.shape) for s in signature.inputs if s.shape is not None}
    output = worker.scratch / "elements"

    def stream() -> Iterator[TensorSet]:
        count = 1
        while count:
            shutil.rmtree(output, ignore_errors=True)
            answer = worker.call(
                "dataset",
                path=os.path.abspath(path),
                inputs=[s.name for s in signature.inputs],
                output=str(output),
                size_bytes=_CHUNK_BYTES,
            )
            count = answer["count"]
            for i in range(count):
                # An element is one sample, or a batch of them.
                yield {
                    name: array[np.newaxis] if array.ndim == ranks.get(name, 0) - 1 else array
                    for name, array in load_npy_dir(output / str(i)).items()
                }

    return stream


class _Seen:
    """The cases of one run: read, run, counted."""

    def __init__(self, run: RunOptions) -> None:
        self.samples = 0
        self.digests: dict[int, str] = {}
        self.cases: dict[int, str] = {}
        self.left_out: dict[int, str] = {}
        self._progress = run.progress
        self._started = 0.0

    def go(
        self,
        reference: Reference,
        candidates: Iterable[Candidate],
        inputs: InputOptions,
        shard: Shard,
    ) -> None:
        """Runs every case of the shard through everything.

        Raises:
            UsageError: The shard has none.
        """
        labels = inputs.open_labels()
        files = [*reference.limits, *(c.signature for c in candidates)]
        cases = iterate_thoroughly(reference.signature, files, inputs, reference.ranges)
        self._started = time.monotonic()
        for chunk in _chunks(cases):
            taken = [(n, case) for n, case in chunk if shard.takes(n)]
            ran = self._reference(reference, taken) if taken else None
            true = None
            if labels is not None:
                true = _labels_of(labels, chunk, shard, ran[1].expected if ran else [])
            if ran is not None:
                for candidate in candidates:
                    candidate.add(taken, *ran, true)
                self._count(taken)
        if labels is not None:
            labels.finish()
        if not self.samples:
            raise UsageError(f"shard {shard} has nothing to run", hint="use fewer shards")

    def _reference(
        self, reference: Reference, taken: list[tuple[int, Case]]
    ) -> Optional[tuple[list[str], ModelRuns]]:
        """What the reference gives; None for a made-up case that says nothing."""
        number, case = taken[0]
        if not case.may_skip:
            return reference.run([case.inputs for _, case in taken])
        try:
            paths, runs = reference.run([case.inputs])
        except MpExportError as e:
            why = f"the reference fails: {e.message}"
            self.left_out[number] = f"inputs left out: {case.name}: {why}"
            return None
        strange = [n for n, a in runs.expected[0].items() if _is_number(a) and not _is_finite(a)]
        if strange:
            why = f"the reference gives NaN or Inf for {strange[0]}"
            self.left_out[number] = f"inputs left out: {case.name}: {why}"
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


def _labels_of(
    labels: Labels, chunk: list[tuple[int, Case]], shard: Shard, expected: list[TensorSet]
) -> LabelList:
    """The labels of the cases that were run; those of the others are passed over."""
    outputs = iter(expected)
    found: LabelList = []
    for number, case in chunk:
        if shard.takes(number):
            found.append(labels.take(next(outputs)))
        else:
            labels.skip(count_samples(case.inputs))
    return found


def _is_number(array: Array) -> bool:
    return kind_of(array) in ("float", "int")


def _is_finite(array: Array) -> bool:
    return bool(np.isfinite(as_float64(array)).all())


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
