"""Start a worker, give it jobs, and turn its death into one typed error."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Optional

from mpexport import errors
from mpexport.errors import WorkerError
from mpexport.scratch import make_scratch
from mpexport.worker.protocol import decode, encode, request

DEFAULT_TIMEOUT_S = 3600.0

# What would change results from outside: another backend, another Keras generation, another policy
# in a user's keras.json, compiler flags, a GPU whose kernels are then traced.
_REMOVED = (
    "TF_USE_LEGACY_KERAS",
    "XLA_FLAGS",
    "TF_XLA_FLAGS",
    "NVIDIA_TF32_OVERRIDE",
    "PYTHONPATH",
)
_PINNED = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "KERAS_BACKEND": "tensorflow",
    "LC_ALL": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    # Without oneDNN: its half kernels on the CPU are tens of times slower, and its results depend
    # on the machine.
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TZ": "UTC",
}


class Worker:
    """A child process that does jobs one after the other.

    Args:
        timeout_s: Limit for one job, in seconds.
        debug: Whether the child's noise goes to standard error instead of the log.
        on_progress: Called with a short text when the child says what it does.
        python: The interpreter to run, when it isn't this one.
    """

    def __init__(
        self,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        debug: bool = False,
        on_progress: Optional[Callable[[str], None]] = None,
        python: str = sys.executable,
    ) -> None:
        self.scratch = make_scratch()
        self.log = self.scratch / "worker.log"
        self._timeout_s = timeout_s
        self._progress = on_progress or (lambda text: None)
        self._failed = False
        self._buffer = b""
        home = Path(__file__).resolve().parents[2]
        env = {k: v for k, v in os.environ.items() if k not in _REMOVED}
        env.update(_PINNED, KERAS_HOME=str(self.scratch / "keras"), TMPDIR=str(self.scratch))
        # Not installed (a zipapp, a checkout on a board): the child finds the same package.
        env["PYTHONPATH"] = str(home)
        if python != sys.executable:
            # Where it is installed, its home holds this Python's packages too: numpy of another
            # version would break the child.
            (self.scratch / "library").mkdir()
            (self.scratch / "library" / "mpexport").symlink_to(home / "mpexport")
            env["PYTHONPATH"] = str(self.scratch / "library")
        self._log_file = None if debug else self.log.open("wb")
        self.process = subprocess.Popen(
            [python, "-m", "mpexport.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log_file,
            env=env,
            cwd=self.scratch,
            start_new_session=True,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close(keep_log=isinstance(value, errors.MpExportError) and self._failed)

    def call(self, job: str, **args: Any) -> dict[str, Any]:
        """Runs one job and returns its result.

        Raises:
            MpExportError: Whatever the job raised.
            WorkerError: The child died or ran into the time limit.
        """
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(encode(request(job, args)))
            self.process.stdin.flush()
        except (BrokenPipeError, ConnectionResetError):
            raise self._death(job) from None
        deadline = time.monotonic() + self._timeout_s
        while True:
            message = decode(self._line(job, deadline))
            if "progress" in message:
                self._progress(str(message["progress"]))
            elif "error" in message:
                raise self._with_log(errors.from_json(message["error"]))
            else:
                result: dict[str, Any] = message["result"]
                return result

    def forget_log(self) -> None:
        """Empties the log; the child, which shares the position, goes on at its start."""
        if self._log_file is not None:
            self._log_file.seek(0)
            self._log_file.truncate()

    def _with_log(self, error: errors.MpExportError) -> errors.MpExportError:
        """Errors that a log helps to understand keep it."""
        if error.exit_code in (1, 5, 10) and self._log_file is not None:
            self._failed = True
            error.details = {**error.details, "log": str(self._kept_log())}
        return error

    def _kept_log(self) -> Path:
        return self.scratch.with_suffix(".log")

    def _line(self, job: str, deadline: float) -> bytes:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self._kill()
                    raise self._with_log(
                        WorkerError(
                            f"{job} took longer than {self._timeout_s:g} s and was stopped",
                            hint="--timeout SECONDS allows more",
                            where=job,
                        )
                    )
                chunk = os.read(self.process.stdout.fileno(), 1 << 16)
                if not chunk:
                    raise self._death(job)
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _death(self, job: str) -> errors.MpExportError:
        code = self.process.wait()
        if code < 0:
            name = signal.Signals(-code).name
            cause = f"the worker was killed by {name} during {job}"
            hint = "likely out of memory" if name == "SIGKILL" else "the library it ran crashed"
        else:
            cause = f"the worker ended with status {code} during {job}"
            hint = "--debug shows what it printed"
        return self._with_log(WorkerError(cause, hint=hint, where=job))

    def _kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self, *, keep_log: bool = False) -> None:
        """Ends the child and removes its temporary files; the log stays if ``keep_log``."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    self._failed = True
        try:
            self.process.wait(timeout=0 if sys.exc_info()[0] else 5)
        except subprocess.TimeoutExpired:
            self._kill()
        if self._log_file is not None:
            self._log_file.close()
            if keep_log:
                shutil.move(self.log, self._kept_log())
        shutil.rmtree(self.scratch, ignore_errors=True)
