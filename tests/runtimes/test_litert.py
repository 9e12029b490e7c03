"""LiteRT on real files, damaged files, and files with ops it lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mpexport import runtimes
from mpexport.errors import ConversionError, InputError, MissingDependencyError, UsageError
from mpexport.runtimes import RuntimeOptions, _tflite_interpreter, run_in_chunks

from .conftest import ADD, CUSTOM, WEIGHTS

pytestmark = pytest.mark.litert
pytest.importorskip("ai_edge_litert")


def open_file(path, **options):
    return runtimes.get("litert").open(path, RuntimeOptions(**options))


@pytest.fixture
def write(tmp_path, tflite_bytes):
    def make(**options):
        path = tmp_path / "mödel x.tflite"
        path.write_bytes(tflite_bytes(**options))
        return path

    return make


def test_it_is_preferred_and_works():
    assert runtimes.for_format("tflite").name == "litert"


def test_a_file_without_signatures_runs_by_tensor_names(write):
    session = open_file(write())
    assert [str(s) for s in session.signature.inputs] == ["in put: float32[2, 3]"]
    assert session.environment()["delegate"] == "unknown"
    first = session.run({"in put": np.full((2, 3), -1.0)})
    second = session.run({"in put": np.full((2, 3), 2.0)})
    assert first["out"].tolist() == [[0, 0, 0]] * 2  # a copy: not changed by the second call
    assert second["out"].tolist() == [[2, 2, 2]] * 2
    assert session.environment() == {
        "runtime": "litert",
        "version": session.version,
        "num_threads": 1,
        "delegate": "XNNPACK",
        "weights": "float32",
    }
    session.close()


def test_a_fixed_batch_is_never_resized(write):
    session = open_file(write())
    with pytest.raises(UsageError, match=r"in put: float32\[2, 3\]; got float64\[4, 3\]"):
        session.run({"in put": np.ones((4, 3))})
    assert run_in_chunks(session, {"in put": np.ones((4, 3))})["out"].shape == (4, 3)


def test_two_inputs_of_one_name_are_refused(write):
    with pytest.raises(InputError, match="two inputs are named 'a'"):
        open_file(write(builtin=ADD, names=("a", "a", "b")))


@pytest.mark.parametrize(
    ("options", "op"),
    [
        ({"version": 99}, "RELU version 99"),
        ({"builtin": 250}, "builtin op 250"),
        ({"builtin": CUSTOM, "custom": "MyOp"}, "custom op MyOp"),
        ({"builtin": CUSTOM, "custom": "FlexErf"}, "Select-TF op FlexErf"),
    ],
)
def test_a_lacking_op_is_named(write, options, op):
    with pytest.raises(ConversionError, match=op) as caught:
        open_file(write(**options)).run({"in put": np.ones((2, 3))})
    assert caught.value.details == {"op": op}
    assert "\n" not in caught.value.message


def test_no_such_file(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        open_file(tmp_path / "none.tflite")
    with pytest.raises(InputError, match="not a file"):
        open_file(tmp_path)
    (tmp_path / "empty.tflite").touch()
    with pytest.raises(InputError, match="is empty"):
        open_file(tmp_path / "empty.tflite")


def test_truncated_files_are_damaged(write, tmp_path):
    """In a child: these parsers can crash."""
    code = f"""if True:
        import sys
        from pathlib import Path
        from mpexport import runtimes
        from mpexport.errors import InputError
        raw = Path({str(write())!r}).read_bytes()
        path = Path({str(tmp_path / "cut.tflite")!r})
        for length in range(1, len(raw), 13):
            path.write_bytes(raw[:length])
            try:
                runtimes.get("litert").open(path, runtimes.RuntimeOptions())
            except InputError as e:
                assert "damaged" in e.message and "\\n" not in e.message, e.message
            else:
                sys.exit(f"{{length}} bytes were accepted")
    """
    root = Path(runtimes.__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, timeout=60)


def test_a_broken_runtime_is_no_damaged_file(monkeypatch, write):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")

    def refuse(*args, **kwargs):
        raise SystemError("_ARRAY_API not found")

    path = write()
    monkeypatch.setattr(interpreter, "Interpreter", refuse)
    with pytest.raises(MissingDependencyError, match="ai_edge_litert is installed but does not"):
        open_file(path)
    with pytest.raises(MissingDependencyError):
        _tflite_interpreter.probe("ai_edge_litert.interpreter", "litert")


@pytest.mark.tf
class TestFromTensorFlow:
    """Signatures, dynamic batches and errors at run time."""

    def test_signatures_by_name(self, tf_model):
        session = open_file(tf_model / "both.tflite")
        assert session.signature.key == "serving_default"
        assert [str(s) for s in session.signature.inputs] == [
            "x: float32[?, 4]",
            "y: float32[?, 1]",
        ]
        x, y = np.arange(20.0).reshape(5, 4), np.full((5, 1), 2.0)
        for rows in (5, 1, 3):
            outputs = session.run({"y": y[:rows], "x": x[:rows]})
            np.testing.assert_allclose(outputs["zeta"], x[:rows] @ WEIGHTS + 2, rtol=1e-6)
            np.testing.assert_allclose(outputs["alpha"].sum(axis=1), 1, rtol=1e-6)
        assert session.environment()["delegate"] == "unknown"  # not the file's first subgraph

    def test_another_signature(self, tf_model):
        session = open_file(tf_model / "both.tflite", signature="lookup")
        np.testing.assert_array_equal(
            session.run({"ids": np.array([3, 0])})["out"], WEIGHTS[[3, 0]]
        )
        with pytest.raises(UsageError, match="did you mean 'lookup'"):
            open_file(tf_model / "both.tflite", signature="lokup")

    def test_errors_do_not_pile_up(self, tf_model):
        session = open_file(tf_model / "both.tflite", signature="lookup")
        messages = []
        for _ in range(2):
            with pytest.raises(UsageError, match="index input is out of range") as caught:
                session.run({"ids": np.array([9])})
            messages.append(caught.value.message)
        assert messages[0] == messages[1]
        np.testing.assert_array_equal(session.run({"ids": np.array([1])})["out"], WEIGHTS[[1]])

    def test_shapes_that_cannot_go_together(self, tf_model):
        session = open_file(tf_model / "both.tflite")
        with pytest.raises(ConversionError, match="cannot run it"):
            session.run({"x": np.ones((2, 4)), "y": np.ones((3, 1))})

    def test_a_fixed_batch_in_chunks(self, tf_model):
        session = open_file(tf_model / "one.tflite")
        x, y = np.arange(24.0).reshape(6, 4), np.ones((6, 1))
        outputs = run_in_chunks(session, {"x": x, "y": y})
        np.testing.assert_allclose(outputs["zeta"], x @ WEIGHTS + 1, rtol=1e-6)
        with pytest.raises(UsageError, match="fixed to 2; 3 rows"):
            run_in_chunks(session, {"x": x[:3], "y": y[:3]})
