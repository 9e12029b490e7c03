"""The processes a shard keeps: builders, the old runtime, and the product's own workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from mpexport.results import RunOptions
from mpexport.worker.pool import WorkerPool

CHECKOUT = Path(__file__).parents[2]
OLD_PYTHON = CHECKOUT / ".venv-tflite-runtime" / "bin" / "python"
# Of a builder: TensorFlow keeps every function it has traced.
MAX_JOBS = 60


class Child:
    """A process that answers one line of JSON with another; started when needed, and again."""

    def __init__(self, command: list[str], **variables: str) -> None:
        self._command = command
        self._variables = variables
        self._process: subprocess.Popen[str] | None = None
        self._jobs = 0
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the child

    def call(self, job: str, **arguments: Any) -> dict[str, Any]:
        """The answer; a death of the child is an ``error`` too."""
        if self._jobs >= MAX_JOBS:
            self._end()
        if self._process is None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._jobs += 1
        try:
            self._process.stdin.write(json.dumps({"job": job, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait()
            self._end()
            return {"error": f"the process ended with {code} during {job}"}
        answer = json.loads(line)
        return answer if "error" in answer else answer["result"]

    def _start(self) -> None:
        environment = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "-1",
            "PYTHONPATH": str(CHECKOUT),
            # Without it half kernels take tens of times longer.
            "TF_ENABLE_ONEDNN_OPTS": "0",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            **self._variables,
        }
        self._log.seek(0)
        self._log.truncate()
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            env=environment, text=True, cwd=CHECKOUT,
        )  # fmt: skip
        self._jobs = 0

    def noise(self) -> str:
        """The end of what it printed, for a person who wonders."""
        self._log.seek(0)
        return self._log.read()[-4000:]

    def _end(self) -> None:
        """Closes what leads to the process, which then ends, and waits for that."""
        if self._process is not None:
            with self._process:  # closes both streams and waits
                pass
            self._process = None

    def close(self) -> None:
        """Ends the process and forgets what it printed."""
        self._end()
        self._log.close()


class Children:
    """One set for each thread."""

    def __init__(self) -> None:
        builder = [sys.executable, "-m", "tests.conformance.builder"]
        self._builders = {
            "": Child(builder),
            "keras": Child(builder, KERAS_BACKEND="tensorflow"),
            "tf_keras": Child(builder, TF_USE_LEGACY_KERAS="1"),
        }
        old = [str(OLD_PYTHON), "-m", "tests.conformance.old_runtime"]
        self.old_runtime = Child(old) if OLD_PYTHON.exists() else None
        self._pool = WorkerPool(RunOptions().worker)
        self.run = RunOptions(timeout_s=900, pool=self._pool)

    def builder(self, keras: str) -> Child:
        """The one for that generation of Keras."""
        return self._builders[keras]

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *exc: object) -> None:
        for child in [*self._builders.values(), self.old_runtime]:
            if child is not None:
                child.close()
        self._pool.close()
