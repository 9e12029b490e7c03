"""Tests of the training: the files of one real short run, and the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sample_models import children
from sample_models import train as training
from sample_models.data import load_digits
from sample_models.errors import UsageError, WorkerError
from sample_models.results import TrainingResult, comparison_table, comparison_text

pytestmark = pytest.mark.tf

NAMES = {
    "cnn.keras",
    "cnn_savedmodel",
    "cnn_tf_keras.h5",
    "cnn_tf_keras_savedmodel",
    "test_data.npz",
    "training.json",
}

KERAS_3 = """
import json, pathlib, sys
import keras, numpy as np, tensorflow as tf
folder = pathlib.Path(sys.argv[1])
images = np.load(folder / "test_data.npz")["images"][:64]
# A functional model's file holds the policy of each layer, but not that of the model. So Keras
# finds the loss scaling again only if the global policy is the one of the training.
keras.config.set_dtype_policy("mixed_float16")
model = keras.models.load_model(folder / "cnn.keras")
exported = tf.saved_model.load(folder / "cnn_savedmodel").signatures["serving_default"]
legacy = tf.saved_model.load(folder / "cnn_tf_keras_savedmodel").signatures["serving_default"]
named = legacy(images=images)
np.savez(
    sys.argv[2],
    keras=np.asarray(model(images)),
    keras_savedmodel=next(iter(exported(images=images).values())),
    tf_keras_savedmodel=named["probabilities"],
)
print(json.dumps({
    "optimizer": type(model.optimizer).__name__,
    "inner": type(model.optimizer.inner_optimizer).__name__,
    "steps": int(model.optimizer.inner_optimizer.iterations.numpy()),
    "policies": sorted({x.dtype_policy.name for x in model.layers[1:]}),
    "outputs": [named["probabilities"].dtype.name, model.outputs[0].dtype],
}))
"""

KERAS_2 = """
import json, pathlib, sys
import numpy as np, tf_keras
folder = pathlib.Path(sys.argv[1])
images = np.load(folder / "test_data.npz")["images"][:64]
model = tf_keras.models.load_model(folder / "cnn_tf_keras.h5")
np.savez(sys.argv[2], tf_keras=model(images).numpy())
print(json.dumps({
    "optimizer": type(model.optimizer).__name__,
    "inner": type(model.optimizer.inner_optimizer).__name__,
    "policies": sorted({x.dtype_policy.name for x in model.layers[1:]}),
}))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    folder = tmp_path_factory.mktemp("trained") / "new" / "folder"
    return training.train("cnn", "mixed_float16", "adam", 2, folder, seed=0, batch_size=128)


def folder_of(result: TrainingResult) -> Path:
    assert result.output_dir is not None
    return result.output_dir


def test_training_writes_all_files_and_nothing_else(trained: TrainingResult) -> None:
    assert {path.name for path in folder_of(trained).iterdir()} == NAMES


def test_result_and_its_json(trained: TrainingResult) -> None:
    # Measured 0.90; guessing gives 0.10.
    assert 0.8 < trained.test_accuracy < 1.0
    assert len(trained.epoch_seconds) == 2
    assert 2**26 < trained.baseline_memory_bytes < trained.peak_memory_bytes < 2**34
    stored = json.loads((folder_of(trained) / "training.json").read_text())
    assert stored == {
        "name": "cnn",
        "policy": "mixed_float16",
        "optimizer": "adam",
        "epochs": 2,
        "seed": 0,
        "batch_size": 128,
        "device": trained.device,
        "test_accuracy": trained.test_accuracy,
        "epoch_seconds": list(trained.epoch_seconds),
        "baseline_memory_bytes": trained.baseline_memory_bytes,
        "peak_memory_bytes": trained.peak_memory_bytes,
        "versions": trained.versions,
    }
    assert set(trained.versions) >= {"python", "tensorflow", "keras", "tf-keras", "numpy"}


def test_test_data_is_the_test_split(trained: TrainingResult) -> None:
    digits = load_digits(seed=0)
    with np.load(folder_of(trained) / "test_data.npz") as stored:
        assert set(stored.files) == {"images", "labels"}
        np.testing.assert_array_equal(stored["images"], digits.test_images)
        np.testing.assert_array_equal(stored["labels"], digits.test_labels)
        assert (stored["images"].dtype, stored["labels"].dtype) == (np.float32, np.int64)


def test_files_of_both_generations_load_and_agree(
    trained: TrainingResult, tmp_path: Path, fresh_process: Callable[..., Any]
) -> None:
    folder = folder_of(trained)
    three = fresh_process(KERAS_3, folder, tmp_path / "three.npz")
    two = fresh_process(KERAS_2, folder, tmp_path / "two.npz", legacy_keras=True)
    assert (three["optimizer"], three["inner"]) == ("LossScaleOptimizer", "Adam")
    assert two["optimizer"].startswith("LossScaleOptimizer")
    assert two["inner"] == "Adam"
    assert three["policies"] == two["policies"] == ["mixed_float16"]
    assert three["outputs"] == ["float16", "float16"]
    # 12 steps per epoch; a step with an overflow is left out.
    assert 20 <= three["steps"] <= 24
    probabilities = dict(np.load(tmp_path / "three.npz")) | dict(np.load(tmp_path / "two.npz"))
    assert len(probabilities) == 4
    for value in probabilities.values():
        assert value.dtype == np.float16
        # Eight times the unit roundoff of half: the same operations, summed in another order.
        np.testing.assert_allclose(
            value.astype(np.float64), probabilities["keras"].astype(np.float64), atol=8 * 2.0**-11
        )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("cnn", 2, "-o/--output"),
        ("perceptron -o {0}/new", 2, "'perceptron' is unknown; choose from mlp, cnn"),
        ("resnet50 -o {0}/new", 2, "'resnet50' cannot be trained on digits"),
        ("cnn -o {0}/new --policy float16", 2, "mixed_float16"),
        ("cnn -o {0}/new --optimizer lion", 2, "rmsprop"),
        ("cnn -o {0}/new --epochs 0", 2, "at least 1"),
        ("cnn -o {0}/new --seed -1", 2, "[0, 2**32)"),
        ("cnn -o {0}/new --compare --policy float32", 2, "choose a mixed policy"),
        ("cnn -o {0}/file", 6, "cannot write to"),
        ("cnn -o {0}/file/below --compare", 6, "cannot write to"),
    ],
)
def test_errors_take_one_line_and_leave_nothing(
    words: str, code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("kept")
    assert training.main(words.format(tmp_path).split()) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: ")
    assert output.err.count("\n") == 1
    assert message in output.err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "kept"


def test_failed_training_leaves_the_folder_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cnn.keras").write_text("older")

    def fail(module: str, job: Any, **_: Any) -> Any:
        Path(job["folder"], "cnn.keras").write_text("unfinished")
        raise WorkerError(f"{module} was ended by SIGKILL")

    monkeypatch.setattr(children, "run", fail)
    assert training.main(["cnn", "-o", str(tmp_path)]) == 10
    assert capsys.readouterr().err == "error: fit_worker was ended by SIGKILL\n"
    assert [path.name for path in tmp_path.iterdir()] == ["cnn.keras"]
    assert (tmp_path / "cnn.keras").read_text() == "older"


def test_child_that_dies_gives_its_last_words() -> None:
    with pytest.raises(WorkerError, match=r"no_such_worker failed: .*No module named"):
        children.run("no_such_worker", {})


def test_error_of_a_child_keeps_its_class() -> None:
    job = {"name": "cnn", "policy": "mixed_float8", "seed": 0}
    with pytest.raises(UsageError, match="mixed_float8"):
        children.run("fit_worker", job)


def result(policy: str, seconds: tuple[float, ...], accuracy: float, peak: int) -> TrainingResult:
    return TrainingResult(
        name="cnn",
        policy=policy,
        optimizer="adam",
        epochs=len(seconds),
        seed=0,
        batch_size=64,
        device="CPU",
        test_accuracy=accuracy,
        epoch_seconds=seconds,
        baseline_memory_bytes=600 * 2**20,
        peak_memory_bytes=peak * 2**20,
        versions={},
        output_dir=None,
    )


SINGLE = result("float32", (1.5, 0.4, 0.5, 0.5, 0.6), 0.97, 700)


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [
        (
            (9.0, 1.0, 1.0, 1.0, 1.1),
            "2.00 times as long with mixed_float16 as with float32 (slower)",
        ),
        (
            (9.0, 0.25, 0.25, 0.25, 0.3),
            "0.50 times as long with mixed_float16 as with float32 (faster)",
        ),
        ((9.0, 0.5, 0.5, 0.6, 0.6), "(not told from noise)"),
        ((9.0, 5.0), "(too few epochs to tell from noise)"),
    ],
)
def test_comparison_says_what_was_measured(seconds: tuple[float, ...], verdict: str) -> None:
    mixed = result("mixed_float16", seconds, 0.96, 690)
    text = comparison_text(SINGLE, mixed)
    assert verdict in text
    assert "differed by -10 MiB and the test accuracy by -1.00 points" in text
    table = [line.split() for line in comparison_table(SINGLE, mixed).splitlines()]
    assert table[0] == ["float32", "mixed_float16"]
    assert table[1][-2:] == ["0.9700", "0.9600"]
    assert table[4][-2:] == ["700", "690"]
