"""Models of tf-keras (Keras 2): layers whose graphs differ from those of Keras 3, all sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.conformance.case import Build, Case, Feed, integers, normal

_STEPS, _IMAGE = (6, 4), (9, 7, 3)
_WORDS = ["on", "and", "off"]
_TEXT = "works on strings"


def _words(*shape: int) -> Feed:
    return lambda rng, batch: rng.choice([*_WORDS, "other"], (batch, *shape)).astype("S8")


def _case(name: str, build: Callable[[Build], Any], **options: Any) -> Case:
    return Case(f"tf_keras/{name}", build, keras="tf_keras", **options)


def _row(
    name: str,
    shape: tuple[int | None, ...],
    make: Callable[[Any], Any],
    **options: Any,
) -> Case:
    """The layers of ``make`` between layers that compute in half."""

    def build(b: Build) -> Any:
        k = b.keras.layers
        x = b.keras.Input(shape, name="x")
        y = k.Dense(4)(x)
        made = make(k)
        for layer in made if isinstance(made, list) else [made]:
            y = layer(y)
        outputs = [k.Dense(3, name=f"head_{i}")(t) for i, t in enumerate(_tensors(y))]
        return b.keras.Model(x, outputs if len(outputs) > 1 else outputs[0])

    return _case(name, build, **options)


def _tensors(y: Any) -> list[Any]:
    return list(y) if isinstance(y, (list, tuple)) else [y]


def _masked(b: Build) -> Any:
    k = b.keras.layers
    ids = b.keras.Input((7,), dtype="int32", name="ids")
    y = k.Embedding(20, 6, mask_zero=True, embeddings_initializer="normal")(ids)
    return b.keras.Model(ids, k.Dense(3)(k.LSTM(5)(y)))


def _stacked(b: Build) -> Any:
    k = b.keras.layers
    layers = [k.InputLayer((None, 4), name="x"), k.LSTM(5, return_sequences=True), k.GRU(6),
              k.Dense(3, activation="softmax", dtype="float32")]  # fmt: skip
    return b.keras.Sequential(layers)


def _cells(b: Build) -> Any:
    k = b.keras.layers
    x = b.keras.Input(_STEPS, name="x")
    y = k.RNN([k.LSTMCell(5), k.GRUCell(4)], return_sequences=True)(x)
    return b.keras.Model(x, k.Dense(3)(y))


def _attention(kind: str, **arguments: Any) -> Callable[[Build], Any]:
    def build(b: Build) -> Any:
        k = b.keras.layers
        x = b.keras.Input(_STEPS, name="x")
        query, value = k.Dense(4)(x), k.Dense(4)(x)
        if kind == "MultiHeadAttention":
            y = k.MultiHeadAttention(2, 3)(query, value, **arguments)
        else:
            y = getattr(k, kind)(**arguments)([query, value])
        return b.keras.Model(x, k.Dense(3)(y))

    return build


def _adapted(kind: str, data: Any, **arguments: Any) -> Callable[[Build], Any]:
    def build(b: Build) -> Any:
        k = b.keras.layers
        layer = getattr(k, kind)(**arguments)
        layer.adapt(data)
        x = b.keras.Input((4,), name="x")
        return b.keras.Model(x, k.Dense(3)(layer(x)))

    return build


def _ids(kind: str, **arguments: Any) -> Callable[[Build], Any]:
    def build(b: Build) -> Any:
        k = b.keras.layers
        ids = b.keras.Input((4,), dtype="int64", name="ids")
        y = getattr(k, kind)(**arguments)(ids)
        if y.dtype.is_integer:
            y = k.Flatten()(k.Embedding(12, 3, embeddings_initializer="normal")(y))
        return b.keras.Model(ids, k.Dense(3)(y))

    return build


def _strings(kind: str, **arguments: Any) -> Callable[[Build], Any]:
    def build(b: Build) -> Any:
        k = b.keras.layers
        words = b.keras.Input(
            (4,) if kind != "TextVectorization" else (1,), dtype="string", name="words"
        )
        ids = getattr(k, kind)(**arguments)(words)
        y = k.Embedding(12, 3, embeddings_initializer="normal")(ids)
        return b.keras.Model(words, k.Dense(3)(k.GlobalAveragePooling1D()(y)))

    return build


def _subclassed(b: Build) -> Any:
    keras = b.keras

    class Gated(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.gate = keras.layers.Dense(6, activation="sigmoid")
            self.value = keras.layers.Dense(6)
            self.head = keras.layers.Dense(3)

        def call(self, inputs: Any, training: Any = None) -> Any:
            y = self.gate(inputs["x"]) * self.value(inputs["z"])
            return {"logits": self.head(y), "size": keras.backend.sum(y, axis=-1)}

    model = Gated()
    example = {"x": np.zeros((1, 5), np.float32), "z": np.zeros((1, 4), np.float32)}
    model(example)
    model._set_save_spec({k: keras.backend.constant(v) for k, v in example.items()})
    return model


def _compiled(b: Build) -> Any:
    keras, k = b.keras, b.keras.layers
    model = keras.Sequential([k.InputLayer((5,), name="x"), k.Dense(6, "relu"), k.Dense(3)])
    optimizer = keras.optimizers.SGD(0.1)
    if b.policy == "mixed_float16":
        optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer)
    model.compile(optimizer, "mse")
    return model


_AUGMENTATION: Mapping[str, tuple[Any, ...]] = {
    "RandomFlip": (), "RandomRotation": (0.2,), "RandomZoom": (0.2,), "RandomContrast": (0.2,),
    "RandomTranslation": (0.2, 0.2), "RandomBrightness": (0.2,), "RandomCrop": (5, 5),
}  # fmt: skip

CASES = [
    _row("LSTM", _STEPS, lambda k: k.LSTM(5)),
    _row("LSTM-sequences", _STEPS, lambda k: k.LSTM(5, return_sequences=True), source="h5"),
    _row("LSTM-state", _STEPS, lambda k: k.LSTM(5, return_state=True)),
    _row("LSTM-open", (None, 4), lambda k: k.LSTM(5), feeds={"x": normal(6, 4)},
         source="savedmodel"),
    _row("LSTM-backwards", _STEPS, lambda k: k.LSTM(5, go_backwards=True)),
    _row("LSTM-plain-gates", _STEPS, lambda k: k.LSTM(5, recurrent_activation="hard_sigmoid")),
    _row("GRU", _STEPS, lambda k: k.GRU(5)),
    _row("GRU-reset-before", _STEPS, lambda k: k.GRU(5, reset_after=False), source="h5"),
    _row("SimpleRNN", _STEPS, lambda k: k.SimpleRNN(5)),
    _row("Bidirectional-LSTM", _STEPS,
         lambda k: k.Bidirectional(k.LSTM(5, return_sequences=True))),
    _row("Bidirectional-GRU-summed", _STEPS,
         lambda k: k.Bidirectional(k.GRU(5), merge_mode="sum"), source="savedmodel"),
    _row("TimeDistributed", (3, 5, 4), lambda k: k.TimeDistributed(k.Conv1D(4, 2))),
    _row("ConvLSTM2D", (3, 6, 5, 2), lambda k: k.ConvLSTM2D(3, 2)),
    _case("LSTM-masked", _masked, feeds={"ids": integers(0, 20, 7)}),
    _case("stacked-RNN", _stacked, feeds={"x": normal(6, 4)}),
    _case("RNN-cells", _cells),
    _case("Attention", _attention("Attention", use_scale=True)),
    _case("Attention-causal", _attention("Attention", score_mode="concat")),
    _case("AdditiveAttention", _attention("AdditiveAttention")),
    _case("MultiHeadAttention", _attention("MultiHeadAttention"), source="savedmodel"),
    _case("MultiHeadAttention-causal", _attention("MultiHeadAttention", use_causal_mask=True)),
    _row("BatchNormalization", _IMAGE,
         lambda k: [k.Conv2D(4, 3), k.BatchNormalization(), k.ReLU()], fast=True),
    _row("BatchNormalization-axis1", _IMAGE, lambda k: k.BatchNormalization(axis=1), source="h5"),
    _row("LayerNormalization", _STEPS, lambda k: k.LayerNormalization(epsilon=1e-6)),
    _row("GroupNormalization", _IMAGE, lambda k: k.GroupNormalization(2)),
    _row("UnitNormalization", _STEPS, lambda k: k.UnitNormalization()),
    _row("Conv2DTranspose", _IMAGE, lambda k: k.Conv2DTranspose(4, 3, strides=2, padding="same")),
    _row("SeparableConv2D", _IMAGE, lambda k: k.SeparableConv2D(5, 3)),
    _row("Conv2D-grouped", (7, 7, 4), lambda k: k.Conv2D(6, 3, groups=2)),
    _row("Conv1D-causal", _STEPS, lambda k: k.Conv1D(5, 3, padding="causal", dilation_rate=2)),
    _row("Resizing", _IMAGE, lambda k: k.Resizing(5, 4)),
    _row("CenterCrop", _IMAGE, lambda k: k.CenterCrop(5, 4)),
    _row("Rescaling", _IMAGE, lambda k: k.Rescaling(1 / 127.5, offset=-1.0)),
    _row("UpSampling2D", _IMAGE, lambda k: k.UpSampling2D(2, interpolation="bilinear")),
    _row("gelu", _STEPS, lambda k: k.Activation("gelu")),
    _row("Dropout", _STEPS, lambda k: [k.Dropout(0.5), k.GaussianNoise(0.3)]),
    *(
        _row(name, (8, 8, 3), lambda k, n=name, a=args: getattr(k, n)(*a))
        for name, args in _AUGMENTATION.items()
    ),
    _case("Normalization", _adapted("Normalization", np.arange(40.0).reshape(10, 4) / 7)),
    # It bins no half, and as a layer of integers doesn't cast what it gets.
    _row("Discretization", (4,), lambda k: [
        k.Activation("linear", dtype="float32"), k.Discretization([-0.5, 0.25, 1.0]),
        k.Embedding(4, 3),
    ]),
    _case("IntegerLookup", _ids("IntegerLookup", vocabulary=[3, 7, 9]),
          feeds={"ids": integers(0, 10, 4, dtype="int64")}, source="savedmodel"),
    _case("CategoryEncoding", _ids("CategoryEncoding", num_tokens=10, output_mode="multi_hot"),
          feeds={"ids": integers(0, 10, 4, dtype="int64")}),
    _case("StringLookup", _strings("StringLookup", vocabulary=_WORDS), feeds={"words": _words(4)},
          source="savedmodel", refused=dict.fromkeys(("onnx", "onnx-float16"), _TEXT)),
    _case("TextVectorization",
          _strings("TextVectorization", vocabulary=_WORDS, output_sequence_length=3),
          feeds={"words": _words(1)}, source="savedmodel",
          refused=dict.fromkeys(("tflite", "tflite-float16", "onnx", "onnx-float16"), _TEXT)),
    _case("subclassed", _subclassed, source="savedmodel"),
    _case("loss-scale", _compiled, source="h5"),
]  # fmt: skip
