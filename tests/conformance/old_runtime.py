"""A process that runs TFLite files in tflite-runtime, the runtime of older devices.

It runs on Python 3.9 with numpy 1: ``python -m tests.conformance.old_runtime``, one JSON job per
line.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np


def check(folder: str, policy: str, path: str, allowed: dict) -> dict:
    """Runs one file on all cases; says whether it runs, and whether it agrees with the twin."""
    from tflite_runtime.interpreter import Interpreter

    from tests.conformance.numbers import difference
    from tests.conformance.plain import invoke_tflite

    place, worst, i = Path(folder), 0.0, 0
    while (place / f"inputs-{i}.npz").exists():
        inputs = dict(np.load(place / f"inputs-{i}.npz", allow_pickle=False))
        expected = dict(np.load(place / f"expected-{policy}-{i}.npz", allow_pickle=False))
        try:
            found = invoke_tflite(Interpreter(model_path=path, num_threads=1), inputs)
        except (RuntimeError, ValueError) as e:
            return {"runs": False, "problem": next(iter(str(e).strip().splitlines()), "")[:200]}
        ratio, why = difference(expected, found, allowed)
        if why:
            return {"runs": True, "problem": why}
        worst, i = max(worst, ratio), i + 1
    return {"runs": True, "problem": "" if worst <= 1 else f"{worst:.1f} times the bound"}


def main() -> None:
    """Serves jobs until standard input closes."""
    outgoing = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        job: dict[str, Any] = json.loads(line)
        assert job.pop("job") == "check"
        outgoing.write(json.dumps({"result": check(**job)}) + "\n")
        outgoing.flush()


if __name__ == "__main__":
    main()
