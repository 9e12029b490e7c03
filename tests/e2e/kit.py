"""Running the scripts of ``children``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
CHILDREN = Path(__file__).parent / "children"


def run_child(script: str, *args: object, **variables: str) -> str:
    """Runs a script of ``children`` with sample_models importable; returns what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), **variables}
    ended = subprocess.run(
        [sys.executable, str(CHILDREN / script), *map(str, args)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended.stdout
