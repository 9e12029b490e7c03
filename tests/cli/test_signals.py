"""Ctrl-C and SIGTERM: cleaned up, one line, 130 and 143."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FAKE = """
import os, sys, time
from pathlib import Path
from mpexport import api
from mpexport.artifacts import Output
from mpexport.cli.main import main
def convert(model, format, output, **more):
    with Output(Path(output), is_directory=False) as out:
        out.building.write_text("half")
        try:
            print("ready", file=sys.stderr, flush=True)
            time.sleep(30)
        finally:
            time.sleep(CLEANUP_S)
api.convert = convert
CLEANUP_S = float(os.environ["CLEANUP_S"])
sys.exit(main(sys.argv[1:]))
"""


def start(*words: str, cleanup_s: float = 0.0) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", FAKE, *words],
        env={**os.environ, "CLEANUP_S": str(cleanup_s)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    assert child.stderr.readline() == "ready\n"
    return child


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("times", "cleanup_s"), [(1, 0.0), (9, 0.0), (9, 0.3)])
def test_cleans_up(tmp_path: Path, signum: signal.Signals, times: int, cleanup_s: float) -> None:
    child = start("tflite", "m", "-o", str(tmp_path / "m.tflite"), cleanup_s=cleanup_s)
    for _ in range(times):
        child.send_signal(signum)
        time.sleep(0.02)
    out, err = child.communicate(timeout=10)
    assert (child.returncode, out, err) == (128 + signum, "", "mpexport: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_json(tmp_path: Path) -> None:
    child = start("tflite", "m", "-o", str(tmp_path / "m.tflite"), "--json")
    child.send_signal(signal.SIGINT)
    document = json.loads(child.communicate(timeout=10)[0])
    assert child.returncode == document["error"]["exit_code"] == 130
    assert document["error"]["code"] == "interrupted"
    assert document["status"] == "error"


def test_an_ignored_ctrl_c_is_taken_over(tmp_path: Path) -> None:
    """A shell script starts its background jobs with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        child = start("tflite", "m", "-o", str(tmp_path / "m.tflite"))
    finally:
        signal.signal(signal.SIGINT, before)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=10)
    assert child.returncode == 130
