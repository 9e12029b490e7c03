"""Documents of real comparisons, as ``mpexport parity --json`` prints them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from mpexport.errors import InconclusiveError, MpExportError, VerificationError, WorkerError
from mpexport.findings import Verdict
from mpexport.parity.compare import compare_outputs
from mpexport.parity.report import Missed, ParityReport, verdict_of
from mpexport.parity.tolerance import default_for
from mpexport.render import envelope

ENVIRONMENT = {"runtime": "litert", "version": "2.3.0", "num_threads": 1, "numpy": "2.4.6"}


def report(
    candidate: str = "release/cnn.tflite",
    error: float = 1e-7,
    names: tuple[str, ...] = ("logits",),
    missed: tuple[Missed, ...] = (),
    seed: int = 0,
    **more: Any,
) -> ParityReport:
    """A comparison in which every output is off by about ``error``, the trained model by 1e-3."""
    rng = np.random.default_rng(seed)
    shape = (64, 10)
    reference = {name: rng.standard_normal(shape) for name in names}
    off, trained = (
        {n: r * (1 + scale * rng.standard_normal(shape)) for n, r in reference.items()}
        for scale in (error, 1e-3)
    )
    rows = compare_outputs(reference, off, default_for("float32"), trained)
    return ParityReport(
        reference="model/cnn.keras (serving_default, float64)",
        candidate=candidate,
        environment=ENVIRONMENT,
        rows=rows,
        seed=0,
        num_samples=64,
        inputs_sha256="ab" * 32,
        missed=missed,
        **more,
    )


def of(*reports: ParityReport) -> dict[str, Any]:
    """The document of a comparison that ended, with numbers as JSON has them."""
    verdicts = [r.verdict for r in reports]
    order = [Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS]
    verdict = min(verdicts, key=order.index, default=Verdict.INCONCLUSIVE)
    error: MpExportError | None = None
    if verdict is Verdict.FAIL:
        error = VerificationError("it is off")
    elif verdict is Verdict.INCONCLUSIVE:
        error = InconclusiveError("nothing is proved")
    result = {"verdict": verdict.value, "reports": [r.to_json() for r in reports]}
    return _plain(envelope.build("parity", result=result, error=error))


def ended_early(message: str = "m.tflite: the worker was killed") -> dict[str, Any]:
    """The document of a run that compared nothing."""
    return _plain(envelope.build("parity", error=WorkerError(message, hint="give it memory")))


def _plain(document: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(envelope.to_text(document))
    return plain


def passing() -> dict[str, Any]:
    """PASS: two candidates."""
    return of(report(), report("release/cnn.onnx", seed=1))


def failing() -> dict[str, Any]:
    """FAIL: one output beyond everything, one candidate good, one limit not held."""
    limit = Missed(Verdict.FAIL, "logits", "max_ulp", "ulp 9.1e+04 > 64")
    bad = report("release/stale.tflite", 0.2, ("logits", "embedding"), (limit,))
    assert verdict_of(bad.rows) is Verdict.FAIL
    return of(report(), bad)


def inconclusive() -> dict[str, Any]:
    """INCONCLUSIVE: a constant reference, a candidate without outputs, too few samples."""
    ones = {"logits": np.ones((4, 3))}
    rows = compare_outputs(ones, ones, default_for("float32"))
    constant = ParityReport("m", "constant.onnx", ENVIRONMENT, rows, 0, 4, "cd" * 32)
    empty = ParityReport("m", "empty.onnx", {}, (), 0, 0, "cd" * 32)
    few = Missed(Verdict.INCONCLUSIVE, "samples", "min", "64 samples, 360 needed")
    return of(constant, empty, report(missed=(few,)))


ALL = {
    "pass": passing,
    "fail": failing,
    "inconclusive": inconclusive,
    "early": ended_early,
}
