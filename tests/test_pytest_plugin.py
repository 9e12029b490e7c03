"""The pytest plugin as its users have it: loaded by its entry point, in a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]

RELEASE = """
import sys
import mpexport
import pytest

assert "numpy" not in sys.modules, "at collection"

def test_good(mpexport_parity):
    reports = mpexport_parity("base.onnx", "good.onnx", num_threads=1)
    assert [report.verdict for report in reports] == [mpexport.Verdict.PASS]

def test_bad(mpexport_parity):
    mpexport_parity("base.onnx", "good.onnx", "bad.onnx")

def test_function():
    with pytest.raises(AssertionError) as caught:
        mpexport.assert_parity("base.onnx", "good.onnx", "bad.onnx")
    assert str(caught.value).startswith("1 of 2 files does not pass\\n\\n")
    assert "bad.onnx" in str(caught.value)
    assert "good.onnx" not in str(caught.value)

def test_nothing(mpexport_parity):
    with pytest.raises(mpexport.MpExportError, match="name at least one candidate"):
        mpexport_parity("base.onnx")

@pytest.mark.parametrize("name", ["tensorflow", "onnxruntime", "ai_edge_litert"])
def test_no_framework_came_in(name):
    assert name not in sys.modules
"""


def write_model(path: Path, factor: float) -> None:
    """An ONNX file that multiplies its input."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    value = helper.make_tensor("factor", TensorProto.FLOAT, [1], [factor])
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 4]) for n in "xy")
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "factor"], ["y"])], "g", [x], [y], [value]
    )
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs pytest on a file in a folder of its own, with the entry points of pyproject.toml."""
    with (CHECKOUT / "pyproject.toml").open("rb") as f:
        declared = tomllib.load(f)["project"]["entry-points"]["pytest11"]
    plugins = tmp_path / "plugins"
    information = plugins / "mpexport_of_this_tree-0.dist-info"
    information.mkdir(parents=True)
    lines = [f"{name} = {module}" for name, module in declared.items()]
    (information / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines]))
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: mpexport-of-this-tree\n")

    def call(source: str, *words: str) -> subprocess.CompletedProcess[str]:
        project = tmp_path / "project"
        project.mkdir()
        (project / "test_release.py").write_text(source)
        for name, factor in (("base", 3.0), ("good", 3.0), ("bad", 3.25)):
            write_model(project / f"{name}.onnx", factor)
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words],
            cwd=project,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(plugins), str(CHECKOUT)])},
            capture_output=True,
            text=True,
            timeout=300,
        )

    return call


@pytest.mark.ort
def test_fixture(run):
    ended = run(RELEASE, "-rP")
    assert "1 failed, 6 passed" in ended.stdout.splitlines()[-1], ended.stdout + ended.stderr
    assert ended.returncode == 1
    # What failed is said as a table, without the frames of mpexport.
    (failure,) = [part for part in ended.stdout.split("\n___") if " test_bad " in part[:60]]
    failure = failure.partition("\n===")[0]
    assert "1 of 2 files does not pass" in failure
    assert "max error" in failure
    row = next(line.split() for line in failure.splitlines() if line.split()[1:2] == ["y"])
    assert row[2] != "0"
    assert "FAIL" in row
    assert "mpexport/render" not in failure
    assert "pytest_plugin.py" not in failure.partition("E  ")[0]
    # What passed says what it rests on.
    passed = ended.stdout.partition("= PASSES =")[2]
    assert "mpexport parity" in passed
    assert "PASS: 1 of 1 file passed" in passed


def test_collecting_imports_no_framework_and_no_numpy(run):
    ended = run(RELEASE, "--collect-only", "-q")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "7 tests collected" in ended.stdout
    ended = subprocess.run(
        [sys.executable, "-c", "import mpexport.pytest_plugin, sys; print(*sys.modules)"],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
    )
    assert not {"numpy", "tensorflow", "keras", "onnxruntime"} & set(ended.stdout.split())
