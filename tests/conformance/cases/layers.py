"""Layers of ``keras.layers``: core, activations, normalization, regularization, merging, shape.

The other classes are in ``layers_conv``, ``layers_rnn``, ``layers_attention``, ``layers_image`` and
``layers_data``. ``ABSENT`` holds the classes that have no row, and why; ``tests/conformance/
test_tables.py`` holds the tables against what the library exports.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.case import Build, Case, integers
from tests.conformance.cases._between import after, data, fast, row, special

ABSENT = {
    "FlaxLayer": "runs on the JAX backend only",
    "Input": "a function; every case begins with it",
    "InputLayer": "every case begins with it",
    "InputSpec": "describes an input, no layer",
    "JaxLayer": "runs on the JAX backend only",
    "Layer": "abstract; layers-custom/* derive from it",
    "TorchModuleWrapper": "runs on the PyTorch backend only",
}


def _pair(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [shape, shape]


def _lambda(b: Build) -> Any:
    k, ops = b.keras.layers, b.keras.ops
    x = b.keras.Input((6,), name="x")
    y = k.Lambda(lambda t: t * ops.sigmoid(1.5 * t) + 0.25)(k.Dense(8)(x))
    return b.keras.Model(x, k.Dense(3)(y))


def _wrapper(b: Build) -> Any:
    keras = b.keras

    class Twice(keras.layers.Wrapper):
        def call(self, x: Any) -> Any:
            return self.layer(self.layer(x))

    x = keras.Input((6,), name="x")
    y = Twice(keras.layers.Dense(6, activation="tanh"))(keras.layers.Dense(6)(x))
    return keras.Model(x, keras.layers.Dense(3)(y))


def _spectral(b: Build) -> Any:
    k = b.keras.layers
    x = b.keras.Input((6, 6, 3), name="x")
    y = k.SpectralNormalization(k.Conv2D(4, 3), power_iterations=2)(k.Conv2D(3, 3)(x))
    return b.keras.Model(x, k.Dense(3)(y))


def _reversible(tied: bool, cap: float | None) -> Any:
    def build(b: Build) -> Any:
        k = b.keras.layers
        ids = b.keras.Input((5,), dtype="int32", name="x")
        table = k.ReversibleEmbedding(40, 8, tie_weights=tied, logit_soft_cap=cap)
        return b.keras.Model(ids, table(k.Dense(8, activation="gelu")(table(ids)), reverse=True))

    return build


def _masking(b: Build) -> Any:
    k = b.keras.layers
    x = b.keras.Input((5, 3), name="x")
    y = k.Masking()(k.Dense(4, activation="relu", use_bias=False)(x))
    return b.keras.Model(x, after(b, k.GlobalAveragePooling1D()(y)))


def _tfsm(b: Build) -> Any:
    import tempfile

    k = b.keras.layers
    inner = b.keras.Sequential([b.keras.Input((8,)), k.Dense(6, activation="relu"), k.Dense(4)])
    with tempfile.TemporaryDirectory() as folder:
        inner.export(folder, verbose=False)
        layer = k.TFSMLayer(folder, dtype="float32")
    x = b.keras.Input((6,), name="x")
    return b.keras.Model(x, k.Dense(3)(layer(k.Dense(8, dtype="float32")(k.Dense(8)(x)))))


_ACTIVATION = [
    row("Activation", (6,), "tanh"),
    row("ELU", (6,), alpha=0.7),
    row("LeakyReLU", (4, 6), negative_slope=0.2),
    row("PReLU", (4, 6)),
    row("PReLU-shared", (5, 4, 3), shared_axes=[1, 2]),
    row("ReLU", (6,)),
    row("ReLU-6", (6,), max_value=6.0),
    row("ReLU-leaky", (6,), max_value=1.0, negative_slope=0.1, threshold=0.25),
    row("Softmax", (6,)),
    row("Softmax-axis", (4, 6), axis=1),
    row("Softmax-axes", (4, 6), axis=(1, 2)),
]

_CORE = [
    row("Dense", (5,), 6),
    fast(row("Dense-rank2", (4, 5), 6, activation="relu")),
    row("Dense-rank3", (3, 4, 5), 6, use_bias=False),
    # Keras stores the merged kernel as it computes with it: rounded to half.
    special(row("Dense-lora", (5,), 6, lora_rank=2), source="savedmodel"),
    row("EinsumDense", (4, 6), "abc,cd->abd", output_shape=(None, 5), bias_axes="d"),
    row("EinsumDense-heads", (4, 6), "abc,cde->abde", output_shape=(None, 2, 3), bias_axes="de"),
    row("EinsumDense-ellipsis", (3, 4, 6), "...x,xy->...y", output_shape=5),
    fast(data("Embedding", integers(0, 3000, 6), (6,), "int32", 3000, 8)),
    data("Embedding-masked", integers(0, 9, 6), (6,), "int64", 9, 8, mask_zero=True),
    row("Identity", (4, 5)),
    row("ActivityRegularization", (5,), l1=1e-3, l2=1e-3),
    Case("layers/Lambda", _lambda, source="savedmodel"),
    Case("layers/Masking", _masking),
    Case("layers/ReversibleEmbedding", _reversible(True, None), feeds={"x": integers(0, 40, 5)}),
    Case("layers/ReversibleEmbedding-capped", _reversible(False, 5.0),
         feeds={"x": integers(0, 40, 5)}),
    Case("layers/SpectralNormalization", _spectral),
    row("SpectralNormalization-Dense", (6,), lambda k: k.Dense(5)),
    Case("layers/TFSMLayer", _tfsm, source="savedmodel"),
    Case("layers/Wrapper", _wrapper, source="savedmodel"),
]  # fmt: skip

_NORMALIZATION = [
    fast(row("BatchNormalization", (5, 5, 3))),
    row("BatchNormalization-rank1", (6,), center=False),
    row("BatchNormalization-axis1", (4, 6), axis=1, scale=False),
    row("BatchNormalization-rank4", (3, 4, 4, 3), epsilon=1e-5),
    row("BatchNormalization-masked", (5, 4), before="ids"),
    row("GroupNormalization", (5, 5, 8), groups=4),
    row("GroupNormalization-instance", (5, 4, 6), groups=-1),
    row("GroupNormalization-layer", (6, 4), groups=1, center=False),
    row("GroupNormalization-axis1", (8, 5), groups=2, axis=1),
    fast(row("LayerNormalization", (4, 8))),
    row("LayerNormalization-axes", (4, 5, 6), axis=[1, 2], epsilon=1e-6),
    row("LayerNormalization-axis1", (4, 6), axis=1, scale=False),
    row("LayerNormalization-epsilon", (4, 8), epsilon=1e-12),
    row("RMSNormalization", (4, 8)),
    row("RMSNormalization-axes", (4, 8), axis=[-2, -1], epsilon=1e-12),
    row("UnitNormalization", (8,)),
    row("UnitNormalization-axes", (4, 5, 6), axis=[1, 2]),
]

_REGULARIZATION = [
    row("AlphaDropout", (6,), 0.3),
    row("Dropout", (6,), 0.3),
    row("GaussianDropout", (6,), 0.3),
    row("GaussianNoise", (6,), 0.3),
    row("SpatialDropout1D", (4, 6), 0.3),
    row("SpatialDropout2D", (4, 4, 3), 0.3),
    row("SpatialDropout3D", (3, 4, 4, 2), 0.3),
]

_MERGING = [
    fast(row("Add", _pair((4, 6)))),
    row("Add-broadcast", [(4, 6), (1, 6), (6,)]),
    row("Average", [(6,)] * 3),
    fast(row("Concatenate", [(4, 6), (4, 3)])),
    row("Concatenate-axis1", [(2, 3, 6), (4, 3, 6)], axis=1),
    row("Dot", [(4, 6), (5, 6)], axes=-1),
    row("Dot-cosine", _pair((6,)), axes=1, normalize=True),
    row("Dot-axes", [(4, 6), (6, 4, 5)], axes=(1, 2)),
    row("Maximum", _pair((6,))),
    row("Minimum", _pair((4, 6))),
    row("Multiply", [(4, 4, 3), (1, 1, 3)]),
    row("Subtract", _pair((6,))),
]

_SHAPE = [
    row("Cropping1D", (7, 4), (2, 1)),
    row("Cropping2D", (7, 8, 3), ((1, 2), (3, 1))),
    row("Cropping2D-first", (4, 7, 8), 1, data_format="channels_first"),
    row("Cropping3D", (5, 6, 7, 2), ((1, 1), (2, 0), (0, 3))),
    row("Flatten", (3, 4, 5)),
    row("Flatten-first", (3, 4, 5), data_format="channels_first"),
    row("Permute", (3, 4, 5), (3, 1, 2)),
    row("RepeatVector", (6,), 4),
    row("Reshape", (4, 6), (3, 8)),
    row("Reshape-unknown", (4, 6), (-1, 3, 2)),
    row("UpSampling1D", (4, 6), 3),
    row("UpSampling3D", (2, 3, 4, 2), (2, 1, 3)),
    row("ZeroPadding1D", (5, 4), (2, 1)),
    row("ZeroPadding2D", (5, 6, 3), ((1, 2), (0, 3))),
    row("ZeroPadding2D-first", (3, 5, 6), 2, data_format="channels_first"),
    row("ZeroPadding3D", (3, 4, 5, 2), (1, 0, 2)),
]

CASES = [
    *_ACTIVATION, *_CORE, *_NORMALIZATION, *_REGULARIZATION, *_MERGING, *_SHAPE,
    row("Dense-open", (None, 5), 6, feed=(4, 5)),
    *(
        row(f"UpSampling2D-{how}", (4, 5, 3), (2, 3), interpolation=how)
        for how in ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5")
    ),
    row("UpSampling2D-first", (3, 4, 5), 2, data_format="channels_first"),
]  # fmt: skip
