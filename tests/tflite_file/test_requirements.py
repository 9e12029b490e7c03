"""Which runtime a file needs, held against the real tflite-runtime 2.14."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import flatbuffers
import pytest
from ai_edge_litert import schema_py_generated as schema

from mpexport.errors import InputError, UsageError
from mpexport.tflite_file.op_versions import CUSTOM, op_code, op_name, since
from mpexport.tflite_file.reader import TENSOR_TYPES, open_tflite
from mpexport.tflite_file.requirements import minimum_runtime, release, runs_on

pytestmark = pytest.mark.litert

NAMES = {v: k for k, v in vars(schema.BuiltinOperator).items() if not k.startswith("_")}
# A runtime tells an op it lacks from one that it has but whose options are missing here.
PROBE = """
import json, os, sys
from tflite_runtime.interpreter import Interpreter
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
answers = {}
for name in sorted(os.listdir(sys.argv[1])):
    try:
        Interpreter(os.path.join(sys.argv[1], name)).allocate_tensors()
        answers[name] = "runs"
    except Exception as e:
        answers[name] = str(e)
print(json.dumps(answers))
"""


def write(
    path: Path, name: str, version: int, sizes: list[list[int]], options: Any = None, kind: int = 0
) -> Path:
    """A file of one op that gives its first input's shape."""
    code, graph, op = schema.OperatorCodeT(), schema.SubGraphT(), schema.OperatorT()
    code.builtinCode = getattr(schema.BuiltinOperator, name)
    code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), version
    op.inputs, op.outputs = list(range(len(sizes))), [len(sizes)]
    if options is not None:
        op.builtinOptions = options
        op.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__[:-1])
    graph.inputs, graph.outputs, graph.operators = op.inputs, op.outputs, [op]
    graph.tensors = []
    for i, shape in enumerate([*sizes, sizes[0]]):
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type = b"t%d" % i, shape, kind
        tensor.buffer = 0
        graph.tensors.append(tensor)
    model = schema.ModelT()
    model.version, model.buffers = 3, [schema.BufferT()]
    model.operatorCodes, model.subgraphs = [code], [graph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return path


def probe(python: Path, folder: Path) -> dict[str, str]:
    ended = subprocess.run(
        [str(python), "-c", PROBE, str(folder)], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    answers: dict[str, str] = json.loads(ended.stdout.splitlines()[-1])
    return answers


def test_names_and_types_are_those_of_the_schema():
    assert [op_name(i) for i in range(len(NAMES))] == [NAMES[i] for i in sorted(NAMES)]
    kinds = {v: k for k, v in vars(schema.TensorType).items() if not k.startswith("_")}
    assert [t.upper() for t in TENSOR_TYPES] == [kinds[i] for i in sorted(kinds)]


@pytest.mark.tflite_runtime
def test_every_op_version_is_in_2_14_as_the_table_says(old_python, tmp_path):
    expected = {}
    for code, name in NAMES.items():
        if name in (CUSTOM, "PLACEHOLDER_FOR_GREATER_OP_CODES"):
            continue
        for version in range(1, 16):
            needs = since(code, version)
            expected[f"{name}.{version}"] = needs is not None and release(needs) <= (2, 14, 0)
            write(tmp_path / f"{name}.{version}", name, version, [[1]])
    lacks = ("Didn't find op for builtin opcode", "Op builtin_code out of range", "not supported")
    for file, answer in probe(old_python, tmp_path).items():
        assert expected[file] != any(text in answer for text in lacks), f"{file}: {answer}"


@pytest.mark.tflite_runtime
def test_more_axes_than_2_14_takes(old_python, tmp_path):
    for axes in (4, 5):
        write(tmp_path / str(axes), "L2_NORMALIZATION", 1, [[2] * axes], schema.L2NormOptionsT())
    assert runs_on(tmp_path / "4", "2.14") == []
    text = "L2_NORMALIZATION of 5 axes, where 2.14 takes 4 at most (t1)"
    assert runs_on(tmp_path / "5", "2.14") == [text]
    answers = probe(old_python, tmp_path)
    assert ["<= 4 was not true" in answers[n] for n in ("4", "5")] == [False, True]


def test_the_reason_names_op_version_release_and_tensor(tmp_path):
    path = write(tmp_path / "m", "FULLY_CONNECTED", 12, [[1, 2]])
    assert runs_on(path, "2.14") == ["FULLY_CONNECTED version 12 (t1): needs 2.17.0"]
    assert runs_on(path, "2.16.9") != []
    assert runs_on(path, "2.17") == []
    path = write(tmp_path / "n", "FULLY_CONNECTED", 99, [[1, 2]])
    assert runs_on(path, "9.0") == [
        "FULLY_CONNECTED version 99 (t1): no release is known to run it"
    ]


def test_the_oldest_runtime_is_that_of_the_newest_op():
    ops = {"ADD": 1, "DEQUANTIZE": 3, "GELU": 2}
    assert minimum_runtime((op_code(n), v) for n, v in ops.items()) == "2.9.0"
    assert minimum_runtime([(op_code("ADD"), 2), (op_code("ADD"), 99), (999, 1)]) == "1.14.0"
    assert minimum_runtime([]) == ""


@pytest.mark.parametrize("text", ["2", "2.x", "", "2.14.0.1", "-2.1"])
def test_what_is_no_version(text):
    with pytest.raises(UsageError, match="is no runtime version"):
        release(text)


def test_damaged_files(tmp_path):
    whole = write(tmp_path / "m", "ADD", 1, [[2], [2]]).read_bytes()
    path = tmp_path / "cut"
    seen = 0
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        try:
            runs_on(path, "2.14")
        except InputError:
            seen += 1
    assert seen > len(whole) // 2
    with pytest.raises(InputError, match="No such file"), open_tflite(tmp_path / "none"):
        pass
