"""The command line as a person calls it, and what a refusal must look like."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run_cli(*args: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mpexport.cli", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)


def refused(code: int, says: str, *args: object, left: Path | None = None, hint: str = "") -> str:
    """Runs the command and checks code, one-line message, and that nothing is left in a folder."""
    before = sorted(p.name for p in left.iterdir()) if left else []
    done = run_cli(*args)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    errors = [line for line in lines if line.startswith("mpexport: error:")]
    assert len(errors) == 1, done.stderr
    assert says in errors[0]
    assert "Traceback" not in done.stderr
    assert hint in done.stderr
    if left:
        assert sorted(p.name for p in left.iterdir()) == before
    return done.stderr
