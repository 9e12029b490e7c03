"""CONTRIBUTING.md: its table names every folder, its skeletons work when they are put in place."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]
CONTRIBUTING = (CHECKOUT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SKELETONS = dict(re.findall(r"```python\n# (mpexport/\S+\.py)\n(.*?)```", CONTRIBUTING, re.DOTALL))


def test_layout_table_names_every_folder():
    table = re.findall(r"^\| (`.*?) \|", CONTRIBUTING, re.MULTILINE)
    named = {name for row in table for name in re.findall(r"`([^`]+)/`", row)}
    packages = {
        path.parent.relative_to(CHECKOUT).as_posix()
        for path in (CHECKOUT / "mpexport").rglob("*.py")
    } - {"mpexport"}
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
