"""Running the scripts of ``children``, and what they find."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

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


@dataclass(frozen=True)
class Found:
    """What a runtime found in one file: op counts, outputs on given inputs, size in bytes."""

    ops: dict[str, int]
    outputs: dict[str, np.ndarray]
    size: int


def look_into(inputs: Path, files: list[Path], scratch: Path) -> list[Found]:
    """Runs files on the arrays of ``inputs``, in a child that knows nothing of mpexport."""
    job = scratch / "job.json"
    text = {"inputs": str(inputs), "files": list(map(str, files)), "output": str(scratch)}
    job.write_text(json.dumps(text))
    found = []
    for i, item in enumerate(json.loads(run_child("files.py", job))):
        with np.load(scratch / f"{i}.npz") as stored:
            found.append(Found(item["ops"], dict(stored), files[i].stat().st_size))
    return found


def difference(mixed: dict[str, int], single: dict[str, int]) -> dict[str, int]:
    """Op → how many more the first has; ops that both have as often are left out."""
    counts = {op: mixed.get(op, 0) - single.get(op, 0) for op in {*mixed, *single}}
    return {op: count for op, count in counts.items() if count}


def same_size(a: int, b: int) -> bool:
    """Whether two sizes are within 1% or 4 KiB."""
    return abs(a - b) <= max(4096, 0.01 * max(a, b))


RTOL = 1e-5
ATOL_SCALE = 1e-5  # times the largest magnitude of the reference


def within(found: np.ndarray, expected: np.ndarray) -> bool:
    """Whether two float32 computations of the same thing agree."""
    limit = RTOL * np.abs(expected) + ATOL_SCALE * np.abs(expected).max()
    difference = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    return bool(np.all(difference <= limit))  # False for a NaN
