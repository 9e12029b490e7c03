"""A library that answers at once, and ways to call the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from mpexport.cli.main import main

from mpexport import api
from mpexport.artifacts import Artifact, FileEntry
from mpexport.findings import Finding, Severity, Verdict
from mpexport.formats import Contract, Conversion
from mpexport.latency.environment import HostEnvironment
from mpexport.latency.report import LatencyReport
from mpexport.latency.summary import LatencySummary
from mpexport.parity.report import ParityReport
from mpexport.parity.row import TensorComparison
from mpexport.parity.tolerance import Tolerance
from mpexport.precision import (
    CastSite,
    DtypeCount,
    LayerPolicy,
    PrecisionReport,
    RoundedLiteral,
)
from mpexport.results import ExportedFile, ExportResult
from mpexport.signature import Signature, TensorSpec

CLI = [sys.executable, "-m", "mpexport.cli"]
SIGNATURE = Signature(
    "serve",
    (TensorSpec("image", (None, 28, 28, 1), "float32"),),
    (TensorSpec("logits", (None, 10), "float16"),),
)


@dataclass(frozen=True)
class Ended:
    """How a call ended."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("MPEXPORT_") or name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR"):
            monkeypatch.delenv(name)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Calls the command line in this process."""

    def call(*words: str) -> Ended:
        capsys.readouterr()
        code = main(list(words))
        return Ended(code, *capsys.readouterr())

    return call


@pytest.fixture
def process() -> Callable[..., Ended]:
    """Calls the installed command line in a process of its own."""

    def call(*words: str | Path, command: list[str] = CLI, **more: Any) -> Ended:
        ended = subprocess.run(
            [*command, *map(str, words)], capture_output=True, text=True, timeout=120, **more
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return call


def make_row(**changes: Any) -> TensorComparison:
    row = TensorComparison(
        output="logits",
        verdict=Verdict.PASS,
        cause="ok",
        message="within rtol 1e-05",
        tolerance=Tolerance(rtol=1e-5, atol_scale=1e-5),
        count=40,
        max_abs=1.5e-7,
        mean_abs=2e-8,
        rmse=3e-8,
        max_rel=1e-6,
        ulp=3,
        cosine=1.0,
        snr_db=float("inf"),
        top1_rows=4,
        top1_agree=4,
        worst_case=0,
        worst_index=(0, 3),
        worst_reference=0.25,
        worst_candidate=0.25000015,
        required_rtol=1e-6,
        required_atol=1.5e-7,
        noise_floor=1.4e-4,
    )
    return replace(row, **changes)


def make_parity(candidate: str = "m.tflite", *rows: TensorComparison, **more: Any) -> ParityReport:
    return ParityReport(
        reference="m.keras (serve, float64)",
        candidate=candidate,
        environment={"runtime": "litert", "version": "2.3.0", "num_threads": 1},
        rows=rows or (make_row(),),
        seed=0,
        num_samples=4,
        inputs_sha256="ab" * 32,
        **more,
    )


def make_export(path: str = "/out/m.tflite", *formats: str, verified: bool = True) -> ExportResult:
    files = tuple(
        ExportedFile(
            Artifact(f"{path}/{name}" if formats else path, name, (FileEntry("m", 1234567, "cd"),)),
            Conversion((SIGNATURE,)),
            Contract(()),
            (make_parity(name),) if verified else (),
        )
        for name in formats or ("tflite",)
    )
    changes = ({"pass": "promote_compute_dtype", "kind": "node-retyped", "count": 26},)
    return ExportResult(path, files, changes, ("the batch is fixed to 1",))


def make_precision(*severities: Severity) -> PrecisionReport:
    policies = [
        LayerPolicy(f"model/{n}", "Dense", "mixed_float16", "float16", "float32", "DTypePolicy")
        for n in ("dense", "encoder/inner")
    ]
    return PrecisionReport(
        source="m.keras",
        signatures=(SIGNATURE,),
        counts=(DtypeCount("float16", 14, 0, 0), DtypeCount("float32", 2, 6, 2_780_000)),
        casts=(
            CastSite("f/a", "float32", "float16", "weight"),
            CastSite("f/b", "float32", "float16", "weight"),
            CastSite("f/c", "float16", "float32", "output"),
        ),
        policies=tuple(policies),
        literals=tuple(RoundedLiteral(f"f/mul{i}", "float16", "0.09998") for i in range(7)),
        findings=tuple(
            Finding("half-head", s, "f/softmax", "Softmax in float16", "use float32")
            for s in severities
        ),
        notes=("serve is used",),
    )


def make_latency(file: str = "m.tflite", **changes: Any) -> LatencyReport:
    summary = LatencySummary(80, 1, 0.119, 0.123, 0.116, 0.18, 0.002, 0.138, "")
    host = HostEnvironment("A CPU", "x86_64", 4, 2, None, None, 0.5, "Linux", "3.11", "2.4")
    return LatencyReport(
        file=file,
        format="tflite",
        size_bytes=1234,
        runtime={"runtime": "litert", "version": "2.3.0"},
        load_ms=0.5,
        first_inference_ms=2.05,
        summary=replace(summary, **changes),
        num_threads=1,
        input_shapes={"image": (1, 28, 28, 1)},
        environment=host,
    )


class Library:
    """Stands in for `mpexport.api`: remembers calls, gives what it was told to.

    Attributes:
        calls: ``(verb, positional arguments, keyword arguments)``.
        answers: By verb; an exception is raised, a callable is called.
        real: The verbs it stands in for.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.answers: dict[str, Any] = {
            "check": make_precision(),
            "convert": make_export(),
            "export": make_export("/out", "savedmodel", "tflite", "tflite-float16", "onnx"),
            "compare": [make_parity()],
            "measure": make_latency(),
        }
        self.real = {name: getattr(api, name) for name in self.answers}

    def verb(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            answer = self.answers[name]
            if isinstance(answer, BaseException):
                raise answer
            return answer(*args, **kwargs) if callable(answer) else answer

        return call

    @property
    def last(self) -> dict[str, Any]:
        """Keyword arguments of the last call."""
        return self.calls[-1][2]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    """The fake library, in place."""
    fake = Library()
    for name in fake.answers:
        monkeypatch.setattr(api, name, fake.verb(name))
    return fake


@pytest.fixture
def make() -> Any:
    """Builders of results."""

    class Make:
        row = staticmethod(make_row)
        parity = staticmethod(make_parity)
        export = staticmethod(make_export)
        precision = staticmethod(make_precision)
        latency = staticmethod(make_latency)

    return Make
