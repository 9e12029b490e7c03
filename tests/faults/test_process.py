"""Processes that die, hang, wait or are interrupted: the right code, nothing left, nothing lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.faults.support import run_cli

pytestmark = pytest.mark.tf

CLI = [sys.executable, "-m", "mpexport.cli"]


@contextmanager
def started(*args: object) -> Iterator[subprocess.Popen[str]]:
    """The command line in a child of its own; its worker has started to load TensorFlow."""
    process = subprocess.Popen(
        [*CLI, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def worker_of(process: subprocess.Popen[str]) -> psutil.Process:
    """The worker process, once it is there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in psutil.Process(process.pid).children():
            if "mpexport.worker" in " ".join(child.cmdline()):
                return child
        time.sleep(0.02)
    raise AssertionError("no worker was started")


def visible(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_killed_worker_is_one_line(models: Path, tmp_path: Path, number: signal.Signals) -> None:
    with started("tflite", models / "sm", "-o", tmp_path / "o.tflite") as process:
        worker_of(process).send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 10
    lines = [x for x in err.splitlines() if x.startswith("mpexport: error:")]
    assert len(lines) == 1
    assert number.name in lines[0]
    assert visible(tmp_path) == []


def test_timeout(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.tflite"
    done = run_cli("tflite", models / "sm", "-o", out, "--timeout", "0.5")
    assert done.returncode == 10
    assert "longer than 0.5 s" in done.stderr
    assert visible(tmp_path) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted(models: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    with started("tflite", models / "sm", "-o", tmp_path / "o.tflite") as process:
        worker = worker_of(process)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in err
    assert visible(tmp_path) == []
    psutil.wait_procs([worker], timeout=10)
    assert not worker.is_running()


def test_kill_9_keeps_the_old_output_and_the_next_run_cleans_up(
    models: Path, tmp_path: Path
) -> None:
    out = tmp_path / "o.tflite"
    out.write_bytes(b"the last good one")
    with started("tflite", models / "sm", "-o", out) as process:
        worker = worker_of(process)
        process.kill()
        process.wait(timeout=10)
        # The kernel ends a worker whose parent is gone, even in the middle of a job.
        psutil.wait_procs([worker], timeout=20)
        assert not worker.is_running()
    assert out.read_bytes() == b"the last good one"
    assert len(list(tmp_path.iterdir())) == 2
    done = run_cli("tflite", models / "sm", "-o", out)
    assert done.returncode == 0, done.stderr
    assert out.read_bytes()[4:8] == b"TFL3"
    assert len(list(tmp_path.iterdir())) == 1


def test_two_runs_to_one_output(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.tflite"
    with started("tflite", models / "sm", "-o", out) as process:
        worker_of(process)
        second = run_cli("tflite", models / "sm", "-o", out)
        assert second.returncode == 6
        assert str(process.pid) in second.stderr
        process.communicate(timeout=120)
        assert process.returncode == 0
    assert visible(tmp_path) == ["o.tflite"]


@pytest.mark.parametrize(
    ("module", "command", "extra"),
    [
        ("tensorflow", "tflite", "tensorflow"),
        ("tf2onnx", "onnx", "onnx"),
        ("onnxruntime", "onnx", "onnx"),
    ],
)
def test_missing_extra(models: Path, tmp_path: Path, module: str, command: str, extra: str) -> None:
    # A None in sys.modules is how Python itself marks a module as not to be found.
    script = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from mpexport.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    command_line = [sys.executable, "-c", script, command, str(models / "sm")]
    done = subprocess.run(
        [*command_line, "-o", str(tmp_path / "o")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 11, done.stderr
    assert f"pip install 'mpexport[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert visible(tmp_path) == []


def test_hostile_surroundings(models: Path, tmp_path: Path) -> None:
    """No HOME, an odd time zone and locale, a tight umask, and a keras.json that says float16."""
    home = tmp_path / "home"
    (home / ".keras").mkdir(parents=True)
    (home / ".keras" / "keras.json").write_text('{"floatx": "float16", "backend": "torch"}')
    out = tmp_path / "o.tflite"
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "Asia/Kathmandu", "HOME": str(home)}
    done = subprocess.run(
        [*CLI, "tflite", str(models / "m.keras"), "-o", str(out)],
        capture_output=True,
        text=True,
        env=env,
        timeout=120,
        umask=0o077,
    )
    assert done.returncode == 0, done.stderr
    plain = tmp_path / "plain.tflite"
    assert run_cli("tflite", models / "m.keras", "-o", plain).returncode == 0
    assert out.read_bytes() == plain.read_bytes()
    assert out.stat().st_mode & 0o077 == 0
