"""How long ``mpexport --help`` takes: the median of five whole processes.

Run ``python benchmarks/startup.py``. It prints the times and fails when the median is over budget.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 5
BUDGET_S = 0.3
COMMAND = [sys.executable, "-m", "mpexport.cli", "--help"]


def wall_time_s() -> float:
    """One process, from start to exit."""
    start = time.perf_counter()
    subprocess.run(COMMAND, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    """Times, after one run that fills the caches."""
    wall_time_s()
    times = [wall_time_s() for _ in range(RUNS)]
    median = statistics.median(times)
    shown = ", ".join(f"{t:.3f}" for t in times)
    print(f"mpexport --help: median {median:.3f} s of {shown} (budget {BUDGET_S} s)")
    return int(median > BUDGET_S)


if __name__ == "__main__":
    sys.exit(main())
