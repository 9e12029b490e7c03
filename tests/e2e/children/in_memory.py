"""Child: ``python in_memory.py KIND FOLDER``: mpexport's verbs on a model that this process holds.

KIND is ``keras``, ``tf_keras``, ``module`` or ``concrete``; prints JSON with what happened.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import mpexport


def weights(seed: int) -> Any:
    """The kernel (6, 3) that the seed stands for."""
    return np.random.default_rng(seed).standard_normal((6, 3)).astype(np.float32)


def keras_model(generation: str, seed: int) -> Any:
    """A mixed Keras model."""
    keras = importlib.import_module(generation)
    features = keras.Input((6,), name="features")
    head = keras.layers.Dense(3, activation="softmax", name="scores", dtype="mixed_float16")
    model = keras.Model(features, head(features))
    head.kernel.assign(weights(seed))
    return model


def module(seed: int) -> Any:
    """A ``tf.Module`` that computes in bfloat16 and was trained by hand."""
    import tensorflow as tf

    class Net(tf.Module):
        def __init__(self) -> None:
            self.kernel = tf.Variable(weights(seed))

        @tf.function(input_signature=[tf.TensorSpec([None, 6], tf.float32, "features")])
        def __call__(self, features: Any) -> dict[str, Any]:
            half = tf.matmul(tf.cast(features, tf.bfloat16), tf.cast(self.kernel, tf.bfloat16))
            return {"scores": tf.nn.softmax(tf.cast(half, tf.float32))}

    return Net()


def make(kind: str, seed: int) -> tuple[Any, Any]:
    """The model, and what must be kept alive with it."""
    if kind in ("keras", "tf_keras"):
        return keras_model(kind, seed), None
    net = module(seed)
    return (net, None) if kind == "module" else (net.__call__.get_concrete_function(), net)


def main(kind: str, folder: Path) -> dict[str, Any]:
    """Converts, checks, compares."""
    model, keep = make(kind, 0)
    other, keep_other = make(kind, 1)
    good, wrong = folder / "good.tflite", folder / "wrong.tflite"
    result = mpexport.convert(model, "tflite", good)
    mpexport.convert(other, "tflite", wrong, verify=False)
    report = mpexport.check(model)
    compared = mpexport.compare(model, [good, wrong])
    try:
        mpexport.assert_parity(model, good, wrong)
        failure = ""
    except AssertionError as e:
        failure = str(e)
    del keep, keep_other
    return {
        "verified": [[row.cause for row in p.rows] for p in result.files[0].parity],
        "is_16_bit": report.is_16_bit,
        "signatures": [str(s) for s in report.signatures],
        "compared": [c.verdict.value for c in compared],
        "failure": failure,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
