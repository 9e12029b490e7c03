"""tflite-runtime: tested where it can work (numpy 1), and refused clearly where it can't."""

from __future__ import annotations

import numpy as np
import pytest

from mpexport import runtimes
from mpexport.errors import MissingDependencyError
from mpexport.runtimes import RuntimeOptions, _tflite_interpreter

SPEC = runtimes.get("tflite_runtime")


def test_numpy_2_is_refused_before_anything_is_loaded(monkeypatch):
    monkeypatch.setattr("mpexport.optional.is_installed", lambda module: True)
    monkeypatch.setattr("numpy.__version__", "2.4.6")
    with pytest.raises(MissingDependencyError, match=r"needs numpy < 2; this is numpy 2\.4\.6"):
        SPEC.probe()


def test_it_runs_where_it_is_installed(tmp_path):
    pytest.importorskip("tflite_runtime")
    if np.__version__.startswith("2."):
        pytest.skip("needs numpy < 2")
    path = tmp_path / "tiny.tflite"
    path.write_bytes(_tflite_interpreter._TINY_FILE)
    SPEC.probe()
    session = SPEC.open(path, RuntimeOptions())
    assert session.run({"x": np.ones(1)})["x"].tolist() == [1]
    assert session.environment()["runtime"] == "tflite_runtime"
