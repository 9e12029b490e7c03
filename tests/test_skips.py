"""tests/conftest.py: what is skipped on a desk fails in continuous integration."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]

SKIPPING = """
import pytest

def test_plain(): pytest.skip("no server")
@pytest.mark.skip(reason="no server")
def test_marked(): pass
@pytest.mark.may_skip
def test_allowed(): pytest.skip("no server")
@pytest.mark.xfail
def test_expected(): assert False
def test_good(): pass
"""


@pytest.mark.parametrize(
    ("ci", "counts"),
    [
        ("", "1 passed, 3 skipped, 1 xfailed"),
        ("true", "1 failed, 1 passed, 1 skipped, 1 xfailed, 1 error"),
    ],
)
def test_skips_are_failures_in_ci(tmp_path, ci, counts):
    shutil.copy(CHECKOUT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(SKIPPING)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = may_skip\n")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        env={**os.environ, "CI": ci},
        cwd=tmp_path,
    )
    assert counts in ended.stdout.splitlines()[-1], ended.stdout
