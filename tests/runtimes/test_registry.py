"""Finding a runtime, and what sessions share; with fakes, so that it runs with numpy only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mpexport import runtimes
from mpexport.errors import MissingDependencyError, UsageError
from mpexport.runtimes import RuntimeOptions, RuntimeSpec, run_in_chunks
from mpexport.runtimes._session import BaseSession
from mpexport.signature import Signature, TensorSpec


def working():
    pass


def broken():
    raise MissingDependencyError("two is installed but does not work here: numpy")


def spec(name, priority, probe=working, modules=("json",)):
    return RuntimeSpec(name, ("fmt",), priority, modules, f"extra-{name}", probe, None)


@pytest.fixture
def register(monkeypatch):
    def put(*specs):
        monkeypatch.setattr(runtimes, "all", lambda: {s.name: s for s in specs})

    return put


def test_the_built_in_runtimes():
    found = runtimes.all()
    assert sorted(found) == ["litert", "onnxruntime", "tensorflow", "tflite_runtime"]
    assert found["litert"].priority < found["tflite_runtime"].priority
    assert runtimes.get("tflite-runtime") is found["tflite_runtime"]
    with pytest.raises(UsageError, match="did you mean 'onnxruntime'"):
        runtimes.get("onnxrunntime")


def test_the_first_that_works(register):
    register(spec("one", 1, modules=("no_such_module",)), spec("two", 2, broken), spec("three", 3))
    assert runtimes.for_format("fmt").name == "three"
    runtimes.require_any("fmt")
    register(spec("three", 3), spec("two", 2))
    assert runtimes.for_format("fmt").name == "two"


def test_none_works(register):
    register(spec("two", 2, broken), spec("one", 1, modules=("no_such_module",)))
    with pytest.raises(MissingDependencyError) as caught:
        runtimes.for_format("fmt")
    assert caught.value.hint == "pip install 'mpexport[extra-one]'"
    assert "no_such_module is not installed; two is installed but" in caught.value.message
    assert caught.value.exit_code == 11
    runtimes.require_any("fmt")  # looks only whether one is installed
    with pytest.raises(UsageError, match="no runtime runs 'fmd'"):
        runtimes.for_format("fmd")


def test_listing_imports_no_runtime():
    code = (
        "import sys; from mpexport import runtimes; runtimes.all();"
        "import mpexport.latency.measure;"
        "import mpexport.parity.compare, mpexport.parity.report, mpexport.parity.inputs;"
        "heavy = {'tensorflow', 'onnxruntime', 'ai_edge_litert', 'tflite_runtime', 'ml_dtypes'};"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(runtimes.__file__).parents[2])


class Doubler(BaseSession):
    """out = 2x for a batch fixed to ``size``."""

    name, version = "doubler", "1"

    def __init__(self, size, *, total=False):
        inputs = (TensorSpec("x", (size, 2), "float16"), TensorSpec("s", (), "int32"))
        self.signature = Signature("", inputs, (TensorSpec("out", None, "float16"),))
        self.calls, self.total = [], total

    def invoke(self, prepared):
        self.calls.append(prepared)
        doubled = prepared["x"] * prepared["s"]
        return {"out": doubled.sum(keepdims=True)[0] if self.total else doubled}

    def environment(self):
        return {}

    def close(self):
        pass


def feed(rows):
    return {"x": np.arange(2.0 * rows).reshape(rows, 2), "s": np.int64(2)}


def test_inputs_are_checked_and_cast():
    session = Doubler(None)
    out = session.run(feed(3))["out"]
    np.testing.assert_array_equal(out, 2 * feed(3)["x"])
    assert session.calls[0]["x"].dtype == np.float16
    assert session.calls[0]["s"].dtype == np.int32
    for bad, message in (
        ({"x": feed(1)["x"]}, "missing inputs: s"),
        ({**feed(1), "xx": 1}, "no input 'xx'; did you mean 'x'"),
        ({**feed(1), "x": np.ones(2)}, "the model declares x"),
    ):
        with pytest.raises(UsageError, match=message):
            session.run(bad)
    assert len(session.calls) == 1


@pytest.mark.parametrize(("size", "rows", "calls"), [(2, 6, 3), (2, 2, 1), (1, 3, 3), (None, 5, 1)])
def test_chunks(size, rows, calls):
    session = Doubler(size)
    out = run_in_chunks(session, feed(rows))["out"]
    np.testing.assert_array_equal(out, 2 * feed(rows)["x"])
    assert len(session.calls) == calls


@pytest.mark.parametrize("rows", [0, 1, 3, 5])
def test_chunks_need_a_multiple(rows):
    with pytest.raises(UsageError, match=f"fixed to 2; {rows} rows"):
        run_in_chunks(Doubler(2), feed(rows))


def test_chunks_need_outputs_with_the_batch():
    with pytest.raises(UsageError, match=r"fixed to 2, and output 'out' has shape \[1\]"):
        run_in_chunks(Doubler(2, total=True), feed(4))
    run_in_chunks(Doubler(2, total=True), feed(2))


def test_chunks_of_unequal_inputs_are_left_to_the_session():
    session = Doubler(2)
    session.signature = Signature(
        "", (TensorSpec("x", (2, 2), "float16"), TensorSpec("s", (3,), "int32")), ()
    )
    with pytest.raises(UsageError, match="the model declares x"):
        run_in_chunks(session, {"x": np.ones((4, 2)), "s": np.ones(3, int)})


def test_options_have_defaults():
    assert RuntimeOptions() == RuntimeOptions(num_threads=1, signature=None)
