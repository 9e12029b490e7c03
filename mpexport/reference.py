"""What candidates are held against: a source model, or another exported file."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Protocol

from mpexport.errors import UsageError
from mpexport.exported import exported_file, inspect
from mpexport.parity.gate import Gate
from mpexport.parity.tolerance import default_for
from mpexport.parity.verdict import ModelRuns
from mpexport.signature import Signature
from mpexport.sources import SourceOptions
from mpexport.tensors import TensorSet, save_npy_dir
from mpexport.verify import FileComparison, References, RunFile, has_rounded_weights, run_file
from mpexport.worker.parent import Worker

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
