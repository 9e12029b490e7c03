"""ONNX Runtime on real files, damaged files, and files with ops it lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mpexport import runtimes
from mpexport.errors import ConversionError, InputError, UsageError
from mpexport.runtimes import RuntimeOptions, run_in_chunks

pytestmark = pytest.mark.ort
pytest.importorskip("onnxruntime")


def open_file(path, **options):
    return runtimes.get("onnxruntime").open(path, RuntimeOptions(**options))


@pytest.fixture
def write(tmp_path, onnx_bytes):
    def make(*args, **kwargs):
        path = tmp_path / "mödel x.onnx"
        path.write_bytes(onnx_bytes(*args, **kwargs))
        return path

    return make


def unary(op, dtype="FLOAT", shape=("N", 2), domain=""):
    return (
        [(op, ["x"], ["y"], domain)],
        [("x", dtype, list(shape))],
        [("y", dtype, None)],
    )


def test_names_shapes_and_values(write):
    path = write(
        [("Sub", ["b:0", "a"], ["out 2"], ""), ("Relu", ["a"], ["out 1"], "")],
        [("a", "FLOAT", ["N", 2]), ("b:0", "FLOAT", [None, 2])],
        [("out 1", "FLOAT", ["N", 2]), ("out 2", "FLOAT", ["N", 2])],
    )
    session = open_file(path, num_threads=2, signature="ignored")
    assert [str(s) for s in session.signature.inputs] == ["a: float32[?, 2]", "b:0: float32[?, 2]"]
    a = np.array([[1.0, -1.0]])
    outputs = session.run({"b:0": np.zeros((1, 2)), "a": a})
    assert outputs["out 1"].tolist() == [[1, 0]]
    assert outputs["out 2"].tolist() == [[-1, 1]]
    assert session.environment() == {
        "runtime": "onnxruntime",
        "version": session.version,
        "num_threads": 2,
        "weights": "float32",
        "compute": "float32",
        "graph_optimization_level": "all",
        "execution_providers": ["CPUExecutionProvider"],
    }
    session.close()


def test_half_and_double_inputs_are_cast(write):
    for dtype, name in (("FLOAT16", "float16"), ("DOUBLE", "float64")):
        session = open_file(write(*unary("Relu", dtype)))
        assert session.signature.inputs[0].dtype == name
        compute = "float16" if dtype == "FLOAT16" else "float32"
        assert session.environment()["compute"] == compute
        assert session.run({"x": np.float32([[0.5, -1]])})["y"].dtype == name


def test_strings_go_in_and_come_out_as_bytes(write):
    session = open_file(write(*unary("Identity", "STRING")))
    out = session.run({"x": np.array([[b"ab", "é".encode()]], object)})["y"]
    assert out.tolist() == [[b"ab", "é".encode()]]
    with pytest.raises(UsageError, match="x: a string is not UTF-8"):
        session.run({"x": np.array([[b"\xff", b""]], object)})


def test_an_unknown_rank_takes_any_shape(write):
    session = open_file(write(*unary("Relu", shape=())))
    assert session.signature.inputs[0].shape is None
    assert session.run({"x": np.float32(-3)})["y"] == 0


def test_a_fixed_batch_in_chunks(write):
    session = open_file(write(*unary("Relu", shape=(2, 2))))
    assert run_in_chunks(session, {"x": np.ones((6, 2))})["y"].shape == (6, 2)


@pytest.mark.parametrize(
    ("graph", "op"),
    [
        (unary("Erfc"), r"op Erfc \(opset version 17\)"),
        (unary("Exp", "BFLOAT16"), "op Exp"),
        (unary("Foo", domain="my.domain"), "op my.domain:Foo"),
    ],
)
def test_a_lacking_op_is_named(write, graph, op):
    with pytest.raises(ConversionError, match=op) as caught:
        open_file(write(*graph, domains=["my.domain"]))
    assert "\n" not in caught.value.message


def test_what_is_no_tensor_is_refused(tmp_path):
    onnx = pytest.importorskip("onnx")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("SequenceConstruct", ["x"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])],
        [onnx.helper.make_tensor_sequence_value_info("y", onnx.TensorProto.FLOAT, None)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 8
    (tmp_path / "s.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ConversionError, match="'y' is a seq"):
        open_file(tmp_path / "s.onnx")


def test_an_index_out_of_range(write):
    path = write(
        [("Gather", ["table", "ids"], ["y"], "")],
        [("ids", "INT64", [None])],
        [("y", "FLOAT", None)],
        [("table", np.ones(3, np.float32))],
    )
    session = open_file(path)
    with pytest.raises(UsageError, match="index input is out of range") as caught:
        session.run({"ids": np.array([7], np.int32)})
    assert "--input-range" in caught.value.hint


def test_damaged_files(write, tmp_path):
    """In a child: these parsers can crash."""
    path = write(*unary("Relu"))
    for bad in (tmp_path / "none.onnx", tmp_path):
        with pytest.raises(InputError):
            open_file(bad)
    code = f"""if True:
        import sys
        from pathlib import Path
        from mpexport import runtimes
        from mpexport.errors import MpExportError
        raw = Path({str(path)!r}).read_bytes()
        cut = Path({str(tmp_path / "cut.onnx")!r})
        for length in range(0, len(raw), 5):
            cut.write_bytes(raw[:length])
            try:
                runtimes.get("onnxruntime").open(cut, runtimes.RuntimeOptions())
            except MpExportError as e:
                assert e.exit_code == 3 and "\\n" not in e.message, e.message
            else:
                sys.exit(f"{{length}} bytes were accepted")
    """
    root = Path(runtimes.__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, timeout=60)
