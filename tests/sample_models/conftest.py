"""Runs a script in a process of its own, for the Keras generation that pytest doesn't hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[2]


def run_script(script: str, *arguments: str | Path, legacy_keras: bool = False) -> Any:
    """Runs Python code in a new process.

    Args:
        script: Code that prints one JSON document as its last line.
        *arguments: Its ``sys.argv[1:]``.
        legacy_keras: Whether ``tf.keras`` is Keras 2.

    Returns:
        The document.
    """
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "TF_USE_LEGACY_KERAS": str(int(legacy_keras)),
        "PYTHONPATH": str(CHECKOUT),
    }
    ended = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def fresh_process() -> Callable[..., Any]:
    return run_script
