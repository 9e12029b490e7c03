"""What all tests share: a pinned environment, trained sample models, and no silent skip in CI.

With ``CI=true`` a test that skips itself fails: what it needs is missing there, and a green run
would claim what it has not checked. Mark a test ``may_skip`` where that is right nevertheless.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

IN_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")
QUICK_EPOCHS = 2

# The command line reads these; a developer's own must not decide about a test.
for _name in [name for name in os.environ if name.startswith("MPEXPORT_")]:
    del os.environ[_name]
# As in the workers. TensorFlow reads them when it is imported, so before any test module is.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_ENABLE_ONEDNN_OPTS="0", KERAS_BACKEND="tensorflow")

SampleDir = Callable[[str, str], Path]


@pytest.fixture(scope="session")
def sample_dir(tmp_path_factory: pytest.TempPathFactory) -> SampleDir:
    """``sample_dir(name, policy)``: a folder with a sample model after a short, real training.

    See ``sample_models/README.md`` for the files. Each pair is trained once per session, in
    processes of its own; tests must not write to the folder.
    """
    pytest.importorskip("sklearn")
    from sample_models.train import train

    @functools.cache
    def make(name: str, policy: str) -> Path:
        folder = tmp_path_factory.mktemp(f"{name}-{policy}-") / name
        train(name, policy, "adam", QUICK_EPOCHS, folder)
        return folder

    return make


@pytest.fixture(scope="session")
def trained(sample_dir: SampleDir) -> Path:
    """The folder of the CNN that was trained under ``mixed_float16``."""
    return sample_dir("cnn", "mixed_float16")


@pytest.fixture(scope="session")
def old_python() -> Path:
    """The Python of the environment of an old device, with tflite-runtime 2.14 and numpy 1."""
    python = Path(__file__).parents[1] / ".venv-tflite-runtime" / "bin" / "python"
    if not python.is_file():
        pytest.skip("there is no .venv-tflite-runtime: make .venv-tflite-runtime/.installed")
    return python


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if item.get_closest_marker("may_skip") is None:
        _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    report = yield
    _refuse_skip(report)
    return report


def _refuse_skip(report: Any) -> None:
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        _, _, reason = report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason}\nCI is set: nothing may be skipped there"
