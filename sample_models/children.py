"""Child processes: each runs one job with one generation of Keras and reports as JSON.

One process can hold one Keras generation only, and peak memory can be told apart only if each
training has a process of its own. What the libraries write goes to a log, never to the caller.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sample_models.errors import SampleModelError, WorkerError

_CHECKOUT = Path(__file__).resolve().parents[1]
_ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "KERAS_BACKEND": "tensorflow",
    "PYTHONHASHSEED": "0",
}
_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"

Job = Mapping[str, Any]
Report = dict[str, Any]


def run(module: str, job: Job, *, legacy_keras: bool = False) -> Report:
    """Runs a job in a child process.

    Args:
        module: Module of this package that calls ``serve`` when run.
        job: Arguments, of types that JSON knows.
        legacy_keras: Whether ``tf.keras`` is to be Keras 2 in the child.

    Returns:
        What the job returned.

    Raises:
        WorkerError: The child ended without a report.
    """
    with tempfile.TemporaryDirectory(prefix="sample-models-") as scratch:
        job_path, report_path = Path(scratch, "job.json"), Path(scratch, "report.json")
        job_path.write_text(json.dumps(job), encoding="utf-8")
        command = [sys.executable, "-m", f"sample_models.{module}", str(job_path), str(report_path)]
        ended = subprocess.run(
            command,
            env=_environment(legacy_keras),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if ended.returncode != 0 or not report_path.exists():
            raise WorkerError(f"{module} {_cause(ended.returncode, ended.stdout)}")
        report: Report = json.loads(report_path.read_text(encoding="utf-8"))
    if "error" in report:
        raise _error_class(report["error"])(report["message"])
    return report


def serve(work: Callable[[Job], Report]) -> None:
    """Runs the job whose file is named on the command line; the child's side of ``run``.

    Args:
        work: Does the job and returns the report, of types that JSON knows.
    """
    job_path, report_path = map(Path, sys.argv[1:3])
    try:
        report = work(json.loads(job_path.read_text(encoding="utf-8")))
    except SampleModelError as error:
        report = {"error": type(error).__name__, "message": str(error)}
    report_path.write_text(json.dumps(report), encoding="utf-8")


def _environment(legacy_keras: bool) -> dict[str, str]:
    """Returns the environment of a child."""
    environment = {**os.environ, **_ENVIRONMENT, "TF_USE_LEGACY_KERAS": str(int(legacy_keras))}
    # oneDNN runs the fused matrix product and the filter gradient in half with reference code:
    # an epoch of the CNN took 35 s with it and 0.6 s without (x86-64 with AVX512-FP16). An
    # explicit setting of the caller wins.
    environment.setdefault(_ONEDNN, "0")
    paths = [str(_CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment


def _cause(return_code: int, output: bytes) -> str:
    """Says in one line why a child ended without a report."""
    if return_code < 0:
        return f"was ended by {signal.Signals(-return_code).name}"
    lines = [line.strip() for line in output.decode(errors="replace").splitlines()]
    last = next((line for line in reversed(lines) if line), "no message")
    return f"failed: {last}"


def _error_class(name: str) -> type[SampleModelError]:
    """Returns the error class that a child has named."""
    kinds = {kind.__name__: kind for kind in SampleModelError.__subclasses__()}
    return kinds.get(name, WorkerError)
