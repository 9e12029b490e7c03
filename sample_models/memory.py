"""Resident memory of this process, in bytes."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def resident_bytes() -> int:
    """Returns the resident memory of this process now, in bytes."""
    if _STATUS.exists():
        return _from_status("VmRSS")
    return int(importlib.import_module("psutil").Process().memory_info().rss)


def peak_bytes() -> int:
    """Returns the largest resident memory of this process so far, in bytes.

    Linux is asked for ``VmHWM``: ``getrusage`` would count the memory of the parent too, since
    its maximum survives the start of another program in the same process.
    """
    if _STATUS.exists():
        return _from_status("VmHWM")
    if sys.platform == "win32":
        return int(importlib.import_module("psutil").Process().memory_info().peak_wset)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _from_status(field: str) -> int:
    """Reads a field of ``/proc/self/status``, which gives kibibytes."""
    for line in _STATUS.read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS} has no field {field}")
