"""Child: ``python keras2.py FOLDER``: models of the Keras before Keras 3, by tf-keras.

``NAME.inputs.npz`` and ``NAME.expected.npz`` as in ``keras3.py``, expected in float64 by numpy.
Knows nothing of mpexport.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import tf_keras as keras

layers = keras.layers


def dense() -> keras.Model:
    x = layers.Input((6,), name="x")
    hidden = layers.PReLU(name="slope")(layers.Dense(8, name="hidden")(x))
    return keras.Model(x, layers.Dense(3, dtype="float32", name="scores")(hidden))


def constants_on_the_left() -> keras.Model:
    x = layers.Input((6,), dtype="float16", name="x")
    return keras.Model(x, 1 - 2.0 * x)


def main(folder: Path) -> None:
    """Writes them all."""
    random = np.random.default_rng(0)
    keras.mixed_precision.set_global_policy("mixed_float16")
    model = dense()
    for weight in model.weights:
        weight.assign(random.normal(0, 0.5, weight.shape))
    model.save(folder / "old.keras")
    model.save(folder / "old.h5")
    model.save(folder / "old")
    x = random.normal(0, 1, (3, 6)).astype(np.float32)
    kernel, bias, slope, kernel_2, bias_2 = (w.numpy().astype(np.float64) for w in model.weights)
    y = x @ kernel + bias
    scores = np.where(y > 0, y, slope * y) @ kernel_2 + bias_2
    np.savez(folder / "old.inputs.npz", x=x)
    np.savez(folder / "old.expected.npz", scores=scores)

    keras.mixed_precision.set_global_policy("float32")
    model = constants_on_the_left()
    model.save(folder / "left.h5")
    model.save(folder / "left")
    x = random.normal(0, 1, (3, 6)).astype(np.float16).astype(np.float32)
    np.savez(folder / "left.inputs.npz", x=x)
    (name,) = model.output_names
    np.savez(folder / "left.expected.npz", **{name: 1 - 2.0 * x.astype(np.float64)})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
