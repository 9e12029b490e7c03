"""Models that children build once per session, exports of them, and what those files compute.

What is expected comes from the children: a float32 twin built by Keras, or numpy in float64.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpexport
from mpexport.errors import MpExportError
from mpexport.parity.cases import InputOptions
from mpexport.results import ExportedFile, ExportResult, RunOptions
from mpexport.worker.pool import WorkerPool
from tests.e2e.kit import CHECKOUT, within

CHILDREN = Path(__file__).parent / "children"
# Keras 3 models, their predecessors', and TensorFlow without Keras: one process each.
SCRIPTS = {"keras3": {}, "keras2": {"TF_USE_LEGACY_KERAS": "1"}, "modules": {}}


def run_child(script: Path, folder: Path, variables: dict[str, str]) -> Path:
    """Lets a script write its models to a folder."""
    import subprocess
    import sys

    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), **variables}
    ended = subprocess.run(
        [sys.executable, str(script), str(folder)], env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return folder


@dataclass(frozen=True)
class Source:
    """A model on disk, what goes in and what has to come out."""

    path: Path
    stem: str

    @property
    def data(self) -> Path:
        return self.path.parent / f"{self.stem}.inputs.npz"

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        with np.load(self.data) as stored:
            return dict(stored)

    @property
    def expected(self) -> dict[str, np.ndarray]:
        with np.load(self.path.parent / f"{self.stem}.expected.npz") as stored:
            return dict(stored)


@dataclass(frozen=True)
class Made:
    """A file that was made from a source."""

    source: Source
    path: Path
    result: ExportResult

    @property
    def file(self) -> ExportedFile:
        (file,) = self.result.files
        return file

    def outputs(self, inputs: dict[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """What the file's own runtime computes."""
        return run(self.path, self.source.inputs if inputs is None else inputs)

    def agrees(self, rtol: float | None = None) -> bool:
        """Whether it computes what is expected; ``rtol`` for files of float16 weights."""
        assert {row.verdict.value for p in self.file.parity for row in p.rows} == {"PASS"}
        found, expected = self.outputs(), self.source.expected
        names = {row.output for p in self.file.parity for row in p.rows}
        assert set(found) == names <= set(expected)
        for name, array in found.items():
            wanted = expected[name]
            assert array.shape == wanted.shape
            if rtol is None and not within(array, wanted):
                return False
            if rtol is not None and not np.allclose(
                array, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max()
            ):
                return False
        return True


def run(path: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Runs a TFLite or ONNX file; nothing of mpexport takes part."""
    if path.suffix == ".onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(path)
        names = [o.name for o in session.get_outputs()]
        feeds = {i.name: inputs[i.name] for i in session.get_inputs()}
        return dict(zip(names, session.run(names, feeds), strict=True))
    from ai_edge_litert.interpreter import Interpreter

    runner = Interpreter(str(path)).get_signature_runner()
    return {k: np.array(v) for k, v in runner(**inputs).items()}


@dataclass
class Exporter:
    """Exports sources by name, with workers that are used again."""

    folders: list[Path]
    scratch: Path
    options: RunOptions
    count: int = 0

    def source(self, name: str) -> Source:
        """``NAME.keras``, ``NAME.h5`` or the directory ``NAME``."""
        (path,) = (f / name for f in self.folders if (f / name).exists())
        return Source(path, path.stem if path.suffix in (".keras", ".h5") else name)

    def __call__(self, name: str, format: str, **options: Any) -> Made:
        source = self.source(name)
        self.count += 1
        folder = self.scratch / str(self.count)
        folder.mkdir()
        suffix = {"onnx": ".onnx", "tflite": ".tflite"}.get(format.partition("-")[0], "")
        path = folder / f"out{suffix}"
        if source.data.exists():
            options.setdefault("inputs", InputOptions(data=str(source.data)))
        try:
            result = mpexport.convert(source.path, format, path, run=self.options, **options)
        except MpExportError:
            assert list(folder.iterdir()) == [], "a failed export has left something"
            raise
        return Made(source, path, result)

    def refusal(self, name: str, format: str, exit_code: int, **options: Any) -> MpExportError:
        """The error that exporting ends with; nothing may be left behind."""
        with pytest.raises(MpExportError) as caught:
            self(name, format, **options)
        assert caught.value.exit_code == exit_code, caught.value.message
        assert "\n" not in caught.value.message
        return caught.value


@pytest.fixture(scope="session")
def export(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    folders = [tmp_path_factory.mktemp(name) for name in SCRIPTS]
    with ThreadPoolExecutor(2) as threads:
        jobs = [
            threads.submit(run_child, CHILDREN / f"{name}.py", folder, variables)
            for (name, variables), folder in zip(SCRIPTS.items(), folders, strict=True)
        ]
        for job in jobs:
            job.result()
    with WorkerPool(RunOptions().worker) as pool:
        yield Exporter(folders, tmp_path_factory.mktemp("made"), RunOptions(pool=pool))
