"""Sources that children build once per session, and their exports, each made when first asked for.

Children run one generation of Keras each; nothing here imports TensorFlow in the test process.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e import kit
from tests.e2e.kit import Found, run_child

# Exports are processes of their own; more than two at once only wait for each other's memory.
AT_ONCE = 2


@dataclass(frozen=True)
class Sources:
    """Folders of the sources, see ``children/sources.py``."""

    keras: Path
    tf_keras: Path

    def path(self, generation: str, name: str, policy: str, kind: str) -> Path:
        """The file or directory; ``kind`` is ``file`` or ``savedmodel``."""
        suffix = "" if kind == "savedmodel" else ".keras" if generation == "keras" else ".h5"
        return getattr(self, generation) / f"{name}-{policy}{suffix}"

    def twin_outputs(
        self, generation: str, name: str, policy: str, literals: str = "probabilities"
    ) -> np.ndarray:
        """What the float32 twin computed on ``inputs.npz``; ``exact``: with unrounded literals."""
        with np.load(getattr(self, generation) / f"{name}-{policy}.npz") as stored:
            return stored[literals]


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    folders = Sources(tmp_path_factory.mktemp("keras"), tmp_path_factory.mktemp("tf_keras"))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = [
            pool.submit(run_child, "sources.py", "keras", folders.keras),
            pool.submit(
                run_child, "sources.py", "tf_keras", folders.tf_keras, TF_USE_LEGACY_KERAS="1"
            ),
        ]
        for job in jobs:
            job.result()
    return folders


@dataclass
class Exports:
    """Exports by source; ``prefetch`` starts them, calling waits for one."""

    folder: Path
    pool: ThreadPoolExecutor
    jobs: dict[Path, Future[Any]] = field(default_factory=dict)

    def prefetch(self, source: Path, formats: tuple[str, ...]) -> None:
        """Starts the export of one source, unless it was started before."""
        if source not in self.jobs:
            self.jobs[source] = self.pool.submit(self._export, source, formats)

    def _export(self, source: Path, formats: tuple[str, ...]) -> Any:
        import mpexport

        return mpexport.export(source, self.folder / self.label(source), formats)

    def label(self, source: Path) -> str:
        """A folder name that no other source has."""
        return f"{source.parent.name}-{source.name.replace('.', '_')}"

    def __call__(self, source: Path, formats: tuple[str, ...] = ("tflite", "onnx")) -> Any:
        """The result of ``mpexport.export``, or what it raised."""
        self.prefetch(source, formats)
        return self.jobs[source].result()


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pool = ThreadPoolExecutor(AT_ONCE)
    yield Exports(tmp_path_factory.mktemp("exports"), pool)
    pool.shutdown(cancel_futures=True)


@pytest.fixture
def look_into(tmp_path: Path) -> Callable[[Path, list[Path]], list[Found]]:
    """``look_into(inputs.npz, files)``: runs files in a child that knows nothing of mpexport."""
    return functools.partial(kit.look_into, scratch=tmp_path)
