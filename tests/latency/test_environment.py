"""The machine: read where readable, None where not."""

from __future__ import annotations

import json

import pytest

from mpexport.latency.environment import HostEnvironment, read_environment


def put(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(text.encode())


def test_nothing_readable_is_none(tmp_path):
    found = read_environment(tmp_path)
    assert found.cpu_model is None
    assert found.cpufreq_governor is None
    assert found.cgroup_cpu_limit is None


@pytest.mark.parametrize(
    ("path", "text", "model"),
    [
        (
            "proc/cpuinfo",
            "processor : 0\nmodel name\t: Some CPU @ 2GHz\nmodel name: B\n",
            "Some CPU @ 2GHz",
        ),
        ("proc/cpuinfo", "processor: 0\nHardware : BCM2711\nModel : Pi 4\n", "Pi 4"),
        ("proc/cpuinfo", "processor: 0\nmodel name : \nHardware : BCM2711\n", "BCM2711"),
        ("proc/device-tree/model", "Board rev 2\0", "Board rev 2"),
    ],
)
def test_cpu_model(tmp_path, path, text, model):
    put(tmp_path, path, text)
    assert read_environment(tmp_path).cpu_model == model


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "nonsense"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
    ],
)
def test_cgroup_limit(tmp_path, files, limit):
    for name, text in files.items():
        put(tmp_path, f"sys/fs/cgroup/{name}", text)
    assert read_environment(tmp_path).cgroup_cpu_limit == limit


def test_governor(tmp_path):
    put(tmp_path, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
    assert read_environment(tmp_path).cpufreq_governor == "performance"


def test_this_machine_and_round_trip():
    found = read_environment()
    assert found.architecture
    assert found.logical_cores is None or found.logical_cores >= 1
    assert HostEnvironment.from_json(json.loads(json.dumps(found.to_json()))) == found
