"""Timing a file: the report, and that it fails like the runtime does."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mpexport.errors import InputError, UsageError
from mpexport.latency.measure import measure_file
from mpexport.latency.report import LatencyReport
from mpexport.runtimes import _tflite_interpreter
from mpexport.tensors import save_npy_dir

TIMING = {"warmup_runs": 1, "num_runs": 70, "min_secs": 0, "max_secs": 5}


@pytest.fixture
def case(tmp_path):
    save_npy_dir({"x": np.ones(1)}, tmp_path / "case")
    return tmp_path / "case"


@pytest.mark.litert
def test_a_file(tmp_path, case):
    pytest.importorskip("ai_edge_litert")
    path = tmp_path / "tiny.tflite"
    path.write_bytes(_tflite_interpreter._TINY_FILE)
    report = measure_file("litert", path, {"num_threads": 1}, case, TIMING)
    assert report.format == "tflite"
    assert report.size_bytes == len(_tflite_interpreter._TINY_FILE)
    assert report.runtime["runtime"] == "litert"
    assert report.input_shapes == {"x": (1,)}
    assert report.summary.count == 70
    assert report.summary.p90_ms is not None
    assert 0 < report.summary.min_ms <= report.summary.median_ms <= report.summary.max_ms
    assert report.load_ms > 0
    assert report.first_inference_ms > 0
    again = LatencyReport.from_json(json.loads(json.dumps(report.to_json(), allow_nan=False)))
    assert again == report


@pytest.mark.litert
def test_what_cannot_be_timed(tmp_path, case):
    pytest.importorskip("ai_edge_litert")
    with pytest.raises(InputError):
        measure_file("litert", tmp_path / "none.tflite", {}, case, TIMING)
    with pytest.raises(UsageError, match="no runtime 'litertt'"):
        measure_file("litertt", tmp_path / "none.tflite", {}, case, TIMING)
    path = tmp_path / "tiny.tflite"
    path.write_bytes(_tflite_interpreter._TINY_FILE)
    save_npy_dir({"y": np.ones(1)}, case)
    with pytest.raises(UsageError, match="no input 'y'"):
        measure_file("litert", path, {}, case, TIMING)


@pytest.mark.ort
def test_onnx(tmp_path, case):
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [value("x", onnx.TensorProto.FLOAT, [1])],
        [value("y", onnx.TensorProto.FLOAT, [1])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 8
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    report = measure_file("onnxruntime", tmp_path / "m.onnx", {}, case, TIMING)
    assert report.runtime["execution_providers"] == ["CPUExecutionProvider"]
    assert report.summary.count == 70
