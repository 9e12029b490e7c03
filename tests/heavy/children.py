"""Children of the heavy tests: ``python children.py JOB FOLDER`` with sample_models importable."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, DEPTH = 8192, 9


def resnet50(folder: Path) -> None:
    """Random weights as Keras draws them."""
    import keras

    from sample_models.twin import float32_twin

    keras.utils.set_random_seed(0)
    keras.mixed_precision.set_global_policy("mixed_float16")
    images = keras.Input((224, 224, 3), name="images")
    mixed = keras.applications.ResNet50(weights=None, input_tensor=images)
    keras.mixed_precision.set_global_policy("float32")
    _save_pair(folder, mixed, float32_twin(mixed, keras))


def sharp_resnet50(folder: Path) -> None:
    """The sample model: normalizations fitted to images, so that the output is far from uniform."""
    import keras

    from sample_models.twin import build_twin_pair

    _save_pair(folder, *build_twin_pair("resnet50", keras, "mixed_float16"))


def _save_pair(folder: Path, mixed: Any, single: Any) -> None:
    """``mixed/`` and ``float32/`` with the same weights, and what the latter computes."""
    from sample_models.data import resize_bilinear

    mixed.export(folder / "mixed", verbose=False)
    single.export(folder / "float32", verbose=False)
    # Large spots, as in the images whose statistics the normalizations hold.
    spots = resize_bilinear(np.random.default_rng(1).random((2 * 3, 8, 8)), 224)
    images = np.moveaxis(spots.reshape(2, 3, 224, 224), 1, -1).astype(np.float32)
    np.savez(folder / "inputs.npz", images=images)
    np.savez(folder / "twin.npz", probabilities=np.asarray(single(images, training=False)))
    assert not [m for m in sys.modules if m.split(".")[0] == "mpexport"]


def large(folder: Path) -> None:
    """``large/``: nine Dense layers of 8192 × 8192, 2.25 GiB of weights.

    One random block serves as the values of all nine: making more would take most of the time.
    With a variance of 1/8192 it keeps the magnitude of what goes through.
    """
    import keras

    keras.mixed_precision.set_global_policy("mixed_float16")
    features = keras.Input((WIDTH,), name="features")
    x = features
    for i in range(DEPTH):
        activation = "relu" if i < DEPTH - 1 else None
        x = keras.layers.Dense(WIDTH, activation, kernel_initializer="zeros", name=f"dense_{i}")(x)
    model = keras.Model(features, x)
    block = np.random.default_rng(0).standard_normal((WIDTH, WIDTH), dtype=np.float32)
    block /= np.float32(np.sqrt(WIDTH))
    for layer in model.layers[1:]:
        layer.kernel.assign(block)
    model.export(folder / "large", verbose=False)


def promotion(folder: Path) -> None:
    """Prints the seconds that normalizing takes once the model is loaded."""
    from mpexport.sources import SourceOptions
    from mpexport.tf.load import load
    from mpexport.tf.normalized import normalize

    loaded = load(SourceOptions(str(folder / "large")), folder)
    start = time.perf_counter()
    normalize(loaded)
    print(time.perf_counter() - start)


if __name__ == "__main__":
    {f.__name__: f for f in (resnet50, sharp_resnet50, large, promotion)}[sys.argv[1]](
        Path(sys.argv[2])
    )
