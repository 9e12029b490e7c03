"""Where 16 bits come from: policies, single layers, literal casts, inputs, variables, states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.conformance.case import Build, Case, integers, normal

_PURE = ("float16", "bfloat16")


def _case(name: str, build: Callable[[Build], Any], **options: Any) -> Case:
    return Case(f"dtypes/{name}", build, **options)


def _cnn(b: Build) -> Any:
    keras, k = b.keras, b.keras.layers
    x = keras.Input((8, 8, 3), name="x")
    y = k.ReLU()(k.BatchNormalization()(k.Conv2D(4, 3)(x)))
    return keras.Model(x, k.Dense(3, activation="softmax")(k.Flatten()(y)))


def _transformer(b: Build) -> Any:
    keras, k = b.keras, b.keras.layers
    x = keras.Input((6, 8), name="x")
    y = k.LayerNormalization()(x + k.MultiHeadAttention(2, 4)(x, x))
    return keras.Model(x, k.Dense(3)(y))


def _rnn(b: Build) -> Any:
    keras, k = b.keras, b.keras.layers
    x = keras.Input((6, 4), name="x")
    # The default, orthogonal, takes a QR decomposition, which TensorFlow lacks in bfloat16.
    plain = {"recurrent_initializer": "glorot_uniform"}
    y, *states = k.LSTM(5, return_sequences=True, return_state=True, **plain)(x)
    return keras.Model(x, [k.Dense(3)(k.GRU(4, **plain)(y)), *states])


def _one_half_layer(b: Build) -> Any:
    keras, k = b.keras, b.keras.layers
    x = keras.Input((6,), name="x", dtype="float32")
    y = k.Dense(8, activation="relu", dtype="float32")(x)
    y = k.Dense(8, activation="tanh", dtype=b.policy)(y)
    return keras.Model(x, k.Dense(3, dtype="float32")(y))


def _one_float_layer(b: Build) -> Any:
    keras, k = b.keras, b.keras.layers
    x = keras.Input((6,), name="x")
    y = k.Dense(8, activation="relu")(x)
    y = k.LayerNormalization(dtype="float32")(y)
    return keras.Model(x, k.Dense(3)(y))


def _policy_map(b: Build) -> Any:
    keras, k = b.keras, b.keras.layers
    policies = keras.dtype_policies.DTypePolicyMap(default_policy="float32")
    policies["attention"] = keras.DTypePolicy(b.policy)
    x = keras.Input((6, 8), name="x")
    attention = k.MultiHeadAttention(2, 4, dtype=policies, name="attention")
    return keras.Model(x, k.Dense(3, dtype="float32")(attention(x, x)))


def _half_inside(b: Build) -> Any:
    keras, k = b.keras, b.keras.layers
    inner = keras.Sequential(
        [keras.Input((6,)), k.Dense(8, activation="relu"), k.Dense(5)], name="inner"
    )
    x = keras.Input((6,), name="x", dtype="float32")
    y = inner(k.Dense(6, dtype="float32")(x))
    return keras.Model(x, k.Dense(3, dtype="float32")(y))


def _frozen_inside(b: Build) -> Any:
    keras, k = b.keras, b.keras.layers
    inner = keras.Sequential([keras.Input((6,)), k.Dense(8), k.BatchNormalization()])
    inner.trainable = False
    x = keras.Input((6,), name="x")
    return keras.Model(x, k.Dense(3, dtype="float32")(inner(x)))


def _custom(body: Callable[[Build, Any, Any], Any]) -> Callable[[Build], Any]:
    """A layer of code that names the 16-bit type itself."""

    def build(b: Build) -> Any:
        import tensorflow as tf

        keras, half = b.keras, tf.as_dtype(b.half)

        class Custom(keras.layers.Layer):
            def call(self, x: Any) -> Any:
                return body(b, x, half)

        x = keras.Input((6,), name="x")
        y = Custom()(keras.layers.Dense(8)(x))
        return keras.Model(x, keras.layers.Dense(3, dtype="float32")(y))

    return build


def _cast_literally(b: Build, x: Any, half: Any) -> Any:
    import tensorflow as tf

    y = tf.cast(x, half)
    return tf.cast(tf.nn.relu(y * tf.constant(1.5, half)) + tf.cast(0.1, half), tf.float32)


def _sentinel(b: Build, x: Any, half: Any) -> Any:
    """Masked by the lowest number of the type, as code that cares for float16 has it."""
    import tensorflow as tf

    y = tf.cast(x, half)
    return tf.nn.softmax(tf.where(y > 0, y, tf.constant(half.min, half)))


def _infinity(b: Build, x: Any, half: Any) -> Any:
    import tensorflow as tf

    y = tf.cast(x, half)
    # The first column stays, so that no row is all masked.
    keep = tf.concat([tf.ones_like(y[:, :1], tf.bool), y[:, 1:] > 0], 1)
    return tf.nn.softmax(tf.where(keep, y, tf.constant(-np.inf, half)))


def _epsilon(b: Build, x: Any, half: Any) -> Any:
    """1e-3 is kept by float16; normalizing by a root of squares."""
    import tensorflow as tf

    y = tf.cast(x, half)
    return y * tf.math.rsqrt(tf.reduce_mean(y * y, -1, keepdims=True) + tf.constant(1e-3, half))


def _bit_reuse(b: Build, x: Any, half: Any) -> Any:
    """There and back through several types."""
    import tensorflow as tf

    y = tf.cast(tf.cast(tf.cast(x, half), tf.float64), half)
    return tf.cast(tf.round(tf.cast(y, tf.float32) * 4), half) / tf.constant(4, half)


def _lambda(b: Build) -> Any:
    keras, k = b.keras, b.keras.layers
    x = keras.Input((6,), name="x")
    y = k.Lambda(lambda t: t * t + 1, output_shape=(8,))(k.Dense(8)(x))
    return keras.Model(x, k.Dense(3)(y))


def _half_input(b: Build) -> Any:
    keras, k = b.keras, b.keras.layers
    x = keras.Input((6,), name="x", dtype=b.half)
    return keras.Model(x, k.Dense(3)(k.Dense(8, activation="relu")(x)))


def _ids_through_half(b: Build) -> Any:
    """Ids that arrive as the compute type: exact in float16 up to 2048."""
    keras, k = b.keras, b.keras.layers
    ids = keras.Input((4,), dtype="int32", name="ids")
    table = k.Embedding(200, 6, embeddings_initializer="normal")
    y = table(keras.ops.cast(keras.ops.cast(ids, b.half), "int32"))
    return keras.Model(ids, k.Dense(3)(y))


def _mixed_outputs(b: Build) -> Any:
    keras, k = b.keras, b.keras.layers
    x = keras.Input((6,), name="x")
    y = k.Dense(8, activation="relu")(x)
    logits = k.Dense(5, name="logits")(y)
    best = keras.ops.argmax(logits, -1)
    return keras.Model(
        x, {"half": logits, "float": k.Dense(2, dtype="float32")(y), "best": best,
            "sure": keras.ops.max(logits, -1) > 0.5}
    )  # fmt: skip


def _autocast_off(b: Build) -> Any:
    keras = b.keras

    class Plain(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__(autocast=False)
            self.inner = keras.layers.Dense(8)

        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(shape=(8,), initializer="uniform", name="scale")

        def call(self, x: Any) -> Any:
            return self.inner(x) * keras.ops.cast(self.scale, self.compute_dtype)

    x = keras.Input((6,), name="x")
    return keras.Model(x, keras.layers.Dense(3)(Plain()(x)))


def _custom_half(name: str, body: Callable[[Build, Any, Any], Any], **options: Any) -> Case:
    return _case(name, _custom(body), source="savedmodel", **options)


CASES = [
    _case("pure-cnn", _cnn, policies=_PURE),
    _case("pure-transformer", _transformer, policies=_PURE),
    _case("pure-rnn-state", _rnn, policies=_PURE),
    _case("mixed-rnn-state", _rnn),
    _case("one-half-layer", _one_half_layer, fast=True),
    _case("one-float-layer", _one_float_layer),
    _case("policy-map", _policy_map),
    _case("half-inside-float", _half_inside),
    _case("frozen-inside", _frozen_inside),
    _custom_half("literal-cast", _cast_literally),
    _custom_half("lowest-as-mask", _sentinel),
    _custom_half("infinity-as-mask", _infinity),
    _custom_half("epsilon", _epsilon),
    _custom_half("there-and-back", _bit_reuse),
    _case("lambda", _lambda, source="savedmodel"),
    _case("half-input", _half_input, feeds={"x": normal(6)}),
    _case("ids-through-half", _ids_through_half, feeds={"ids": integers(0, 200, 4)}),
    _case("outputs-of-all-types", _mixed_outputs),
    _case("autocast-off", _autocast_off, source="savedmodel"),
]
