"""The verdict on float16 ONNX files: what passes, and which of the three runs fails what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpexport.findings import Verdict
from mpexport.parity import row
from mpexport.parity.verdict import ModelRuns
from mpexport.tensors import save_npy_dir
from mpexport.verify import RunFile, compare_file
from mpexport.worker.jobs import Session

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402 (after importorskip)

from mpexport.tf.onnx_precision import rewrite  # noqa: E402

pytestmark = pytest.mark.ort

RNG = np.random.default_rng(0)
W = (RNG.normal(size=(8, 8)) / 3).astype(np.float32)
X = RNG.normal(size=(4, 8)).astype(np.float32)


class InProcess:
    """A worker whose jobs run here."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self._session = Session(lambda text: None)

    def call(self, job: str, **arguments: Any) -> dict[str, Any]:
        return self._session.run(job, arguments)


class Known:
    """References that are numbers known beforehand."""

    def __init__(self, folder: Path, reference: Any, rounded: Any, trained: Any = None) -> None:
        save_npy_dir({"x": X}, folder / "0")
        self.cases = {"f": [{"x": X}]}
        self._folder = folder
        self._outputs = {"reference": reference, "rounded": rounded, "trained": trained}

    def inputs(self, key: str) -> list[str]:
        return [str(self._folder / "0")]

    def runs(self, key: str) -> ModelRuns:
        reference, trained, rounded = (
            None if found is None else [{"y": found}]
            for found in (self._outputs[k] for k in ("reference", "trained", "rounded"))
        )
        return ModelRuns(reference or [], trained, rounded)

    def describe(self, name: str, key: str) -> str:
        return f"{name} {key}"

    def notes(self, key: str) -> tuple[str, ...]:
        return ()


def model_of(nodes: list[Any], **constants: Any) -> Any:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8])],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    rewrite.compute_in_float16(model)
    return model


def verdict(model: Any, folder: Path, references: Known) -> row.TensorComparison:
    path = folder / "m.onnx"
    onnx.save(model, str(path))
    scratch = folder / "scratch"
    scratch.mkdir()
    report = compare_file(
        InProcess(scratch),  # type: ignore[arg-type]
        RunFile(path, "onnx", "float16"),
        "f",
        references,  # type: ignore[arg-type]
        reference="model",
        shown=path,
        seed=0,
    )
    return report.rows[0]


def dense(w: Any) -> Any:
    return model_of(
        [
            helper.make_node("MatMul", ["x", "w"], ["m"], "a/m"),
            helper.make_node("Tanh", ["m"], ["y"], "a/tanh"),
        ],
        w=w,
    )


def expected(w: Any) -> Any:
    return np.tanh(X.astype(np.float64) @ w.astype(np.float64))


def test_rounding_passes_as_rounding(tmp_path):
    rounded = expected(W.astype(np.float16))
    found = verdict(dense(W), tmp_path, Known(tmp_path, expected(W), rounded))
    assert (found.verdict, found.cause) == (Verdict.PASS, row.OK_HALF_ROUNDING)
    assert "rounding to float16 makes" in found.message
    # The floor is the rounding of inputs, weights and results: each 2^-11 of numbers below 1.
    assert 2.0**-14 < found.rounding_floor < 8 * 2.0**-11


def test_the_trained_models_noise_is_named_first(tmp_path):
    noisy = expected(W) + 2.0**-9
    known = Known(tmp_path, expected(W), expected(W.astype(np.float16)), noisy)
    found = verdict(dense(W), tmp_path, known)
    assert (found.verdict, found.cause) == (Verdict.PASS, row.OK_TRAINED_NOISE)


def test_a_wrong_graph_does_not_excuse_itself(tmp_path):
    """A weight that is 2% off: much less than the cap of the noise floor, and no rounding."""
    wrong = W.copy()
    wrong[0] *= 1.02
    known = Known(tmp_path, expected(W), expected(W.astype(np.float16)))
    found = verdict(dense(wrong), tmp_path, known)
    assert found.verdict is Verdict.FAIL
    assert found.message.startswith("computed in float32: ")


def test_rounding_that_only_a_device_does_fails(tmp_path):
    """x·w + 1000 - 1000: float16 has steps of 1/2 at 1000; a runtime in float32 shows none."""
    large = np.full(8, 1000, np.float32)
    model = model_of(
        [
            helper.make_node("MatMul", ["x", "w"], ["m"], "a/m"),
            helper.make_node("Add", ["m", "large"], ["up"], "a/up"),
            helper.make_node("Sub", ["up", "large"], ["y"], "a/down"),
        ],
        w=W,
        large=large,
    )
    exact = X.astype(np.float64) @ W.astype(np.float64)
    rounded = X.astype(np.float64) @ W.astype(np.float16).astype(np.float64)
    found = verdict(model, tmp_path, Known(tmp_path, exact, rounded))
    assert found.verdict is Verdict.FAIL
    assert found.message.startswith("rounded to float16 at every step: ")
