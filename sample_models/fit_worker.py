"""Child process that trains a sample model with Keras 3, measures the training, and saves it."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

from sample_models import builders, children, memory, twin
from sample_models.data import Digits, load_digits
from sample_models.optimizers import make_optimizer

_PACKAGES = ("tensorflow", "keras", "tf-keras", "numpy", "scikit-learn")
PROBE_IMAGES = 32
"""Number of test images on which the two Keras generations are compared."""


def work(job: children.Job) -> children.Report:
    """Trains one model.

    Args:
        job: ``name``, ``policy``, ``optimizer``, ``epochs``, ``seed``, ``batch_size``, and
            ``folder``: an existing folder for the files, or None to write nothing.

    Returns:
        ``device``, ``test_accuracy`` (fraction in [0, 1]), ``epoch_seconds`` (list),
        ``baseline_memory_bytes`` (resident before the first epoch), ``peak_memory_bytes`` and
        ``versions``.
    """
    keras = importlib.import_module("keras")
    digits = load_digits(seed=job["seed"])
    model = builders.build(job["name"], keras, job["policy"], seed=job["seed"])
    # Under mixed_float16, compile wraps the optimizer for dynamic loss scaling.
    model.compile(make_optimizer(job["optimizer"], keras), loss="sparse_categorical_crossentropy")
    baseline = memory.resident_bytes()
    epoch_seconds = _fit(keras, model, digits, job["epochs"], job["batch_size"])
    peak = memory.peak_bytes()
    predictions = np.argmax(model.predict(digits.test_images, verbose=0), axis=-1)
    if job["folder"] is not None:
        _save(keras, model, digits, Path(job["folder"]))
    tensorflow = importlib.import_module("tensorflow")
    return {
        "device": "GPU" if tensorflow.config.list_physical_devices("GPU") else "CPU",
        "test_accuracy": float(np.mean(predictions == digits.test_labels)),
        "epoch_seconds": epoch_seconds,
        "baseline_memory_bytes": baseline,
        "peak_memory_bytes": peak,
        "versions": {"python": platform.python_version()}
        | {package: importlib.metadata.version(package) for package in _PACKAGES},
    }


def _fit(keras: Any, model: Any, digits: Digits, epochs: int, batch_size: int) -> list[float]:
    """Trains the model and returns the wall time of each epoch in seconds."""
    marks: list[float] = []

    def mark(*_: Any) -> None:
        marks.append(time.perf_counter())

    model.fit(
        digits.train_images,
        digits.train_labels,
        batch_size=batch_size,
        epochs=epochs,
        verbose=0,
        callbacks=[keras.callbacks.LambdaCallback(on_epoch_begin=mark, on_epoch_end=mark)],
    )
    return [end - begin for begin, end in zip(marks[::2], marks[1::2], strict=True)]


def _save(keras: Any, model: Any, digits: Digits, folder: Path) -> None:
    """Writes the Keras 3 files, the test data, and what the Keras 2 twin is made from."""
    model.save(folder / f"{model.name}.keras")
    # Without verbose=False the description of the endpoints goes to stdout.
    model.export(folder / f"{model.name}_savedmodel", format="tf_saved_model", verbose=False)
    np.savez_compressed(
        folder / "test_data.npz", images=digits.test_images, labels=digits.test_labels
    )
    probe = digits.test_images[:PROBE_IMAGES]
    probabilities = twin.float32_twin(model, keras).predict(probe, verbose=0)
    np.savez(folder / "probe.npz", images=probe, probabilities=probabilities)
    weights: dict[str, Any] = {
        f"{index:04d}/{name}": value
        for index, (name, value) in enumerate(twin.named_weights(model))
    }
    np.savez(folder / "weights.npz", **weights)


if __name__ == "__main__":
    children.serve(work)
