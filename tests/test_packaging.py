"""The built archives: nothing missing, nothing beside ``mpexport``, extras that mean something."""

from __future__ import annotations

import configparser
import email
import email.message
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

import mpexport

CHECKOUT = Path(__file__).parents[1]
GENERATED = shutil.ignore_patterns(
    "__pycache__", "*.pyc", "*.egg-info", ".*", "build", "dist", "demo"
)


@dataclass(frozen=True)
class Built:
    """The archives of a clean copy of the checkout."""

    sdist: Path
    wheel: Path  # built from the sdist
    wheel_of_tree: Path


def call(*command: str | Path, cwd: Path, python_path: Path | None = None) -> str:
    """Runs a command away from the checkout and returns what it prints."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if python_path is not None:
        environment["PYTHONPATH"] = str(python_path)
    ended = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Built in a copy, since an egg-info or build folder of before hides what is missing now."""
    root = tmp_path_factory.mktemp("built")
    tree = root / "tree"
    shutil.copytree(CHECKOUT, tree, ignore=GENERATED)
    build = [sys.executable, "-m", "build", "--no-isolation"]
    call(*build, "--outdir", root / "both", cwd=tree)
    shutil.rmtree(tree)
    shutil.copytree(CHECKOUT, tree, ignore=GENERATED)
    call(*build, "--wheel", "--outdir", root / "wheel", cwd=tree)
    return Built(
        sdist=next((root / "both").glob("*.tar.gz")),
        wheel=next((root / "both").glob("*.whl")),
        wheel_of_tree=next((root / "wheel").glob("*.whl")),
    )


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata(wheel: Path) -> email.message.Message:
    files = contents(wheel)
    return email.message_from_bytes(next(v for k, v in files.items() if k.endswith("/METADATA")))


def tree_files() -> set[str]:
    """Files of both packages by the names they have once installed."""
    names = set()
    for folder, installed in (("mpexport", "mpexport"), ("cli", "mpexport/cli")):
        for path in (CHECKOUT / folder).rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                names.add(f"{installed}/{path.relative_to(CHECKOUT / folder).as_posix()}")
    return names


def test_wheel_holds_exactly_the_tree(built):
    """setuptools leaves out a package that pyproject.toml doesn't list, without a warning."""
    packaged = {name for name in contents(built.wheel) if ".dist-info/" not in name}
    assert packaged == tree_files()
    assert "mpexport/py.typed" in packaged


def test_wheel_has_one_name_at_its_top(built):
    tops = {name.partition("/")[0] for name in contents(built.wheel)}
    assert tops == {"mpexport", f"mpexport-{mpexport.__version__}.dist-info"}


def test_wheel_is_the_same_from_the_sdist_and_from_the_tree(built):
    from_tree, from_sdist = contents(built.wheel_of_tree), contents(built.wheel)
    assert from_tree.keys() == from_sdist.keys()
    # RECORD lists the hashes of the others in the order in which they were written.
    assert [n for n in from_tree if from_tree[n] != from_sdist[n] and "/RECORD" not in n] == []


def test_sdist_holds_what_its_tests_need(built):
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile"} <= names
    for folder in ("cli", "mpexport", "sample_models", "tests"):
        files = {p.relative_to(CHECKOUT).as_posix() for p in (CHECKOUT / folder).rglob("*.py")}
        assert files <= names


def test_console_script(built):
    files = contents(built.wheel)
    parser = configparser.ConfigParser()
    parser.read_string(next(v for k, v in files.items() if k.endswith("entry_points.txt")).decode())
    assert dict(parser["console_scripts"]) == {"mpexport": "mpexport.cli.main:main"}
    assert dict(parser["pytest11"]) == {"mpexport": "mpexport.pytest_plugin"}


def test_license_and_version(built):
    files = contents(built.wheel)
    licenses = [v for k, v in files.items() if k.endswith(".dist-info/licenses/LICENSE")]
    assert licenses == [(CHECKOUT / "LICENSE").read_bytes()]
    assert b"Version 2.0, January 2004" in licenses[0]
    found = metadata(built.wheel)
    assert found["License-Expression"] == "Apache-2.0"
    assert found["Version"] == mpexport.__version__
    assert found["Requires-Python"] == ">=3.9"


def requirements(wheel: Path, python: str, *extras: str) -> dict[str, Requirement]:
    """What pip would install for ``mpexport[extras]`` on a Python, own extras followed."""
    found = metadata(wheel)
    known = set(found.get_all("Provides-Extra", []))
    result: dict[str, Requirement] = {}

    def add(extras: Iterable[str]) -> None:
        for text in found.get_all("Requires-Dist", []):
            requirement = Requirement(text)
            marker = requirement.marker
            environment = {"python_version": python, "python_full_version": f"{python}.1"}
            wanted = marker is None or any(
                marker.evaluate({**environment, "extra": extra}) for extra in extras
            )
            if not wanted:
                continue
            if requirement.name == "mpexport":
                assert requirement.extras <= known, text
                add(requirement.extras)
            elif requirement.name in result:
                result[requirement.name].specifier &= requirement.specifier
            else:
                result[requirement.name] = requirement

    assert set(extras) <= known
    add(["", *extras])
    return result


def test_extras(built):
    assert set(metadata(built.wheel).get_all("Provides-Extra", [])) == {
        "all",
        "demo",
        "edge",
        "litert",
        "onnx",
        "tensorflow",
        "tflite-runtime",
    }
    for python in ("3.11", "3.12", "3.13"):
        assert set(requirements(built.wheel, python)) == {"numpy", "cyclopts", "rich"}
        # tflite-runtime needs numpy 1 and a process without TensorFlow.
        assert set(requirements(built.wheel, python, "all")) == {
            "ai-edge-litert",
            "cyclopts",
            "keras",
            "numpy",
            "onnx",
            "onnxruntime",
            "rich",
            "scikit-learn",
            "tensorflow",
            "tf-keras",
            "tf2onnx",
        }
    old = requirements(built.wheel, "3.11", "tflite-runtime")
    assert not old["numpy"].specifier.contains("2.0.0")
    assert old["numpy"].specifier.contains("1.26.4")


# The newest release with a wheel for Python 3.9; found with
# pip download --no-deps --only-binary :all: --python-version 3.9 NAME
NEWEST_ON_39 = {
    "numpy": "2.0.2",
    "onnxruntime": "1.19.2",
    "tflite-runtime": "2.14.0",
}


@pytest.mark.parametrize(
    ("extra", "names"),
    [
        (None, {"numpy"}),
        ("edge", {"numpy", "onnxruntime"}),
        ("litert", {"numpy"}),  # LiteRT begins at Python 3.10
        ("tflite-runtime", {"numpy", "tflite-runtime"}),
    ],
)
def test_light_extras_can_be_resolved_on_python_39(built, extra, names):
    found = requirements(built.wheel, "3.9", *([extra] if extra else []))
    assert set(found) == names
    for name, requirement in found.items():
        newest = "1.26.4" if (name, extra) == ("numpy", "tflite-runtime") else NEWEST_ON_39[name]
        assert requirement.specifier.contains(newest), requirement


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    """A folder that holds the wheel and nothing else; the rest comes from this environment."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    call(*pip, "--target", folder, built.wheel, cwd=folder)
    return folder


def test_installed_wheel_runs(installed, tmp_path):
    where = "import mpexport, mpexport.cli; print(mpexport.__file__, mpexport.cli.__file__)"
    files = call(sys.executable, "-c", where, cwd=tmp_path, python_path=installed).split()
    assert files == [str(installed / f"mpexport/{f}__init__.py") for f in ("", "cli/")]
    for command in ([sys.executable, "-m", "mpexport.cli"], [installed / "bin" / "mpexport"]):
        shown = call(*command, "--help", cwd=tmp_path, python_path=installed)
        assert "parity" in shown


@pytest.mark.parametrize("is_wheel", [False, True], ids=["editable", "wheel"])
def test_cli_is_no_name_of_its_own(installed, tmp_path, is_wheel):
    """In the checkout ``import cli`` gives a second copy of the module; it must not elsewhere."""
    script = """
import importlib.util
assert importlib.util.find_spec("mpexport.cli") is not None
assert importlib.util.find_spec("cli") is None
"""
    call(sys.executable, "-c", script, cwd=tmp_path, python_path=installed if is_wheel else None)


@pytest.mark.tf
@pytest.mark.litert
@pytest.mark.tflite_runtime
def test_exported_tflite_runs_in_the_environment_of_an_old_device(trained, old_python, tmp_path):
    """A TFLite file written here gives the same numbers in tflite-runtime 2.14, numpy 1 and all."""
    from mpexport.parity.compare import compare_cases
    from mpexport.parity.tolerance import default_for
    from mpexport.tensors import load_npy_dir, save_npy_dir
    from mpexport.worker.parent import Worker

    names = ["tflite", "tflite-float16"]
    made = mpexport.export(trained / "cnn_savedmodel", tmp_path / "release", names)
    with np.load(trained / "test_data.npz") as data:
        save_npy_dir({"images": data["images"][:32]}, tmp_path / "case")
    job = {"format": "tflite", "options": {"num_threads": 1, "signature": None}}
    for file in made.files:
        outputs = []
        for python, runtime in ((sys.executable, "litert"), (old_python, "tflite_runtime")):
            with Worker(python=str(python)) as worker:
                answer = worker.call(
                    "run",
                    **job,
                    runtime=runtime,
                    path=file.artifact.path,
                    cases=[str(tmp_path / "case")],
                    output=str(tmp_path / runtime),
                )
                timed = worker.call(
                    "measure",
                    **job,
                    runtime=runtime,
                    path=file.artifact.path,
                    case=str(tmp_path / "case"),
                    timing={"num_runs": 3, "min_secs": 0.0},
                )
            assert answer["environment"]["runtime"] == runtime
            assert timed["summary"]["median_ms"] > 0
            outputs.append([load_npy_dir(tmp_path / runtime / "0")])
        assert (answer["environment"]["version"], timed["environment"]["numpy"][:2]) == (
            "2.14.0",
            "1.",
        )
        rows = compare_cases(*outputs, default_for("float32"))
        assert [row.verdict for row in rows] == [mpexport.Verdict.PASS], rows
