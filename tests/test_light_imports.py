"""What a device has: the standard library, numpy, and nothing else.

Everything but the heavy room and the command line must import there, and say what to install when
something is missing.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packaging.requirements import Requirement

CHECKOUT = Path(__file__).parents[1]
LIGHT = sorted(
    ".".join(path.relative_to(CHECKOUT).with_suffix("").parts).removesuffix(".__init__")
    for path in (CHECKOUT / "mpexport").rglob("*.py")
    if "tf" not in path.relative_to(CHECKOUT).parts
    # The latter is imported by pytest alone, and needs it.
    and path.name not in ("__main__.py", "pytest_plugin.py")
)


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds numpy and mpexport, to be the only one beside the standard library."""
    folder = tmp_path_factory.mktemp("device")
    for home in (Path(np.__file__).parent, CHECKOUT / "mpexport"):
        (folder / home.name).symlink_to(home, target_is_directory=True)
    libraries = Path(np.__file__).parents[1] / "numpy.libs"
    if libraries.is_dir():  # of a wheel, where Linux looks for OpenBLAS
        (folder / libraries.name).symlink_to(libraries, target_is_directory=True)
    return folder


def run(folder: Path | None, script: str, *arguments: object) -> Any:
    """Runs Python and returns the JSON that it prints last.

    Args:
        folder: The only source of packages; None means those of this environment.
        script: Code.
        *arguments: Its ``sys.argv[1:]``.
    """
    # -S leaves out site-packages and -I whatever the environment would add.
    alone = ["-I", "-S"] if folder else []
    head = "import sys\n" + (f"sys.path.append({str(folder)!r})\n" if folder else "")
    ended = subprocess.run(
        [sys.executable, *alone, "-c", head + script, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder or CHECKOUT,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


IMPORT_ALL = """
import importlib, json
for name in sys.argv[1:]:
    importlib.import_module(name)
tops = {name.partition(".")[0] for name in sys.modules} - {"__main__"}
print(json.dumps(sorted(tops - sys.stdlib_module_names)))
"""


def test_the_light_part_is_found():
    assert len(LIGHT) > 30
    assert {"mpexport", "mpexport.api", "mpexport.worker.jobs", "mpexport.formats.onnx"} <= set(
        LIGHT
    )


def test_device_has_nothing_else(device):
    script = """
import importlib.util, json
names = ["cyclopts", "rich", "tensorflow", "onnx", "onnxruntime", "ai_edge_litert", "ml_dtypes"]
print(json.dumps([name for name in names if importlib.util.find_spec(name)]))
"""
    assert run(device, script) == []


def test_every_light_module_imports_with_numpy_alone(device):
    assert run(device, IMPORT_ALL, *LIGHT) == ["mpexport", "numpy"]


@pytest.mark.tflite_runtime
def test_every_light_module_imports_in_the_environment_of_an_old_device(old_python):
    """With the oldest Python that `make` found, 3.9 if there is one."""
    lines = [f"import {name}" for name in LIGHT]
    ended = subprocess.run(
        [old_python, "-c", "\n".join(lines)], capture_output=True, text=True, cwd=CHECKOUT
    )
    assert ended.returncode == 0, ended.stderr


def test_light_part_imports_no_framework_where_all_are_installed():
    imported = set(run(None, IMPORT_ALL, *LIGHT))
    heavy = {
        "ai_edge_litert",
        "cyclopts",
        "h5py",
        "keras",
        "onnx",
        "onnxruntime",
        "rich",
        "tensorflow",
        "tf2onnx",
        "tf_keras",
    }
    assert imported & heavy == set()


def test_importing_mpexport_imports_not_even_numpy(device):
    assert run(device, IMPORT_ALL, "mpexport") == ["mpexport"]


CALLS = """
import json
import mpexport
from mpexport.errors import MissingDependencyError

saved_model, tflite, onnx = sys.argv[1:]
calls = {
    "load": lambda: mpexport.load(saved_model),
    "check": lambda: mpexport.check(saved_model),
    "normalize": lambda: mpexport.normalize(saved_model, "out"),
    "convert": lambda: mpexport.convert(saved_model, "tflite", "out.tflite"),
    "export": lambda: mpexport.export(saved_model, "out"),
    "compare": lambda: mpexport.compare(saved_model, [tflite]),
    "compare files": lambda: mpexport.compare(onnx, [onnx]),
    "measure saved model": lambda: mpexport.measure(saved_model),
    "measure tflite": lambda: mpexport.measure(tflite),
    "measure onnx": lambda: mpexport.measure(onnx),
}
answers = {}
for name, call in calls.items():
    try:
        call()
    except MissingDependencyError as error:
        answers[name] = [error.exit_code, error.message, error.hint]
print(json.dumps(answers))
"""


def test_verbs_say_what_to_install(device, tmp_path):
    """Files that are only recognizable will do: what is missing is told before any is read."""
    saved_model, tflite, onnx = tmp_path / "model", tmp_path / "x.tflite", tmp_path / "x.onnx"
    (saved_model / "variables").mkdir(parents=True)
    (saved_model / "saved_model.pb").write_bytes(b"\x08\x01\x12\x00")
    tflite.write_bytes(b"\x1c\x00\x00\x00TFL3" + bytes(24))
    # ir_version 8, producer_name "x", a graph without nodes, opset 17
    onnx.write_bytes(b"\x08\x08\x12\x01x\x3a\x03\x12\x01g\x42\x02\x10\x11")
    answers = run(device, CALLS, saved_model, tflite, onnx)
    extras = {
        "load": ("tensorflow", "tensorflow"),
        "check": ("tensorflow", "tensorflow"),
        "normalize": ("tensorflow", "tensorflow"),
        "convert": ("tensorflow", "tensorflow"),
        "export": ("tensorflow", "tensorflow"),
        "compare": ("ai_edge_litert", "litert"),
        "compare files": ("onnxruntime", "onnx"),
        "measure saved model": ("tensorflow", "tensorflow"),
        "measure tflite": ("ai_edge_litert", "litert"),
        "measure onnx": ("onnxruntime", "onnx"),
    }
    either = (
        "no runtime for tflite works here: ai_edge_litert is not installed; "
        "tflite_runtime is not installed"
    )
    assert answers == {
        name: [
            11,
            either if extra == "litert" else f"{module} is not installed",
            f"pip install 'mpexport[{extra}]'",
        ]
        for name, (module, extra) in extras.items()
    }


def test_worker_of_a_device_answers(device, tmp_path):
    """A worker there starts, and fails with one typed error for a runtime that isn't there."""
    requests = [
        {"job": "inspect", "format": "tflite", "runtime": "litert", "path": "x", "options": {}},
        {"job": "nothing"},
    ]
    lines = [
        json.dumps({"version": 1, "job": r.pop("job"), "args": r}) for r in map(dict, requests)
    ]
    start = f"import sys, runpy; sys.path.append({str(device)!r}); "
    ended = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            start + "runpy.run_module('mpexport.worker', {}, '__main__')",
        ],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
    first, second = (json.loads(line)["error"] for line in ended.stdout.splitlines())
    assert (first["code"], first["hint"]) == (
        "missing-dependency",
        "pip install 'mpexport[litert]'",
    )
    assert second["message"] == "the worker knows no job 'nothing'"


def closure(*names: str) -> set[str]:
    """Distributions that come with the named ones, themselves included."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            for text in importlib.metadata.requires(name) or []:
                requirement = Requirement(text)
                if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                    todo.append(requirement.name)
    return found


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A device with what ``mpexport[edge]`` brings, and an interpreter that sees nothing else."""
    pytest.importorskip("ai_edge_litert")
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("edge")
    for name in closure("numpy", "onnxruntime", "ai-edge-litert"):
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(str(distribution.locate_file(top))))
    # Not a link: workers look for the package beside their own file.
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(CHECKOUT / "mpexport", folder / "mpexport", ignore=ignore)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    return folder


PARITY_AND_LATENCY = """
import importlib.util, json
import mpexport
sys.executable = sys.argv[1]  # what starts the workers
answers = {}
for file in sys.argv[2:]:
    report, = mpexport.compare(file, [file])
    timed = mpexport.measure(file, num_runs=3, min_secs=0.0)
    answers[report.environment["runtime"]] = [report.verdict.value, timed.summary.count >= 3]
names = ["cyclopts", "rich", "tensorflow", "onnx", "keras"]
print(json.dumps({"here": [n for n in names if importlib.util.find_spec(n)], "answers": answers}))
"""


@pytest.mark.litert
@pytest.mark.ort
def test_device_with_runtimes_compares_and_times(edge, tmp_path):
    from mpexport.runtimes._tflite_interpreter import _TINY_FILE

    onnx = pytest.importorskip("onnx")
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 3])
        for name in ("x", "y")
    ]
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:])
    opset = onnx.helper.make_opsetid("", 17)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    onnx.save(model, tmp_path / "a.onnx")
    (tmp_path / "a.tflite").write_bytes(_TINY_FILE)
    files = [tmp_path / "a.onnx", tmp_path / "a.tflite"]
    seen = run(edge, PARITY_AND_LATENCY, edge / "python", *files)
    assert seen["here"] == []
    assert seen["answers"] == {"onnxruntime": ["PASS", True], "litert": ["PASS", True]}
