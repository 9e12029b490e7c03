"""Every function of ``keras.activations``, between two Dense layers.

A row without arguments goes through an Activation layer by its name, as a file keeps it; one with
arguments is called. What follows ``-`` tells rows of one function apart.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.conformance.case import Build, Case

ABSENT = {
    "deserialize": "makes an activation of a configuration",
    "get": "finds an activation by name",
    "serialize": "makes a configuration of an activation",
}
_SHAPE = (4, 8)


def _activation(name: str, **kwargs: Any) -> Case:
    function = name.partition("-")[0]

    def build(b: Build) -> Any:
        keras = b.keras
        # Values of standard deviation 2.5, so that the bends at 0.5, 1, 3 and 6 are all passed.
        wide = keras.initializers.Orthogonal(gain=2.5, seed=1)
        x = keras.Input(_SHAPE, name="x")
        y = keras.layers.Dense(_SHAPE[-1], kernel_initializer=wide)(x)
        if kwargs or function == "glu":  # an Activation layer believes that glu keeps the shape
            y = getattr(keras.activations, function)(y, **kwargs)
        else:
            y = keras.layers.Activation(function)(y)
        return keras.Model(x, keras.layers.Dense(3)(y))

    return Case(f"activations/{name}", build)


_FAST = {"activations/gelu-exact", "activations/celu", "activations/silu"}

_ROWS = [
    _activation("celu"),
    _activation("celu-alpha", alpha=0.5),
    _activation("elu"),
    _activation("elu-alpha", alpha=0.5),
    _activation("exponential"),
    _activation("gelu"),
    _activation("gelu-exact", approximate=False),
    _activation("gelu-tanh", approximate=True),
    _activation("glu"),
    _activation("glu-axis", axis=1),
    _activation("hard_shrink"),
    _activation("hard_shrink-threshold", threshold=1.3),
    _activation("hard_sigmoid"),
    _activation("hard_silu"),
    _activation("hard_tanh"),
    _activation("leaky_relu"),
    _activation("leaky_relu-slope", negative_slope=0.1),
    _activation("linear"),
    _activation("log_sigmoid"),
    _activation("log_softmax"),
    _activation("log_softmax-axis", axis=1),
    _activation("mish"),
    _activation("relu"),
    _activation("relu-all", negative_slope=0.1, max_value=3.0, threshold=0.5),
    _activation("relu6"),
    _activation("selu"),
    _activation("sigmoid"),
    _activation("silu"),
    _activation("soft_shrink"),
    _activation("soft_shrink-threshold", threshold=1.3),
    _activation("softmax"),
    _activation("softmax-axis", axis=1),
    _activation("softplus"),
    _activation("softsign"),
    _activation("sparse_plus"),
    _activation("sparse_sigmoid"),
    # Keras counts in the type it computes in, and TensorFlow has no Range for float16.
    dataclasses.replace(_activation("sparsemax"), policies=("mixed_bfloat16",)),
    _activation("squareplus"),
    _activation("squareplus-b", b=2),
    _activation("tanh"),
    _activation("tanh_shrink"),
    _activation("threshold", threshold=0.5, default_value=-1.0),
]

CASES = [dataclasses.replace(c, fast=c.name in _FAST) for c in _ROWS]
