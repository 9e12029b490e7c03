"""What the verbs take and give: plain data, and how a command runs."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from mpexport.artifacts import Artifact
from mpexport.formats import Contract, Conversion
from mpexport.parity.report import ParityReport
from mpexport.signature import Signature
from mpexport.sources import SourceOptions
from mpexport.worker.parent import DEFAULT_TIMEOUT_S, Worker
from mpexport.worker.pool import WorkerPool


@dataclass(frozen=True)
class RunOptions:
    """How a command runs, whatever it does.

    Attributes:
        timeout_s: Limit for one job of a worker, in seconds.
        debug: Whether the workers' noise goes to standard error.
        progress: Called with a short text whenever something that takes time begins.
        pool: Idle workers to use again; without one, each task gets a new process.
    """

    timeout_s: float = DEFAULT_TIMEOUT_S
    debug: bool = False
    progress: Optional[Callable[[str], None]] = None
    pool: Optional[WorkerPool] = None

    def worker(
        self, purpose: str = "", python: Optional[str] = None
    ) -> AbstractContextManager[Worker]:
        """A worker process, for a ``with`` statement.

        Args:
            purpose: What it is for; with a pool, a worker that has served the same purpose before
                may be given. Empty: always a new one.
            python: Interpreter to run it with, always in a new one; None for this one.
        """
        if self.pool is not None and purpose and python is None:
            return self.pool.lease(purpose)
        return Worker(
            timeout_s=self.timeout_s,
            debug=self.debug,
            on_progress=self.progress,
            python=python or sys.executable,
        )


@dataclass(frozen=True)
class ModelHandle:
    """A source model that was loaded once and found good; the model itself is not kept in memory.

    Attributes:
        source: Where it is and how it is read.
        signatures: All signatures, as they are in the source.
        chosen: The signature that single-signature formats use; None when one must be named.
        notes: What loading had to say.
    """

    source: SourceOptions
    signatures: tuple[Signature, ...]
    chosen: Optional[str]
    notes: tuple[str, ...]
    _keep: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class ExportedFile:
    """One verified file.

    Attributes:
        artifact: Path, size, SHA-256.
        conversion: What it promises.
        contract: What was read back from it.
        parity: One report per signature; empty when verification was switched off.
    """

    artifact: Artifact
    conversion: Conversion
    contract: Contract
    parity: tuple[ParityReport, ...]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            **self.artifact.to_json(),
            "conversion": self.conversion.to_json(),
            "contract": self.contract.to_json(),
            "verified": bool(self.parity),
            "parity": [p.to_json() for p in self.parity],
        }


@dataclass(frozen=True)
class ExportResult:
    """What an export made.

    Attributes:
        path: The file, or the release folder.
        files: One entry per format.
        changes: What normalization changed: pass, kind and count.
        notes: What the user should know.
    """

    path: str
    files: tuple[ExportedFile, ...]
    changes: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "path": self.path,
            "files": [f.to_json() for f in self.files],
            "changes": list(self.changes),
            "notes": list(self.notes),
        }
