"""The same source and options give the same bytes, in any process and any folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kit import CHECKOUT

pytestmark = pytest.mark.tf

FORMATS = "tflite,tflite-float16,onnx"
SOURCES = [
    ("keras", "cnn", "mixed_float16", "file"),
    ("keras", "transformer", "mixed_bfloat16", "savedmodel"),
    ("keras", "lstm", "mixed_float16", "file"),
    ("tf_keras", "lstm", "mixed_float16", "savedmodel"),
]


def export(source: Path, cwd: Path, hash_seed: str) -> dict[str, bytes]:
    """Exports by the command line, unverified; file name → content."""
    cwd.mkdir(parents=True)
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "mpexport.cli", "export", str(source), "-o", "release"]
    ended = subprocess.run(
        [*command, "--formats", FORMATS, "--no-verify"],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    return {p.name: p.read_bytes() for p in (cwd / "release").iterdir()}


@pytest.mark.parametrize("case", SOURCES, ids="-".join)
def test_two_exports_are_byte_identical(
    case: tuple[str, ...], sources: Any, tmp_path: Path
) -> None:
    source = sources.path(*case)
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(export, source, tmp_path / "one", "1")
        # Deeper, with another name: a path that found its way into a file would change its length.
        two = pool.submit(export, source, tmp_path / "the" / "second place", "2")
        first, second = one.result(), two.result()
    assert sorted(first) == sorted(second)
    assert {Path(n).suffix for n in first} == {".tflite", ".onnx", ".json"}
    assert len(first) == 4
    assert [n for n in first if first[n] != second[n]] == []
    (manifest,) = [json.loads(v) for n, v in first.items() if n.endswith(".json")]
    assert len(manifest["artifacts"]) == 3
