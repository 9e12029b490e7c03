"""Wall time and peak memory of a whole process tree."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

INTERVAL_S = 0.02


@dataclass(frozen=True)
class Measured:
    """One finished command.

    Attributes:
        returncode: Its exit code.
        wall_s: From start to exit.
        peak_bytes: Largest sum of the resident memory of the process and all its descendants, as
            sampled every 20 ms. A page that two of them share counts twice.
        stdout: What it printed.
        stderr: What it complained about.
    """

    returncode: int
    wall_s: float
    peak_bytes: int
    stdout: str
    stderr: str


def run(
    command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Measured:
    """Runs a command and watches it."""
    peak = 0
    start = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    ended = threading.Event()

    def watch() -> None:
        nonlocal peak
        root = psutil.Process(process.pid)
        while not ended.is_set():
            peak = max(peak, _tree_bytes(root))
            ended.wait(INTERVAL_S)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        stdout, stderr = process.communicate()
    finally:
        wall_s = time.perf_counter() - start
        ended.set()
        watcher.join()
    return Measured(process.returncode, wall_s, peak, stdout, stderr)


def _tree_bytes(root: psutil.Process) -> int:
    total = 0
    try:
        tree = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for process in tree:
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total
