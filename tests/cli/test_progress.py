"""One line on a terminal, nothing anywhere else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from mpexport.cli import progress

FAKE = """
import sys, time
from mpexport import api
from mpexport.precision import PrecisionReport
from mpexport.cli import progress
from mpexport.cli.main import main
progress.DELAY_S = float(sys.argv[1])
def check(model, run, **more):
    for step in ("loading the model", "running " + "it " * 60):
        run.progress(step)
        time.sleep(0.8)
    return PrecisionReport("m", (), (), (), (), ())
api.check = check
sys.exit(main(sys.argv[2:]))
"""


class Screen:
    """Enough of a terminal to tell what a person sees, at each moment and at the end."""

    def __init__(self) -> None:
        self.lines = [""]
        self.row = self.column = 0
        self.is_cursor_shown = True
        self.seen: list[str] = []

    def feed(self, data: str) -> None:
        for part in re.findall(r"\x1b\[\??[0-9;]*[A-Za-z]|.|\n", data, re.DOTALL):
            if part == "\r":
                self.column = 0
            elif part == "\n":
                self.row += 1
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif part == "\x1b[2K":
                self.lines[self.row] = ""
            elif part.endswith("A") and part.startswith("\x1b"):
                self.row -= int(part[2:-1] or 1)
            elif part in ("\x1b[?25l", "\x1b[?25h"):
                self.is_cursor_shown = part.endswith("h")
            elif part.startswith("\x1b"):
                assert part.endswith("m"), f"unknown sequence {part!r}"
            else:
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + part + line[self.column + 1 :]
                self.column += 1
        self.seen.append("\n".join(self.lines))

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines).rstrip()


def watch(*words: str, stdout_is_terminal: bool = True, **environment: str) -> tuple[Screen, bytes]:
    """Runs the fake command with stderr (and stdout) on a terminal of 80 columns."""
    parent, child = pty.openpty()
    started = subprocess.Popen(
        [sys.executable, "-c", FAKE, *words],
        stdin=child,
        stdout=child if stdout_is_terminal else subprocess.PIPE,
        stderr=child,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **environment},
    )
    os.close(child)
    screen = Screen()
    while True:
        try:
            data = os.read(parent, 65536)
        except OSError:  # Linux: the other side is closed
            break
        if not data:
            break
        screen.feed(data.decode())
    os.close(parent)
    piped = started.communicate()[0] or b""
    assert started.returncode == 0
    return screen, piped


def test_line_updates_and_goes() -> None:
    screen, _ = watch("0.2", "check", "m")
    moving = [s for s in screen.seen if "[" in s]
    assert any("[0 s] loading the model" in s for s in moving)
    assert any("[1 s] running it it" in s for s in moving)
    assert all(len(line) <= 80 for s in moving for line in s.splitlines())
    assert all(s.strip().count("\n") == 0 for s in moving), "one line only"
    assert "loading" not in screen.text
    assert "running" not in screen.text
    assert screen.text.startswith("m\n")
    assert screen.is_cursor_shown


def test_not_before_two_seconds() -> None:
    assert progress.DELAY_S == 2.0
    screen, _ = watch("2.0", "check", "m")
    assert not any("loading" in s or "running" in s for s in screen.seen)


@pytest.mark.parametrize(
    ("words", "is_terminal"),
    [(["-q"], True), (["--debug"], True), (["--json"], False)],
)
def test_nothing(words: list[str], is_terminal: bool) -> None:
    screen, _ = watch("0.1", "check", "m", *words, stdout_is_terminal=is_terminal)
    assert not any("[0 s]" in s for s in screen.seen)


def test_dumb_terminal() -> None:
    screen, _ = watch("0.1", "check", "m", TERM="dumb")
    assert not any("[0 s]" in s for s in screen.seen)


def test_line_is_shown_when_only_the_result_is_piped() -> None:
    screen, piped = watch("0.1", "check", "m", stdout_is_terminal=False)
    assert any("[0 s] loading the model" in s for s in screen.seen)
    assert screen.text == ""
    assert piped.startswith(b"m\n")
    assert b"\x1b" not in piped


def test_verbose_keeps_the_steps() -> None:
    screen, _ = watch("0.1", "check", "m", "-v")
    assert "[0 s] loading the model\n" in screen.text + "\n"
    assert screen.text.count("loading the model") == 1


def test_pipe(process: Callable[..., Any]) -> None:
    command = [sys.executable, "-c", FAKE, "0.1"]
    ended = process("check", "m", command=command)
    assert (ended.code, ended.err) == (0, "")
    ended = process("check", "m", "-v", command=command)
    assert ended.err.splitlines()[0] == "[0 s] loading the model"
    assert len(ended.err.splitlines()) == 2
