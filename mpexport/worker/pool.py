"""Workers that are used again, for whoever converts many models in one run.

Starting TensorFlow takes seconds, and converting a small model less than one. A pool hands a worker
that is done to the next task of the same purpose. What runs in it has seen other models before:
that is the price, and why a single export doesn't use a pool. Files compute the same, but the bytes
of an ONNX file can differ, since tf2onnx makes names of counters that live as long as the process.
"""

from __future__ import annotations

import shutil
from types import TracebackType
from typing import Callable, Optional

from mpexport.worker.parent import Worker

# TensorFlow never forgets a function it has registered, so a worker grows with every model.
MAX_LEASES = 40


class Lease:
    """A worker of a pool for the time of a ``with`` statement.

    Args:
        pool: Where the worker goes back to.
        purpose: Workers are exchanged among leases of the same purpose only.
        worker: The worker.
    """

    def __init__(self, pool: WorkerPool, purpose: str, worker: Worker) -> None:
        self._pool = pool
        self._purpose = purpose
        self._worker = worker

    def __enter__(self) -> Worker:
        return self._worker

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if value is None:
            self._pool.take_back(self._purpose, self._worker)
        else:
            # After an error nobody knows what state the libraries in it are in.
            self._worker.__exit__(kind, value, trace)


class WorkerPool:
    """Idle workers by purpose. Not to be shared between threads.

    Args:
        start: Makes a new worker.
    """

    def __init__(self, start: Callable[[], Worker]) -> None:
        self._start = start
        self._idle: dict[str, list[Worker]] = {}
        self._leases: dict[int, int] = {}

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def lease(self, purpose: str) -> Lease:
        """An idle worker of that purpose, or a new one."""
        idle = self._idle.get(purpose)
        worker = idle.pop() if idle else self._start()
        return Lease(self, purpose, worker)

    def take_back(self, purpose: str, worker: Worker) -> None:
        """Keeps a worker for the next lease, unless it has served long enough."""
        served = self._leases.get(id(worker), 0) + 1
        if served >= MAX_LEASES:
            self._leases.pop(id(worker), None)
            worker.close()
            return
        worker.call("reset")
        for entry in worker.scratch.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry != worker.log:
                entry.unlink()
        worker.forget_log()
        self._leases[id(worker)] = served
        self._idle.setdefault(purpose, []).append(worker)

    def close(self) -> None:
        """Ends all idle workers."""
        for workers in self._idle.values():
            for worker in workers:
                worker.close()
        self._idle.clear()
        self._leases.clear()
