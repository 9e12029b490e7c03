"""Child: builds sources of one Keras generation, and what their float32 twins compute.

``python sources.py keras|tf_keras FOLDER`` writes, for each model and policy of ``models``,
``NAME-POLICY.keras`` or ``.h5``, the SavedModel ``NAME-POLICY/`` and ``NAME-POLICY.npz`` with the
outputs of the twin on the images of ``inputs.npz``: ``probabilities``, and ``exact`` as they are
with all literals at full precision. Nothing of mpexport is imported here.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

from sample_models import builders, twin

# Literals of Keras that a trace under a 16-bit policy holds rounded, by policy. Of the layers of
# these models only the exact GELU has one that its type cannot hold: TensorFlow writes it
# 0.5·x·erfc(-x·√½) with √½ = 0.7071067811865476 cast to the type of x. (0.5 is exact, and so is the
# attention's scale 1/√16; LayerNormalization adds its epsilon in float32.)
SQRT_HALF = {
    "float32": 0.7071067811865476,
    "mixed_float16": 0.70703125,  # 1448 / 2^11
    "mixed_bfloat16": 0.70703125,  # 181 / 2^8: the float16 one has no further bits
}


def models(generation: str) -> list[tuple[str, str]]:
    """Sample models and policies that this generation is tried with."""
    if generation == "keras":
        names = ("mlp", "cnn", "transformer", "lstm")
        return [(n, p) for n in names for p in builders.POLICIES]
    return [(n, p) for n in ("cnn", "lstm") for p in ("mixed_float16", "float32")]


def shake(model: Any) -> None:
    """Moves every weight off its initial value: a lost bias of 0 would go unnoticed."""
    random = np.random.default_rng(7)
    for variable in model.weights:
        variable.assign(variable + 0.05 * random.standard_normal(variable.shape))


def with_rounded_gelu(model: Any, keras: Any, policy: str) -> Any:
    """Gives a twin the GELU whose literal is the one that the mixed trace holds."""
    import tensorflow as tf

    literal = np.float32(SQRT_HALF[policy])

    def gelu(x: Any) -> Any:
        return 0.5 * x * tf.math.erfc(-x * literal)

    for layer in model.layers:
        if getattr(layer, "activation", None) is keras.activations.gelu:
            layer.activation = gelu
    return model


def main(generation: str, folder: Path) -> None:
    """Writes all sources."""
    keras = importlib.import_module(generation)
    random = np.random.default_rng(3)
    images = random.random((4, 28, 28, 1), dtype=np.float32)
    np.savez(folder / "inputs.npz", images=images)
    for name, policy in models(generation):
        # Same seed for every policy, so that the float32 model has the weights of the mixed ones.
        model = builders.build(name, keras, policy, seed=1)
        shake(model)
        place = folder / f"{name}-{policy}"
        if generation == "keras":
            model.save(place.with_suffix(".keras"))
            model.export(place, verbose=False)
        else:
            model.save(place.with_suffix(".h5"), save_format="h5")
            model.save(place, save_format="tf")
        single = twin.float32_twin(model, keras)
        exact = np.asarray(single(images, training=False))
        outputs = np.asarray(with_rounded_gelu(single, keras, policy)(images, training=False))
        assert outputs.dtype == np.float32
        np.savez(place.with_suffix(".npz"), probabilities=outputs, exact=exact)
    if generation == "tf_keras":
        for policy in ("mixed_float16", "float32"):
            model = builders.build("lstm", keras, policy, seed=1, batch_size=1)
            shake(model)
            model.save(folder / f"lstm_batch_1-{policy}.h5", save_format="h5")
            model.save(folder / f"lstm_batch_1-{policy}", save_format="tf")
    assert not [m for m in sys.modules if m.split(".")[0] == "mpexport"]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
