"""Parses, runs, prints: the one place where errors become messages and exit codes."""

from __future__ import annotations

import io
import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpexport.errors import (
    EXIT_OK,
    MissingDependencyError,
    MpExportError,
    OutputError,
    UsageError,
)
from mpexport.render import envelope, layout

from .signals import Interrupted, interruptible
from .streams import is_terminal

if TYPE_CHECKING:
    from cyclopts import CycloptsError

    from .outcome import Outcome
    from .reports import Reports

EXIT_BROKEN_PIPE = 141


class _InternalError(MpExportError):
    """A bug."""


class _InterruptedError(MpExportError):
    """A signal."""

    code = "interrupted"


@dataclass
class _Invocation:
    """What is known of a call.

    At first it is guessed, so that a call that can't be parsed is answered in the form asked for.
    """

    command: str
    json: bool
    quiet: bool
    debug: bool
    reports: Reports | None = None

    @classmethod
    def guess(cls, tokens: Sequence[str]) -> _Invocation:
        def asked(option: str) -> bool:
            variable = os.environ.get(f"MPEXPORT_{option.upper()}", "")
            return f"--{option}" in tokens or variable.lower() in ("1", "t", "true", "y", "yes")

        first = next((t for t in tokens if not t.startswith("-")), "")
        return cls(first, json=asked("json"), quiet=False, debug=asked("debug"))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: Its words; default: those of the process.

    Returns:
        The exit code: of the error's class, see `mpexport.errors`, or of the signal.
    """
    tokens = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names of models and files can hold what the terminal's encoding lacks.
            stream.reconfigure(errors="backslashreplace")
    invocation = _Invocation.guess(tokens)
    try:
        with interruptible():
            return _answer(invocation, tokens)
    except BrokenPipeError:  # the reader went away, as in ``| head``
        _drop_stdout()
        return EXIT_BROKEN_PIPE
    except OutputError as e:
        _drop_stdout()
        return _complain(e)
    except Interrupted as e:
        return _complain(_as_error(e))


def _answer(invocation: _Invocation, tokens: list[str]) -> int:
    """Runs the command and prints what came of it."""
    outcome: Outcome | None = None
    error: MpExportError | None = None
    with ExitStack() as stack:
        try:
            outcome = _run(invocation, tokens, stack)
            if outcome is None:
                return EXIT_OK
            error = outcome.error
        except BrokenPipeError:
            raise
        except (Exception, Interrupted) as e:
            if invocation.debug:
                traceback.print_exc()
            error = _as_error(e)
        try:
            _report(invocation, outcome, error)
        except OutputError as e:
            error = e
    if invocation.json:
        _print(_document(invocation, outcome, error))
    elif outcome and (error or not invocation.quiet):
        _print(layout.to_text(outcome.blocks, is_terminal=is_terminal(sys.stdout)))
    return EXIT_OK if error is None else _complain(error)


def _document(invocation: _Invocation, outcome: Outcome | None, error: MpExportError | None) -> str:
    return envelope.to_text(
        envelope.build(
            invocation.command,
            result=outcome.result if outcome else None,
            warnings=outcome.warnings if outcome else (),
            error=error,
        )
    )


def _report(invocation: _Invocation, outcome: Outcome | None, error: MpExportError | None) -> None:
    """Writes the reports that were asked for, also of what failed.

    Raises:
        OutputError: A file cannot be written.
    """
    if invocation.reports is None or isinstance(error, UsageError):
        return  # of a call that is wrong there is nothing to report, perhaps not even a place
    if outcome and outcome.document:
        invocation.reports.write(outcome.document)
    elif invocation.command == "parity":
        # Of the text that is printed, so that a stored document gives the same reports.
        invocation.reports.write(json.loads(_document(invocation, outcome, error)))


def _run(invocation: _Invocation, tokens: list[str], stack: ExitStack) -> Outcome | None:
    """Parses and runs; None for help and version, which have been printed.

    Args:
        invocation: To be filled in.
        tokens: Its words.
        stack: Holds the places of reports, until they are written.
    """
    try:
        from cyclopts import App, CycloptsError
    except ModuleNotFoundError as e:
        raise MissingDependencyError(
            f"{e.name} is not installed: the command line needs Python 3.11 or later",
            hint="on older ones import mpexport and call its functions compare and measure",
        ) from e

    from .app import build_app
    from .options import NO_RUN

    app = build_app()
    try:
        command, bound, _ = app.parse_args(tokens)
        chain = app.parse_commands(tokens)[1]
        invocation.command = chain[min(1, len(chain) - 1)].name[0]
    except CycloptsError as e:
        raise UsageError(_usage(e)) from e
    if isinstance(getattr(command, "__self__", None), App):  # help or version
        with _writing():
            command(*bound.args, **bound.kwargs)
        return None
    run = bound.arguments.get("run", NO_RUN)
    invocation.json, invocation.quiet, invocation.debug = run.json, run.quiet, run.debug
    written = bound.arguments.get("written")
    if written is not None:
        invocation.reports = stack.enter_context(written.opened())
    outcome: Outcome = command(*bound.args, **bound.kwargs)
    return outcome


def _usage(error: CycloptsError) -> str:
    from cyclopts import UnknownCommandError, UnusedCliTokensError

    first = error.unused_tokens[0] if error.unused_tokens else ""
    if isinstance(error, UnusedCliTokensError):
        return f"unexpected argument {first!r}"
    if isinstance(error, UnknownCommandError) and first.startswith("-"):
        return f"options come after a command: mpexport COMMAND {first}"
    text = str(error).strip().removesuffix(".")
    return text[:1].lower() + text[1:]


def _as_error(error: BaseException) -> MpExportError:
    if isinstance(error, MpExportError):
        return error
    if isinstance(error, Interrupted):
        stopped = _InterruptedError("interrupted")
        stopped.exit_code = error.exit_code
        return stopped
    text = f"{type(error).__name__}: {error}"
    return _InternalError(f"internal error: {text} (please report; --debug shows the traceback)")


def _complain(error: MpExportError) -> int:
    """Prints an error for people, and returns its exit code."""
    kind = "" if isinstance(error, (_InternalError, _InterruptedError)) else "error: "
    lines = [f"mpexport: {kind}{layout.one_line(error.message)}"]
    if error.hint:
        lines.append(f"hint: {layout.one_line(error.hint)}")
    if "log" in error.details:
        lines.append(f"log: {layout.one_line(str(error.details['log']))}")
    if sys.stderr is not None:  # ``2>&-``
        sys.stderr.write("".join(line + "\n" for line in lines))
        sys.stderr.flush()
    return error.exit_code


def _print(text: str) -> None:
    """Writes to standard output.

    Raises:
        OutputError: It is closed, or its disk is full.
    """
    if sys.stdout is None:
        raise OutputError("standard output is closed")
    with _writing():
        sys.stdout.write(text)
        sys.stdout.flush()


@contextmanager
def _writing() -> Iterator[None]:
    """Around what writes to standard output.

    Raises:
        BrokenPipeError: The reader went away.
        OutputError: Its disk is full.
    """
    try:
        yield
    except SystemExit as e:  # how rich leaves when the reader went away
        raise BrokenPipeError from e
    except BrokenPipeError:
        raise
    except OSError as e:
        raise OutputError(f"standard output cannot be written to: {e.strerror or e}") from e


def _drop_stdout() -> None:
    """Keeps what is still buffered from being written, and from failing again, at exit."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
