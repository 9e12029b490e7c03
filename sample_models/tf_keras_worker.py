"""Child process that rebuilds a trained sample model with ``tf_keras`` (Keras 2) and saves it."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np

from sample_models import builders, children, twin
from sample_models.errors import TwinError
from sample_models.optimizers import make_optimizer

_TOLERANCE = 64 * 2.0**-24
"""Largest difference of probabilities: 64 times the unit roundoff of float32, since the two
generations sum in a different order (measured: 5 times at most)."""


def work(job: children.Job) -> children.Report:
    """Makes the Keras 2 files from the weights of the Keras 3 model.

    Args:
        job: ``name``, ``policy``, ``optimizer``, ``seed`` and ``folder``, which holds
            ``weights.npz`` and ``probe.npz`` and gets the files.

    Returns:
        ``largest_difference``: of the float32 probabilities of the two generations.

    Raises:
        TwinError: The weights don't fit, or the two models don't compute the same.
    """
    keras = importlib.import_module("tf_keras")
    name, folder = job["name"], Path(job["folder"])
    with np.load(folder / "weights.npz") as stored:
        weights = [(key.partition("/")[2], stored[key]) for key in sorted(stored.files)]
    with np.load(folder / "probe.npz") as probe:
        images, expected = probe["images"], probe["probabilities"]

    # Compared in float32: in half, the noise would hide exchanged weights.
    single = builders.build(name, keras, "float32", seed=job["seed"])
    twin.assign_weights(single, weights)
    difference = float(np.max(np.abs(single.predict(images, verbose=0) - expected)))
    if not difference <= _TOLERANCE:
        raise TwinError(f"{name} differs between Keras 2 and Keras 3 by {difference:.3g}")

    model = builders.build(name, keras, job["policy"], seed=job["seed"])
    twin.assign_weights(model, weights)
    model.compile(make_optimizer(job["optimizer"], keras), loss="sparse_categorical_crossentropy")
    # So that the files hold optimizer variables, as those of a trained model do.
    model.optimizer.build(model.trainable_variables)
    model.save(folder / f"{name}_tf_keras_savedmodel", save_format="tf")
    model.save(folder / f"{name}_tf_keras.h5", save_format="h5")
    return {"largest_difference": difference}


if __name__ == "__main__":
    children.serve(work)
