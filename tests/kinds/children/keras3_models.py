"""The models that `keras3` builds and saves, one for each kind of trained model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras import layers

# --- convolutions and dense layers ----------------------------------------------------------------


def image_classifier() -> keras.Model:
    x = image = layers.Input((12, 12, 3), name="image")
    x = layers.BatchNormalization()(layers.Conv2D(16, 3, strides=2, use_bias=False)(x))
    x = layers.ReLU()(x)
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(96, 3)(x))
    return keras.Model(image, layers.Dense(5, dtype="float32", name="scores")(x))


def depthwise() -> keras.Model:
    x = image = layers.Input((9, 9, 4), name="image")
    x = layers.BatchNormalization()(layers.DepthwiseConv2D(3, padding="same")(x))
    x = layers.BatchNormalization()(layers.Conv2D(4, 1, activation="relu6")(x))
    return keras.Model(image, layers.Dense(2)(layers.Flatten()(x)))


def created_in_another_order() -> keras.Model:
    last, first = layers.Dense(6, name="last"), layers.Dense(6, name="first")
    last.build((None, 6))
    x = layers.Input((6,), name="x")
    return keras.Model(x, last(keras.ops.tanh(first(x))))


def one_half_layer() -> keras.Model:
    x = layers.Input((6,), name="x")
    hidden = layers.Dense(8, "relu", dtype="float16", name="hidden")(layers.Dense(8)(x))
    return keras.Model(x, layers.Dense(3)(hidden))


def one_half_layer_twin() -> keras.Model:
    x = layers.Input((6,), name="x")
    hidden = layers.Dense(8, "relu", name="hidden")(layers.Dense(8)(x))
    return keras.Model(x, layers.Dense(3)(hidden))


def half_input() -> keras.Model:
    x = layers.Input((6,), dtype="float16", name="x")
    return keras.Model(x, layers.Dense(3)(x))


def half_input_twin() -> keras.Model:
    x = layers.Input((6,), name="x")
    return keras.Model(x, layers.Dense(3)(x))


class ThereAndBack(layers.Layer):
    """Casts to float16 and back, whatever the policy."""

    def call(self, x: Any) -> Any:
        return keras.ops.cast(keras.ops.cast(x, "float16"), self.compute_dtype)


def casts() -> keras.Model:
    x = image = layers.Input((8, 8, 1), name="image")
    x = layers.Conv2D(4, 3)(layers.Reshape((8, 8, 1))(x))
    x = layers.Dense(6)(ThereAndBack()(layers.Flatten()(x)))
    return keras.Model(image, layers.Dense(4, dtype="float32")(x))


def casts_twin() -> keras.Model:
    x = image = layers.Input((8, 8, 1), name="image")
    x = layers.Conv2D(4, 3)(layers.Reshape((8, 8, 1))(x))
    x = layers.Dense(6)(layers.Activation("linear")(layers.Flatten()(x)))
    return keras.Model(image, layers.Dense(4)(x))


def skip_from_the_input() -> keras.Model:
    signal = layers.Input((16, 2), name="signal")
    x = layers.MaxPooling1D()(layers.Conv1D(4, 3, padding="same", activation="relu")(signal))
    x = layers.UpSampling1D()(layers.Conv1D(4, 3, padding="same")(x))
    x = layers.Concatenate()([x, signal])
    return keras.Model(signal, layers.Conv1D(1, 1)(x))


class StableSoftmax(layers.Layer):
    """A softmax in float32 within a half model."""

    def call(self, x: Any) -> Any:
        wide = keras.ops.cast(x, "float32")
        return keras.ops.cast(keras.ops.softmax(wide), self.compute_dtype)


def softmax_in_float32() -> keras.Model:
    x = layers.Input((8,), name="x")
    hidden = StableSoftmax()(layers.Dense(64, name="logits")(x))
    return keras.Model(x, layers.Dense(24, name="head")(hidden))


def upsampling() -> keras.Model:
    x = image = layers.Input((6, 6, 3), name="image")
    x = layers.UpSampling2D(interpolation="nearest")(layers.Conv2D(16, 3)(x))
    return keras.Model(image, layers.Conv2D(8, 3)(x))


def normalized_depthwise() -> keras.Model:
    x = image = layers.Input((8, 8, 8), name="image")
    y = layers.LayerNormalization()(layers.DepthwiseConv2D(3, padding="same")(x))
    x = layers.Add()([x, layers.Dense(8)(layers.Dense(16, "relu")(y))])
    return keras.Model(image, layers.Dense(3)(layers.GlobalAveragePooling2D()(x)))


def convolutions() -> keras.Model:
    line = layers.Input((9, 2), name="line")
    image = layers.Input((9, 9, 2), name="image")
    volume = layers.Input((5, 5, 5, 2), name="volume")
    outputs = [layers.Conv1D(4, 3)(line), layers.Conv2D(4, 3)(image), layers.Conv3D(4, 3)(volume)]
    return keras.Model([line, image, volume], outputs)


def gelu() -> keras.Model:
    x = layers.Input((8,), name="x")
    return keras.Model(x, layers.Dense(4)(layers.Dense(16, "gelu")(x)))


def three_heads() -> keras.Model:
    x = layers.Input((6,), name="x")
    scores = layers.Dense(5)(layers.Dense(8, "relu")(x))
    wide = layers.Activation("softmax", dtype="float32")(scores)
    return keras.Model(x, [wide, scores, keras.ops.argmax(wide, axis=-1)])


# --- hard-coded and nested element types ----------------------------------------------------------


class AddsPositions(layers.Layer):
    """Adds what an Embedding and a constant of float32 give to a half tensor."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = layers.Embedding(4, 6, dtype="float32")

    def call(self, x: Any) -> Any:
        offset = tf.constant(0.5, tf.float32)
        rows = self.table(tf.range(4)) + offset
        return x + keras.ops.cast(rows, x.dtype)


def added_positions() -> keras.Model:
    x = layers.Input((4, 6), name="x")
    return keras.Model(x, layers.Dense(3)(AddsPositions()(layers.Dense(6)(x))))


def preprocessing() -> keras.Model:
    x = pixels = layers.Input((6,), name="pixels")
    x = layers.Rescaling(1 / 256)(x)
    x = layers.Normalization(mean=[0.5] * 6, variance=[0.0625] * 6)(x)
    return keras.Model(pixels, layers.Dense(3)(x))


def large_variance() -> keras.Model:
    x = layers.Input((6,), name="x")
    hidden = layers.Normalization(mean=[128.0] * 6, variance=[1e6] * 6)(x)
    return keras.Model(x, layers.Dense(3)(hidden))


class MeanPooling(layers.Layer):
    """A generalized mean, with constants that are made in the policy's element type."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shift = tf.constant(0.25, self.compute_dtype)
        self.power = tf.constant(3, self.compute_dtype)

    def call(self, x: Any) -> Any:
        lowest = tf.reduce_min(x, axis=[1, 2], keepdims=True)
        mean = tf.reduce_mean((x - lowest + self.shift) ** self.power, axis=[1, 2])
        return mean ** (1 / self.power) + lowest[:, 0, 0] - self.shift


def pooling() -> keras.Model:
    x = image = layers.Input((5, 5, 3), name="image")
    return keras.Model(image, layers.Dense(2)(MeanPooling()(layers.Conv2D(6, 3)(x))))


class Quantizer:
    """No layer, but with an element type of its own."""

    def __init__(self, dtype: str) -> None:
        self.scale = tf.Variable(tf.constant(8, dtype), trainable=False)

    def __call__(self, x: Any) -> Any:
        return tf.clip_by_value(x, -self.scale, self.scale)


class Nested(layers.Layer):
    """Layers in a list in a dict, and an object that is none."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.parts = {"inner": [layers.Dense(6, name="a"), layers.Dense(6, name="b")]}
        self.quantizer = Quantizer(self.compute_dtype)

    def build(self, shape: Any) -> None:
        for part in self.parts["inner"]:
            part.build(shape)

    def call(self, x: Any) -> Any:
        for part in self.parts["inner"]:
            x = self.quantizer(part(x))
        return x


def nested() -> keras.Model:
    x = layers.Input((6,), name="x")
    return keras.Model(x, layers.Dense(2)(Nested()(x)))


class Pruned(layers.Wrapper):
    """Multiplies the half kernel of a Dense with a mask of float32."""

    def build(self, shape: Any) -> None:
        super().build(shape)
        self.mask = self.add_weight(
            shape=self.layer.kernel.shape, dtype="float32", trainable=False, name="mask"
        )

    def call(self, x: Any) -> Any:
        kernel = tf.cast(tf.convert_to_tensor(self.layer.kernel), tf.float32) * self.mask
        y = keras.ops.matmul(x, tf.cast(kernel, self.compute_dtype))
        return y + keras.ops.cast(self.layer.bias, self.compute_dtype)


def pruned() -> keras.Model:
    x = layers.Input((6,), name="x")
    return keras.Model(x, Pruned(layers.Dense(4))(x))


# --- recurrent layers -----------------------------------------------------------------------------


def recurrent(layer: Callable[[], layers.Layer], batch: int | None = None) -> keras.Model:
    x = layers.Input((5, 4), batch_size=batch, name="x")
    return keras.Model(x, layers.Dense(2)(layer()(x)))


def normalized_lstm(batch: int | None = None) -> keras.Model:
    x = series = layers.Input((5, 4), batch_size=batch, name="x")
    x = layers.Normalization(mean=[0.0] * 4, variance=[1.0] * 4)(x)
    x = layers.LSTM(24, dropout=0.1, recurrent_dropout=0.1)(x)
    return keras.Model(series, layers.Dense(3, "softmax", dtype="float32")(x))


def both_ways() -> keras.Model:
    x = series = layers.Input((8, 4), batch_size=2, name="x")
    x = layers.Bidirectional(layers.LSTM(24))(layers.Conv1D(6, 3)(x))
    return keras.Model(series, layers.Dense(2)(x))


def encoder() -> keras.Model:
    x = layers.Input((5, 4), batch_size=1, name="x")
    _, h, c = layers.LSTM(6, return_state=True)(x)
    return keras.Model(x, [h, c])


def decoder() -> keras.Model:
    x = layers.Input((5, 4), batch_size=1, name="x")
    h, c = (layers.Input((6,), batch_size=1, name=name) for name in ("h", "c"))
    y, h_1, c_1 = layers.LSTM(6, return_sequences=True, return_state=True)(x, initial_state=[h, c])
    return keras.Model([x, h, c], [layers.Dense(3)(y), h_1, c_1])


def stateful() -> keras.Model:
    x = layers.Input((3, 4), batch_size=1, name="x")
    return keras.Model(x, layers.Dense(2)(layers.GRU(5, stateful=True)(x)))


# --- identifiers and text -------------------------------------------------------------------------


def ids_as_floats() -> keras.Model:
    ids = layers.Input((4,), name="ids")
    x = layers.Embedding(5000, 3)(layers.Reshape((2, 2))(ids))
    return keras.Model(ids, layers.Flatten()(x))
