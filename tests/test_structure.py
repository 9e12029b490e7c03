"""The layout that CONTRIBUTING.md promises: lengths, dependency directions, Python 3.9, docs."""

from __future__ import annotations

import ast
import builtins
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import mpexport

CHECKOUT = Path(__file__).parents[1]
LIBRARY = sorted((CHECKOUT / "mpexport").rglob("*.py"))
CLI = sorted((CHECKOUT / "cli").rglob("*.py"))
# All but mpexport/tf: what runs on a device, with numpy and one runtime.
LIGHT = [path for path in LIBRARY if (CHECKOUT / "mpexport" / "tf") not in path.parents]


def relative(path: Path) -> str:
    return path.relative_to(CHECKOUT).as_posix()


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), relative(path))


def test_the_tree_is_found():
    assert len(LIBRARY) > 50
    assert len(CLI) > 5
    assert 30 < len(LIGHT) < len(LIBRARY)


# --- length -------------------------------------------------------------------------------------

# Path → most lines, and why one idea takes so many.
LONG: dict[str, tuple[int, str]] = {}


@pytest.mark.parametrize(("files", "most"), [(LIBRARY, 450), (CLI, 300)], ids=["library", "cli"])
def test_no_file_is_too_long(files, most):
    lines = {relative(p): len(p.read_text(encoding="utf-8").splitlines()) for p in files}
    assert {p: n for p, n in lines.items() if n > LONG.get(p, (most,))[0]} == {}
    assert [p for p in LONG if lines.get(p, most + 1) <= most] == [], "needs no exception any more"


# --- dependency directions ----------------------------------------------------------------------

HEAVY = {
    "ai_edge_litert",
    "h5py",
    "keras",
    "onnx",
    "onnxruntime",
    "tensorflow",
    "tf2onnx",
    "tf_keras",
    "tflite_runtime",
}
# Lowest first. A module imports from lower rows and from its own package, and into tf from inside
# functions of `formats`, `api` and `worker.jobs`; the latter, in the child, reach everything below.
ROWS = [
    ["dtypes", "errors", "findings", "signature"],
    ["optional", "plugins", "precision", "safety", "scratch", "sources", "tflite_file"],
    ["artifacts", "tensors"],
    ["formats", "parity", "runtimes", "tf", "worker"],
    ["inspection", "latency", "runtime_choice"],
    ["render", "results", "verify"],
    ["exported", "exporting"],
    ["reference"],
    ["comparing"],
    ["api"],
    ["pytest_plugin"],
]


@dataclass(frozen=True)
class Import:
    """One imported name; ``from a import b`` gives ``a.b`` when that is a module."""

    importer: str
    name: str
    line: int
    deferred: bool  # inside a function

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.name}"


def module_name(path: Path) -> str:
    parts = list(path.relative_to(CHECKOUT).with_suffix("").parts)
    if parts[0] == "cli":
        parts.insert(0, "mpexport")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path) for path in (*LIBRARY, *CLI)}


def imports(path: Path) -> Iterator[Import]:
    """All imports of a file that happen at run time."""
    importer = module_name(path)
    package = importer if path.name == "__init__.py" else importer.rpartition(".")[0]

    def visit(node: ast.AST, deferred: bool) -> Iterator[Import]:
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for child in node.orelse:
                yield from visit(child, deferred)
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(importer, alias.name, node.lineno, deferred)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                ancestors = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*ancestors, *filter(None, [base])])
            for alias in node.names:
                name = f"{base}.{alias.name}"
                yield Import(importer, name if name in MODULES else base, node.lineno, deferred)
        inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            yield from visit(child, deferred or inside)

    yield from visit(parse(path), False)


def is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def unit(name: str) -> str:
    """``mpexport.parity.row`` → ``parity``; ``mpexport`` itself → the empty string."""
    return [*name.split("."), ""][1]


RANK = {name: rank for rank, row in enumerate(ROWS) for name in row}


def test_every_module_has_its_row():
    units = {unit(module_name(path)) for path in LIBRARY} - {""}
    assert units == set(RANK), "put the new module into ROWS, and into CONTRIBUTING.md"


def test_heavy_imports_at_module_level_are_in_tf_only():
    found = [
        str(i)
        for path in (*LIGHT, *CLI)
        for i in imports(path)
        if not i.deferred and (i.name.split(".")[0] in HEAVY or is_in(i.name, "mpexport.tf"))
    ]
    assert found == []


def points_downwards(i: Import) -> bool:
    here, there = unit(i.importer), unit(i.name)
    if here in ("", there) or RANK[there] < RANK[here]:
        return True
    from_child = i.importer == "mpexport.worker.jobs" and RANK[there] < RANK["verify"]
    return i.deferred and (from_child or (here, there) == ("formats", "tf"))


def test_imports_point_downwards():
    inner = [
        i for path in LIBRARY for i in imports(path) if is_in(i.name, "mpexport") and unit(i.name)
    ]
    assert [str(i) for i in inner if is_in(i.name, "mpexport.cli")] == []
    assert [str(i) for i in inner if not points_downwards(i)] == []


def test_the_heavy_room_is_entered_where_that_is_meant():
    entered = {
        i.importer
        for path in LIGHT
        for i in imports(path)
        if is_in(i.name, "mpexport.tf") and unit(i.importer) not in ("formats", "tf")
    }
    assert entered == {"mpexport.api", "mpexport.worker.jobs"}


def test_command_line_and_terminal_libraries_stay_outside():
    for path in LIBRARY:
        for i in imports(path):
            assert not is_in(i.name, "cli"), i
            assert not is_in(i.name, "cyclopts"), i
            assert not is_in(i.name, "rich") or (unit(i.importer) == "render" and i.deferred), i


def test_cli_imports_its_siblings_relatively_and_public_names_absolutely():
    for path in CLI:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert node.level == 1, f"{relative(path)}:{node.lineno}"
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [alias.name for alias in node.names]
                if isinstance(node, ast.ImportFrom):
                    names = [f"{node.module}.{name}" for name in names]
                place = f"{relative(path)}:{node.lineno}: {ast.unparse(node)}"
                for name in names:
                    for closed in ("cli", "mpexport.cli", "mpexport.tf"):
                        assert not is_in(name, closed), place
                    private = [p for p in name.split(".") if re.match(r"_(?!_)", p)]
                    assert not private or not is_in(name, "mpexport"), place


# --- Python 3.9, for devices ----------------------------------------------------------------------


def test_light_part_has_the_grammar_and_the_library_of_python_39():
    for path in LIGHT:
        ast.parse(path.read_text(encoding="utf-8"), relative(path), feature_version=(3, 9))
    vermin = Path(sysconfig.get_path("scripts"), "vermin")
    command = [vermin, "-t=3.9-", "--violations", "--no-tips", *LIGHT]
    checked = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def runtime_unions(tree: ast.Module) -> list[str]:
    """``X | Y`` over types that Python evaluates, which 3.9 cannot."""
    postponed = any(
        isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body
    )
    annotations = set()
    for node in ast.walk(tree) if postponed else ():
        for field in ("annotation", "returns"):
            annotations.update(map(id, ast.walk(getattr(node, field, None) or ast.Pass())))

    def is_type(node: ast.expr) -> bool:
        if isinstance(node, ast.Constant):
            return node.value is None
        if isinstance(node, ast.Subscript):
            return is_type(node.value)
        name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
        return (
            isinstance(getattr(builtins, name, None), type)
            or re.fullmatch(r"_?[A-Z]\w*[a-z]\w*", name) is not None
        )

    return [
        f"{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.BitOr)
        and id(node) not in annotations
        and (is_type(node.left) or is_type(node.right))
    ]


def test_light_part_evaluates_no_union_types():
    assert {p: u for p in LIGHT if (u := runtime_unions(parse(p)))} == {}


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("X = int | None", 1),
        ("X = list[int | str]", 1),
        ("def f(x): return isinstance(x, int | float)", 1),
        ("X = Path | None", 1),
        ("def f(x: int | None) -> str | None: ...", 2),
        ("from __future__ import annotations\ndef f(x: int | None) -> str | None: y: int | str", 0),
        ("X = re.I | re.M | FLAG", 0),
        ("X = {1} | {2}; Y = {**{}} | names", 0),
    ],
)
def test_evaluated_union_types_are_told_from_other_uses(source, count):
    assert len(runtime_unions(ast.parse(source))) == count


# --- public names ---------------------------------------------------------------------------------


def test_public_names():
    assert mpexport.__all__ == sorted(mpexport.__all__)
    assert len(set(mpexport.__all__)) == len(mpexport.__all__)
    assert sorted(dir(mpexport)) == sorted([*mpexport.__all__, "__version__"])
    for name in mpexport.__all__:
        thing = getattr(mpexport, name)
        assert thing.__name__ == name
        assert thing.__module__ == mpexport._PUBLIC[name], "the table names another module"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mpexport.nothing


def test_every_public_thing_is_documented():
    missing = []
    for path in (*LIBRARY, *CLI):
        tree = parse(path)
        if tree.body and not ast.get_docstring(tree):
            missing.append(relative(path))
        todo = [(tree, "")]
        while todo:
            parent, prefix = todo.pop()
            for node in ast.iter_child_nodes(parent):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    if node.name.startswith("_"):
                        continue
                    if not ast.get_docstring(node):
                        missing.append(f"{relative(path)}: {prefix}{node.name}")
                    if isinstance(node, ast.ClassDef):
                        todo.append((node, f"{node.name}."))
    assert missing == []


# --- CONTRIBUTING.md ------------------------------------------------------------------------------

CONTRIBUTING = (CHECKOUT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SKELETONS = dict(re.findall(r"```python\n# (mpexport/\S+\.py)\n(.*?)```", CONTRIBUTING, re.DOTALL))


def test_layout_table_names_every_folder():
    table = re.findall(r"^\| (`.*?) \|", CONTRIBUTING, re.MULTILINE)
    named = {name for row in table for name in re.findall(r"`([^`]+)/`", row)}
    packages = {relative(path.parent) for path in LIBRARY} - {"mpexport"}
    assert packages | {"cli", "sample_models", "tests"} <= named
    missing = [name for name in named if not (CHECKOUT / name).is_dir()]
    assert missing == []


def test_there_is_a_skeleton_for_everything_that_can_be_added():
    assert [path.rpartition("/")[0] for path in SKELETONS] == [
        "mpexport/tf/passes",
        "mpexport/tf/rules",
        "mpexport/formats",
        "mpexport/runtimes",
    ]


@pytest.mark.parametrize("path", SKELETONS)
@pytest.mark.parametrize("command", ["check", "format --diff"])
def test_skeletons_pass_the_linter(path, command):
    ruff = Path(sysconfig.get_path("scripts"), "ruff")
    checked = subprocess.run(
        [ruff, *command.split(), "--quiet", "--stdin-filename", CHECKOUT / path, "-"],
        input=SKELETONS[path],
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


USE_SKELETONS = """
import json, sys, zipfile
from pathlib import Path
import numpy as np
import tensorflow as tf
import mpexport
from mpexport import formats, runtimes
from mpexport.tf import check, pipeline

class Model(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def __call__(self, x):
        half = tf.debugging.check_numerics(tf.cast(x, tf.float16), "x")
        return {"y": tf.cast(tf.exp(half), tf.float32)}

root = Path(sys.argv[1])
model = Model()
tf.saved_model.save(model, str(root / "model"), signatures={"serving_default": model.__call__})
report = mpexport.check(root / "model")
made = mpexport.export(root / "model", root / "out", ["savedmodel-zip", "onnx"], verify=False)
paths = {file.artifact.format: Path(file.artifact.path) for file in made.files}
with zipfile.ZipFile(paths["savedmodel-zip"]) as archive:
    archive.extractall(root / "unpacked")
outputs = {}
for runtime, path in (
    ("tensorflow", root / "unpacked"),
    ("onnxruntime", paths["onnx"]),
    ("onnx_reference", paths["onnx"]),
):
    session = runtimes.get(runtime).open(path, runtimes.RuntimeOptions())
    inputs = {"x": np.array([[0, 1], [-1, 12]], np.float32)}
    outputs[runtime] = session.run(inputs)["y"].ravel().tolist()
    session.close()
print(json.dumps({
    "passes": {name: type(member).__name__ for name, member in pipeline.all_passes().items()},
    "rules": {name: type(member).__name__ for name, member in check.all_rules().items()},
    "formats": {name: type(member).__name__ for name, member in formats.all_formats().items()},
    "runtimes": {name: type(member).__name__ for name, member in runtimes.all().items()},
    "detected": {name: formats.detect(path).name for name, path in paths.items()},
    "changes": made.changes,
    "findings": [finding.rule for finding in report.findings],
    "ops": made.files[1].contract.ops,
    "outputs": outputs,
}))
"""


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package, as it is when installed, plus the four files."""
    root = tmp_path_factory.mktemp("extended")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(CHECKOUT / "mpexport", root / "mpexport", ignore=ignore)
    shutil.copytree(CHECKOUT / "cli", root / "mpexport" / "cli", ignore=ignore)
    for path, source in SKELETONS.items():
        assert not (root / path).exists(), f"{path} exists: the example needs another name"
        (root / path).write_text(source, encoding="utf-8")
    return root


@pytest.mark.tf
@pytest.mark.ort
def test_skeletons_work(extended, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(extended)}
    ended = subprocess.run(
        [sys.executable, "-c", USE_SKELETONS, str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
    seen = json.loads(ended.stdout.splitlines()[-1])
    assert seen["passes"]["drop_check_numerics"] == "GraphPass"
    assert seen["rules"]["half-exp"] == "Rule"
    assert seen["formats"]["savedmodel-zip"] == "FormatSpec"
    assert seen["runtimes"]["onnx_reference"] == "RuntimeSpec"
    assert [c["count"] for c in seen["changes"] if c["kind"] == "check-dropped"] == [1]
    assert seen["findings"].count("half-exp") == 1
    assert "Exp" in seen["ops"]
    assert seen["detected"] == {"savedmodel-zip": "savedmodel-zip", "onnx": "onnx"}
    assert set(seen["outputs"]) == {"tensorflow", "onnxruntime", "onnx_reference"}
    for runtime, output in seen["outputs"].items():
        # exp in float32, within a few units in the last place; float16 gives inf for the last.
        wanted = [1.0, 2.718281828459, 0.367879441171, 162754.791419]
        assert output == pytest.approx(wanted, rel=8 * 2.0**-24), runtime


def test_format_is_a_command_too(extended, tmp_path):
    shown = subprocess.run(
        [sys.executable, "-m", "mpexport.cli", "savedmodel-zip", "--help"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(extended), "COLUMNS": "100"},
        cwd=tmp_path,
    )
    assert shown.returncode == 0, shown.stderr
    assert "--compression" in shown.stdout
    assert "How the archive is compressed." in shown.stdout


# --- tests/conftest.py ----------------------------------------------------------------------------

SKIPPING = """
import pytest

def test_plain(): pytest.skip("no server")
@pytest.mark.skip(reason="no server")
def test_marked(): pass
@pytest.mark.may_skip
def test_allowed(): pytest.skip("no server")
@pytest.mark.xfail
def test_expected(): assert False
def test_good(): pass
"""


@pytest.mark.parametrize(
    ("ci", "counts"),
    [
        ("", "1 passed, 3 skipped, 1 xfailed"),
        ("true", "1 failed, 1 passed, 1 skipped, 1 xfailed, 1 error"),
    ],
)
def test_skips_are_failures_in_ci(tmp_path, ci, counts):
    shutil.copy(CHECKOUT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(SKIPPING)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = may_skip\n")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        env={**os.environ, "CI": ci},
        cwd=tmp_path,
    )
    assert counts in ended.stdout.splitlines()[-1], ended.stdout
