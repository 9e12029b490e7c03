"""Child: ``python special.py keras|tf_keras FOLDER``: sources with something odd about them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

CUSTOM = """
import keras

@keras.saving.register_keras_serializable("my_pkg")
class Twice(keras.layers.Layer):
    def call(self, x):
        return x + x
"""


def small(keras: Any, *extra: Any) -> Any:
    """Two Dense layers under ``mixed_float16``, with further layers between them."""
    with_policy = {"dtype": "mixed_float16"}
    features = keras.Input((6,), name="features")
    x = keras.layers.Dense(8, activation="relu", name="hidden", **with_policy)(features)
    for layer in extra:
        x = layer(x)
    scores = keras.layers.Dense(3, activation="softmax", name="scores", **with_policy)(x)
    return keras.Model(features, scores)


def train_one_step(model: Any) -> None:
    """So that the optimizer has variables."""
    random = np.random.default_rng(0)
    model.fit(random.random((4, 6)), random.integers(0, 3, 4), verbose=0)


def keras3(folder: Path) -> None:
    """``scaled.keras`` and ``custom.keras`` with ``my_pkg/layers.py``."""
    import keras

    keras.utils.set_random_seed(0)
    model = small(keras)
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())
    model.compile(optimizer, "sparse_categorical_crossentropy")
    train_one_step(model)
    model.save(folder / "scaled.keras")

    (folder / "my_pkg").mkdir()
    (folder / "my_pkg" / "layers.py").write_text(CUSTOM)
    sys.path.insert(0, str(folder))
    from my_pkg.layers import Twice

    small(keras, Twice(dtype="mixed_float16")).save(folder / "custom.keras")


def keras2(folder: Path) -> None:
    """``mirrored/``, ``policy_v1.h5`` and ``signatures/``."""
    import h5py
    import tensorflow as tf
    import tf_keras

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    tf_keras.utils.set_random_seed(0)
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with strategy.scope():
        model = small(tf_keras)
        optimizer = tf_keras.mixed_precision.LossScaleOptimizer(tf_keras.optimizers.Adam())
        model.compile(optimizer, "sparse_categorical_crossentropy")
    train_one_step(model)
    assert isinstance(model.weights[0], tf.distribute.DistributedValues)
    model.save(folder / "mirrored", save_format="tf")

    # What TensorFlow 2.1 to 2.3 wrote under tf.keras.mixed_precision.experimental.set_policy.
    old = folder / "policy_v1.h5"
    small(tf_keras).save(old, save_format="h5")
    with h5py.File(old, "r+") as f:
        config = json.loads(f.attrs["model_config"])
        changed = 0
        for layer in config["config"]["layers"]:
            if layer["class_name"] == "Dense":
                scale = {
                    "class_name": "DynamicLossScale",
                    "config": {
                        "initial_loss_scale": 32768,
                        "increment_period": 2000,
                        "multiplier": 2,
                    },
                }
                policy = {"name": "mixed_float16", "loss_scale": scale}
                layer["config"]["dtype"] = {"class_name": "PolicyV1", "config": policy}
                changed += 1
        assert changed == 2
        f.attrs["model_config"] = json.dumps(config)

    net = two_signatures()
    signatures = {"encode": net.encode, "decode_all": net.decode}
    tf.saved_model.save(net, str(folder / "signatures"), signatures=signatures)


def two_signatures() -> Any:
    """A module with ``encode`` and ``decode``."""
    import tensorflow as tf

    class Net(tf.Module):
        def __init__(self) -> None:
            self.kernel = tf.Variable(np.random.default_rng(0).random((6, 4)).astype("f"))

        @tf.function(input_signature=[tf.TensorSpec([None, None, 6], tf.float32, "words")])
        def encode(self, words: Any) -> dict[str, Any]:
            half = tf.einsum(
                "btf,fd->btd", tf.cast(words, tf.float16), tf.cast(self.kernel, tf.float16)
            )
            return {"codes": tf.nn.tanh(half), "mean": tf.reduce_mean(half, 1)}

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 4], tf.float16, "codes"),
                tf.TensorSpec([], tf.float32, "scale"),
            ]
        )
        def decode(self, codes: Any, scale: Any) -> dict[str, Any]:
            half = tf.matmul(codes, tf.cast(self.kernel, tf.float16), transpose_b=True)
            return {"words": half * tf.cast(scale, tf.float16)}

    return Net()


if __name__ == "__main__":
    {"keras": keras3, "tf_keras": keras2}[sys.argv[1]](Path(sys.argv[2]))
