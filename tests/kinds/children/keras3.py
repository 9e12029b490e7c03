"""Child: ``python keras3.py FOLDER``: small Keras 3 models, one for each kind of trained model.

For ``NAME`` there is ``NAME`` (a SavedModel) or ``NAME.keras``, ``NAME.inputs.npz`` and
``NAME.expected.npz``: the outputs of the same architecture rebuilt by Keras under float32, with the
same weights. Knows nothing of mpexport.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

MIXED = "mixed_float16"
RANDOM = np.random.default_rng(0)


def as_policy(policy: str, build: Callable[[], keras.Model]) -> keras.Model:
    """The model built under a policy, with weights that come from a seed."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(7)
    keras.mixed_precision.set_global_policy(policy)
    model = build()
    keras.mixed_precision.set_global_policy("float32")
    return model


def spread(model: keras.Model) -> None:
    """Weights as after a training: no bias of 0, no variance of 1."""
    random = np.random.default_rng(1)
    for variable in model.variables:
        if "seed" in variable.path or not np.issubdtype(np.asarray(variable).dtype, np.floating):
            continue
        if any(part in variable.path for part in ("bias", "beta", "moving_mean")):
            variable.assign(random.normal(0, 0.3, variable.shape))
        elif any(part in variable.path for part in ("gamma", "moving_variance")):
            variable.assign(random.uniform(0.5, 1.5, variable.shape))


def save(
    folder: Path,
    name: str,
    build: Callable[[], keras.Model],
    inputs: dict[str, np.ndarray],
    policy: str = MIXED,
    kind: str = "savedmodel",
    prepare: Callable[[keras.Model], None] = spread,
    twin: Callable[[], keras.Model] | None = None,
) -> None:
    """Builds both, gives the float32 one the weights of the other, writes all three files."""
    model = as_policy(policy, build)
    prepare(model)
    single = as_policy("float32", twin or build)
    assert [v.path for v in single.variables] == [v.path for v in model.variables], name
    for ours, theirs in zip(single.variables, model.variables, strict=True):
        ours.assign(np.asarray(theirs).astype(ours.dtype))
    given = [inputs[i.name] for i in model.inputs]
    outputs = single(given if len(given) > 1 else given[0], training=False)
    write(folder, name, inputs, outputs if isinstance(outputs, (list, tuple)) else [outputs])
    store(folder, name, model, kind)


def store(folder: Path, name: str, model: keras.Model, kind: str) -> None:
    """Writes the source itself."""
    if kind == "file":
        model.save(folder / f"{name}.keras")
    else:
        model.export(str(folder / name), verbose=False)


def write(folder: Path, name: str, inputs: dict[str, np.ndarray], outputs: Any) -> None:
    """Writes what goes in and what has to come out."""
    if not isinstance(outputs, dict):
        outputs = {f"output_{i}": value for i, value in enumerate(outputs)}
    np.savez(folder / f"{name}.inputs.npz", **inputs)
    np.savez(folder / f"{name}.expected.npz", **{k: np.asarray(v) for k, v in outputs.items()})


def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    """Inputs."""
    return RANDOM.normal(0, scale, shape).astype(np.float32)


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


def prune(model: keras.Model) -> None:
    spread(model)
    mask = next(v for v in model.variables if v.path.endswith("mask"))
    mask.assign(np.random.default_rng(2).integers(0, 2, mask.shape))


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


def save_bfloat16_lstm(folder: Path, inputs: dict[str, np.ndarray]) -> None:
    """A file in which a bfloat16 layer has an initializer that TensorFlow lacks in bfloat16."""
    made = {"recurrent_initializer": keras.initializers.RandomNormal(0, 0.25)}
    save(
        folder,
        "bfloat16_lstm",
        lambda: recurrent(lambda: layers.LSTM(6, dtype="bfloat16", **made), 2),
        inputs,
        "float32",
        "file",
        twin=lambda: recurrent(lambda: layers.LSTM(6, **made), 2),
    )
    path = folder / "bfloat16_lstm.keras"
    with zipfile.ZipFile(path) as old:
        content = {name: old.read(name) for name in old.namelist()}
    config = json.loads(content["config.json"])
    (lstm,) = (x for x in config["config"]["layers"] if x["class_name"] == "LSTM")
    orthogonal = keras.saving.serialize_keras_object(keras.initializers.Orthogonal())
    lstm["config"]["recurrent_initializer"] = orthogonal
    content["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as new:
        for name, data in content.items():
            new.writestr(name, data)


def stateful() -> keras.Model:
    x = layers.Input((3, 4), batch_size=1, name="x")
    return keras.Model(x, layers.Dense(2)(layers.GRU(5, stateful=True)(x)))


# --- identifiers and text -------------------------------------------------------------------------


def ids_as_floats() -> keras.Model:
    ids = layers.Input((4,), name="ids")
    x = layers.Embedding(5000, 3)(layers.Reshape((2, 2))(ids))
    return keras.Model(ids, layers.Flatten()(x))


def save_text(folder: Path) -> None:
    """A text model as a whole, and its numeric part."""
    keras.mixed_precision.set_global_policy(MIXED)
    text = layers.TextVectorization(
        output_sequence_length=4, vocabulary=["cat", "dog", "runs", "sleeps"]
    )
    ids = layers.Input((4,), dtype="int64", name="ids")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(6, 8)(ids))
    numeric = keras.Model(ids, layers.Dense(2, dtype="float32")(x))
    sentence = layers.Input((1,), dtype="string", name="sentence")
    whole = keras.Model(sentence, numeric(text(sentence)))
    keras.mixed_precision.set_global_policy("float32")
    whole.export(str(folder / "text"), verbose=False)
    sentences = ["The cat sleeps!", "dog runs", "unheard-of words"]
    rows = np.asarray(text(tf.constant(sentences)[:, None]))
    table, kernel, bias = (np.asarray(v, np.float64) for v in numeric.weights)
    expected = table[rows].mean(axis=1) @ kernel + bias
    store(folder, "numeric_part", numeric, "savedmodel")
    write(folder, "numeric_part", {"ids": rows}, [expected])


def save_half_on_the_same_object(folder: Path) -> None:
    """A mixed model after someone has set the global policy and its weights again."""
    model = as_policy(MIXED, image_classifier)
    spread(model)
    keras.mixed_precision.set_global_policy("float32")
    model.set_weights(model.get_weights())
    model.save(folder / "policy_set_afterwards.keras")


def main(folder: Path) -> None:
    """Writes them all."""
    image = {"image": normal(3, 12, 12, 3)}
    for policy in (MIXED, "mixed_bfloat16", "float16"):
        save(folder, f"classifier_{policy}", image_classifier, image, policy, "file")
    save_half_on_the_same_object(folder)
    save(folder, "depthwise", depthwise, {"image": normal(3, 9, 9, 4)}, kind="file")
    x6 = {"x": normal(3, 6)}
    save(folder, "another_order", created_in_another_order, x6)
    save(folder, "one_half_layer", one_half_layer, x6, "float32", "file", twin=one_half_layer_twin)
    exact = {"x": x6["x"].astype(np.float16).astype(np.float32)}
    save(folder, "half_input", half_input, exact, "float32", "file", twin=half_input_twin)
    save(folder, "casts", casts, {"image": normal(3, 8, 8, 1)}, twin=casts_twin)
    save(folder, "skip", skip_from_the_input, {"signal": normal(3, 16, 2)}, kind="file")
    save(folder, "stable_softmax", softmax_in_float32, {"x": normal(3, 8)})
    save(folder, "upsampling", upsampling, {"image": normal(2, 6, 6, 3)}, kind="file")
    save(folder, "layer_norm", normalized_depthwise, {"image": normal(3, 8, 8, 8)}, kind="file")
    inputs = {
        "line": normal(2, 9, 2),
        "image": normal(2, 9, 9, 2),
        "volume": normal(2, 5, 5, 5, 2),
    }
    save(folder, "convolutions", convolutions, inputs, "mixed_bfloat16", "file")
    save(folder, "gelu", gelu, {"x": normal(3, 8)}, kind="file")
    save(folder, "three_heads", three_heads, x6)
    save(folder, "positions", added_positions, {"x": normal(2, 4, 6)})
    pixels = {"pixels": RANDOM.integers(0, 256, (3, 6)).astype(np.float32)}
    save(folder, "preprocessing", preprocessing, pixels, kind="file")
    save(folder, "large_variance", large_variance, {"x": pixels["pixels"]}, kind="file")
    save(folder, "pooling", pooling, {"image": normal(2, 5, 5, 3)})
    save(folder, "nested", nested, x6)
    save(folder, "pruned", pruned, x6, prepare=prune)

    series = {"x": normal(2, 5, 4)}
    save(folder, "lstm", normalized_lstm, series, kind="file")
    save(folder, "gru", lambda: recurrent(lambda: layers.GRU(6)), series, kind="file")
    save(folder, "lstm_fixed", lambda: normalized_lstm(2), series, kind="file")
    save(folder, "gru_fixed", lambda: recurrent(lambda: layers.GRU(32), 2), series, kind="file")
    save(folder, "both_ways", both_ways, {"x": normal(2, 8, 4)}, kind="file")
    one = normal(1, 5, 4)
    save(folder, "encoder", encoder, {"x": one})
    save(folder, "decoder", decoder, {"x": one, "h": normal(1, 6), "c": normal(1, 6)})
    save_bfloat16_lstm(folder, series)
    save(folder, "stateful", stateful, {"x": normal(1, 3, 4)}, kind="file")

    ids = np.array([[1, 2049, 2909, 4001], [4097, 4999, 7, 2051]], np.float32)
    for policy in (MIXED, "mixed_bfloat16"):
        save(folder, f"ids_{policy}", ids_as_floats, {"ids": ids}, policy, "file")
    save_text(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
