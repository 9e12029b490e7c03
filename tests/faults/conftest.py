"""Small models for the fault tests, each made by a child process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_MAKE = """
import sys, os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
out = sys.argv[1]
keras.utils.set_random_seed(0)
def small(**kw):
    i = keras.Input((4,), name="x")
    h = keras.layers.Dense(8, activation="relu", dtype="mixed_float16")(i)
    return keras.Model(i, keras.layers.Dense(3, name="y", dtype="mixed_float16")(h), **kw)
m = small()
m.save(f"{out}/m.keras"); m.save(f"{out}/m.h5"); m.export(f"{out}/sm", verbose=False)
m.save_weights(f"{out}/w.weights.h5")
i = keras.Input((4,))
mark = keras.layers.Lambda(lambda t: (open(f"{out}/marker", "w"), t)[1])
keras.Model(i, mark(i)).save(f"{out}/l.keras")
"""

_MAKE_KERAS2 = """
import sys, os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tf_keras, tensorflow as tf
out = sys.argv[1]
def opened(t):
    open(out + "/marker", "w").close()
    return t
i = tf_keras.Input((4,))
tf_keras.Model(i, tf_keras.layers.Lambda(opened)(i)).save(f"{out}/l2.h5")
os.path.exists(out + "/marker") and os.remove(out + "/marker")
class Two(tf.Module):
    def __init__(self):
        self.v = tf.Variable(2.0)
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float16, "a")])
    def double(self, a):
        return {"d": tf.cast(a, tf.float32) * self.v}
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float16, "a")])
    def triple(self, a):
        return {"t": a * 3}
t = Two()
tf.saved_model.save(t, f"{out}/two", signatures={"double": t.double, "triple": t.triple})
tf.saved_model.save(t, f"{out}/none")
"""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models")
    for script in (_MAKE, _MAKE_KERAS2):
        subprocess.run([sys.executable, "-c", script, out], check=True, capture_output=True)
    assert not (out / "marker").exists()
    return out
