"""The machine a latency was measured on. What can't be read is None, never a guess."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class HostEnvironment:
    """What moves latencies from one machine, or one moment, to the next.

    Attributes:
        cpu_model: As the kernel names it.
        architecture: For example ``x86_64`` or ``aarch64``.
        logical_cores: Of the machine.
        usable_cores: This process may run on.
        cgroup_cpu_limit: Cores' worth of time that the container may use; None means no limit
            known.
        cpufreq_governor: Of the first core, for example ``performance``.
        load_average_1m: Runnable tasks over the last minute.
        platform: Operating system and version.
        python: Version.
        numpy: Version.
    """

    cpu_model: str | None
    architecture: str
    logical_cores: int | None
    usable_cores: int | None
    cgroup_cpu_limit: float | None
    cpufreq_governor: str | None
    load_average_1m: float | None
    platform: str
    python: str
    numpy: str

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> HostEnvironment:
        """The inverse of `to_json`."""
        return cls(**data)


def read_environment(root: Path = Path("/")) -> HostEnvironment:
    """Reads the environment of this process.

    Args:
        root: Where ``proc`` and ``sys`` are.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    load = getattr(os, "getloadavg", None)
    return HostEnvironment(
        cpu_model=_cpu_model(root),
        architecture=platform.machine(),
        logical_cores=os.cpu_count(),
        usable_cores=len(affinity(0)) if affinity else None,
        cgroup_cpu_limit=_cgroup_limit(root),
        cpufreq_governor=_read(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        load_average_1m=load()[0] if load else None,
        platform=platform.platform(),
        python=platform.python_version(),
        numpy=np.__version__,
    )


def _read(path: Path) -> str | None:
    try:
        # Device-tree strings end in a zero byte.
        text = path.read_text(encoding="utf-8", errors="replace").strip("\0 \n\t")
    except OSError:
        return None
    return text or None


def _cpu_model(root: Path) -> str | None:
    # x86 has "model name"; 32-bit ARM boards "Model" or "Hardware"; others only a device tree.
    fields: dict[str, str] = {}
    for line in (_read(root / "proc/cpuinfo") or "").splitlines():
        key, separator, value = line.partition(":")
        if separator and value.strip():
            fields.setdefault(key.strip(), value.strip())
    for key in ("model name", "Model", "Hardware"):
        if key in fields:
            return fields[key]
    return _read(root / "proc/device-tree/model")


def _cgroup_limit(root: Path) -> float | None:
    # Version 2: "max 100000" or "150000 100000", in microseconds per period.
    parts = (_read(root / "sys/fs/cgroup/cpu.max") or "").split()
    if not parts:  # version 1: -1 means no limit
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        parts = [_read(root / "sys/fs/cgroup/cpu" / name) or "" for name in names]
    try:
        quota, period = (int(part) for part in parts)
    except ValueError:
        return None
    return quota / period if quota > 0 and period > 0 else None
