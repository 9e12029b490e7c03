"""The layout that CONTRIBUTING.md promises: lengths, dependency directions, Python 3.9, docs."""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
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
