"""Errors of the sample models, each with the exit code of its kind.

The codes are those of the ``mpexport`` command line, so that a script can treat both alike.
"""

from __future__ import annotations


class SampleModelError(Exception):
    """Root of all errors raised on purpose by this package.

    Attributes:
        exit_code: Exit code of the command line for this kind of error.
    """

    exit_code: int = 1


class UsageError(SampleModelError):
    """An argument has a value that cannot be used."""

    exit_code = 2


class OutputError(SampleModelError):
    """The output folder cannot be made or written to."""

    exit_code = 6


class WorkerError(SampleModelError):
    """A child process stopped before it handed over its result."""

    exit_code = 10


class MissingDependencyError(SampleModelError):
    """A package that is needed here is not installed."""

    exit_code = 11


class TwinError(SampleModelError):
    """A float32 twin cannot be rebuilt, or would not be a true copy."""

    exit_code = 5
