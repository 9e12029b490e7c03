"""tflite-runtime beside numpy 2 is refused clearly. It runs in tests/test_packaging.py."""

from __future__ import annotations

import pytest

from mpexport import runtimes
from mpexport.errors import MissingDependencyError

SPEC = runtimes.get("tflite_runtime")


def test_numpy_2_is_refused_before_anything_is_loaded(monkeypatch):
    monkeypatch.setattr("mpexport.optional.is_installed", lambda module: True)
    monkeypatch.setattr("numpy.__version__", "2.4.6")
    with pytest.raises(MissingDependencyError, match=r"needs numpy < 2; this is numpy 2\.4\.6"):
        SPEC.probe()
