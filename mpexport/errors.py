"""The exception tree; each class is one row of the exit-code table.

    MpExportError                  1   a bug in mpexport: please report
    ├── UsageError                 2   the command or call is wrong
    ├── InputError                 3   input missing, unreadable or damaged
    ├── UnsafeModelError           4   refused: the model would run its author's code
    ├── ConversionError            5   no faithful file can be made
    ├── OutputError                6   output not writable, locked, or disk full
    ├── VerificationError          7   a file was made, but contract or numbers failed
    ├── InconclusiveError          9   no verdict: nothing to compare, no samples
    ├── WorkerError               10   a child process crashed or timed out
    ├── MissingDependencyError    11   an optional package is not installed
    └── PrecisionError            12   the precision check found errors

A message is one line that says what failed, where, and what was found; ``hint`` says what to do.
"""

from __future__ import annotations

import errno
from typing import Any

EXIT_OK = 0
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class MpExportError(Exception):
    """Root of all errors raised by mpexport.

    Args:
        message: One line: what failed, where, expected and received.
        hint: One line: what the user can do. Empty when there is nothing to advise.
        where: The file, node path or layer concerned.
        details: Machine-readable extras that appear in the JSON error.
    """

    exit_code = 1
    code = "internal"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        where: str = "",
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where
        self.details = details or {}

    def to_json(self) -> dict[str, Any]:
        """The ``error`` member of the JSON envelope."""
        return {
            "code": self.code,
            "exit_code": self.exit_code,
            "message": self.message,
            "hint": self.hint,
            "where": self.where,
            "details": self.details,
        }


class UsageError(MpExportError):
    """The command line or the call is wrong."""

    exit_code = 2
    code = "usage"


class InputError(MpExportError):
    """An input is missing, unreadable or damaged."""

    exit_code = 3
    code = "input"


class UnsafeModelError(MpExportError):
    """Loading the model would run code of its author; nothing was run."""

    exit_code = 4
    code = "unsafe"


class ConversionError(MpExportError):
    """No faithful file can be made from this model."""

    exit_code = 5
    code = "conversion"


class OutputError(MpExportError):
    """The output cannot be written."""

    exit_code = 6
    code = "output"


class VerificationError(MpExportError):
    """A file was made, but its contract or its numbers failed; it did not get its final name."""

    exit_code = 7
    code = "verification"


class InconclusiveError(MpExportError):
    """There is no evidence for a verdict."""

    exit_code = 9
    code = "inconclusive"


class WorkerError(MpExportError):
    """A child process was killed by a signal or ran into its time limit."""

    exit_code = 10
    code = "worker"


class MissingDependencyError(MpExportError):
    """An optional dependency is not installed."""

    exit_code = 11
    code = "missing-dependency"


class PrecisionError(MpExportError):
    """The precision check found errors."""

    exit_code = 12
    code = "precision"


def disk_full(error: BaseException) -> OutputError | None:
    """The error to report when a full disk is behind ``error``, however libraries wrapped it."""
    cause: BaseException | None = error
    while cause is not None:
        full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or "No space left on device" in str(cause):
            return OutputError(
                "the disk is full",
                hint="free some space where the output or the temporary files go (TMPDIR)",
            )
        cause = cause.__cause__ or cause.__context__
    return None


def _tree(root: type[MpExportError]) -> list[type[MpExportError]]:
    return [root] + [c for child in root.__subclasses__() for c in _tree(child)]


def from_json(error: dict[str, Any]) -> MpExportError:
    """Rebuilds an error that crossed a process border as JSON."""
    for cls in _tree(MpExportError):
        if cls.code == error.get("code"):
            return cls(
                error["message"],
                hint=error.get("hint", ""),
                where=error.get("where", ""),
                details=error.get("details", {}),
            )
    return MpExportError(str(error.get("message", error)))
