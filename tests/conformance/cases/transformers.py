"""The shapes that transformers come in, of plain layers and ``keras.ops`` as people write them.

Attention is either Keras's own layer or written out, with masks added to the scores (-1e9, which no
float16 holds) or given as booleans; a row that is all padding among them. Positions are sinusoidal,
learned or rotary; norms are before or after, with epsilons down to 1e-12, which float16 flushes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.conformance.case import Build, Case, Feed, integers, normal

_LENGTH, _WIDTH, _HEADS, _VOCABULARY = 6, 16, 4, 3000
_DEPTH = _WIDTH // _HEADS
_IDS = {"ids": integers(0, _VOCABULARY, _LENGTH)}


def _padding(fully: bool) -> Feed:
    """True for tokens; with ``fully`` the last sample is nothing but padding."""

    def feed(rng: Any, batch: int) -> Any:
        lengths = rng.integers(2, _LENGTH + 1, batch)
        if fully:
            lengths[-1] = 0
        return np.arange(_LENGTH) < lengths[:, None]

    return feed


def _embedded(b: Build, length: int | None = _LENGTH) -> tuple[Any, Any]:
    ids = b.keras.Input((length,), dtype="int32", name="ids")
    table = b.keras.layers.Embedding(_VOCABULARY, _WIDTH, embeddings_initializer="normal")
    return ids, 20.0 * table(ids)  # normal is 0.05


def _sinusoids(length: int, width: int) -> Any:
    rates = 1 / 10000 ** (np.arange(0, width, 2) / width)
    angles = np.arange(length)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], -1).astype(np.float32)


def _steps(ops: Any, like: Any) -> Any:
    """0, 1, … along the second axis, whose length may be open."""
    return ops.cumsum(ops.cast(ops.ones_like(like), "int32"), axis=1)[0] - 1


def _rotate(ops: Any, x: Any) -> Any:
    """Rotary positions of (batch, length, heads, depth); the angles are computed in the graph."""
    rates = 1 / 10000 ** (np.arange(0, _DEPTH, 2) / _DEPTH)
    steps = ops.cast(_steps(ops, x[:, :, 0, 0]), "float32")
    angles = ops.expand_dims(steps, -1) * ops.convert_to_tensor(rates, "float32")
    cos = ops.cast(ops.cos(angles), x.dtype)[None, :, None, :]
    sin = ops.cast(ops.sin(angles), x.dtype)[None, :, None, :]
    one, two = ops.split(x, 2, axis=-1)
    return ops.concatenate([one * cos - two * sin, two * cos + one * sin], -1)


def _written_out(
    b: Build,
    x: Any,
    source: Any = None,
    *,
    add: Any = None,
    keep: Any = None,
    rotary: bool = False,
    groups: int = _HEADS,
) -> Any:
    """Attention as code that predates the layer has it; ``add`` to scores, or ``keep`` of them."""
    k, ops = b.keras.layers, b.keras.ops
    source = x if source is None else source
    q = k.Reshape((-1, _HEADS, _DEPTH))(k.Dense(_WIDTH)(x))
    key = k.Reshape((-1, groups, _DEPTH))(k.Dense(groups * _DEPTH)(source))
    value = k.Reshape((-1, groups, _DEPTH))(k.Dense(groups * _DEPTH)(source))
    if rotary:
        q, key = _rotate(ops, q), _rotate(ops, key)
    if groups < _HEADS:
        key, value = (ops.repeat(t, _HEADS // groups, axis=2) for t in (key, value))
    scores = ops.einsum("bqhd,bkhd->bhqk", q, key) / _DEPTH**0.5
    if add is not None:
        scores = scores + ops.cast(add, scores.dtype)
    if keep is not None:
        scores = ops.where(keep, scores, ops.cast(-1e9, scores.dtype))
    y = ops.einsum("bhqk,bkhd->bqhd", ops.softmax(scores), value)
    return k.Dense(_WIDTH)(k.Reshape((-1, _WIDTH))(y))


def _feed_forward(b: Build, x: Any, activation: Any = None) -> Any:
    k = b.keras.layers
    inner = k.Dense(2 * _WIDTH)(x)
    return k.Dense(_WIDTH)(activation(inner) if activation else k.Activation("gelu")(inner))


def _head(b: Build, ids: Any, y: Any) -> Any:
    return b.keras.Model(ids, b.keras.layers.Dense(5, name="logits")(y))


def _post_norm(b: Build) -> Any:
    """As BERT: norm after each half, epsilon 1e-12, learned positions, exact GELU."""
    keras, k = b.keras, b.keras.layers
    ids, x = _embedded(b)
    places = k.Embedding(_LENGTH, _WIDTH, name="places")(keras.ops.arange(_LENGTH)[None])
    x = k.LayerNormalization(epsilon=1e-12)(x + places)
    for _ in range(2):
        x = k.LayerNormalization(epsilon=1e-12)(x + k.MultiHeadAttention(_HEADS, _DEPTH)(x, x))
        exact = _feed_forward(b, x, lambda t: keras.activations.gelu(t, approximate=False))
        x = k.LayerNormalization(epsilon=1e-12)(x + exact)
    pooled = k.Dense(_WIDTH, activation="tanh")(x[:, 0])
    return keras.Model(ids, {"sequence": k.Dense(5)(x), "pooled": k.Dense(2)(pooled)})


def _pre_norm(b: Build) -> Any:
    """As GPT-2: norm before, causal, GELU by tanh, tied embeddings."""
    keras, k = b.keras, b.keras.layers
    ids = keras.Input((_LENGTH,), dtype="int32", name="ids")
    table = k.ReversibleEmbedding(200, _WIDTH, embeddings_initializer="normal")
    x = 20.0 * table(ids)
    x = x + k.Embedding(_LENGTH, _WIDTH)(keras.ops.arange(_LENGTH)[None])
    for _ in range(2):
        normed = k.LayerNormalization(epsilon=1e-5)(x)
        x = x + k.MultiHeadAttention(_HEADS, _DEPTH)(normed, normed, use_causal_mask=True)
        normed = k.LayerNormalization(epsilon=1e-5)(x)
        x = x + _feed_forward(b, normed, lambda t: keras.activations.gelu(t, approximate=True))
    return keras.Model(ids, table(k.LayerNormalization(epsilon=1e-5)(x), reverse=True))


def _llama(b: Build) -> Any:
    """RMS norm, rotary positions, grouped queries, a gate of SiLU, open length."""
    k, ops = b.keras.layers, b.keras.ops
    ids, x = _embedded(b, None)
    for _ in range(2):
        normed = k.RMSNormalization(epsilon=1e-6)(x)
        steps = _steps(ops, ids)
        past = steps[:, None] >= steps[None, :]
        x = x + _written_out(b, normed, keep=past, rotary=True, groups=2)
        normed = k.RMSNormalization(epsilon=1e-6)(x)
        gate = k.Dense(24, use_bias=False, activation="silu")(normed)
        x = x + k.Dense(_WIDTH, use_bias=False)(gate * k.Dense(24, use_bias=False)(normed))
    return _head(b, ids, k.RMSNormalization(epsilon=1e-12)(x))


def _encoder_decoder(b: Build) -> Any:
    """Cross attention: keys and values of an encoder that are computed once."""
    k = b.keras.layers
    ids, x = _embedded(b)
    source = b.keras.Input((None, 8), name="source")
    memory = k.LayerNormalization()(k.Dense(_WIDTH)(source))
    memory = memory + k.MultiHeadAttention(_HEADS, _DEPTH)(memory, memory)
    x = k.LayerNormalization()(x + k.MultiHeadAttention(_HEADS, _DEPTH)(x, x, use_causal_mask=True))
    x = k.LayerNormalization()(x + k.MultiHeadAttention(_HEADS, _DEPTH)(x, memory))
    return _head(b, [ids, source], x + _feed_forward(b, x))


def _cached(b: Build) -> Any:
    """One step of a decoder: new key and value are appended to those of the past."""
    k, ops = b.keras.layers, b.keras.ops
    ids = b.keras.Input((1,), dtype="int32", name="ids")
    past_key = b.keras.Input((None, _HEADS, _DEPTH), name="past_key")
    past_value = b.keras.Input((None, _HEADS, _DEPTH), name="past_value")
    x = 20.0 * k.Embedding(_VOCABULARY, _WIDTH, embeddings_initializer="normal")(ids)
    q, key, value = (k.Reshape((1, _HEADS, _DEPTH))(k.Dense(_WIDTH)(x)) for _ in range(3))
    key = ops.concatenate([ops.cast(past_key, key.dtype), key], 1)
    value = ops.concatenate([ops.cast(past_value, value.dtype), value], 1)
    weights = ops.softmax(ops.einsum("bqhd,bkhd->bhqk", q, key) / _DEPTH**0.5)
    y = k.Reshape((1, _WIDTH))(ops.einsum("bhqk,bkhd->bqhd", weights, value))
    outputs = {"logits": k.Dense(5)(x + y), "key": key, "value": value}
    return b.keras.Model([ids, past_key, past_value], outputs)


def _masked(attend: Callable[[Build, Any, Any], Any]) -> Callable[[Build], Any]:
    def build(b: Build) -> Any:
        ids, x = _embedded(b)
        mask = b.keras.Input((_LENGTH,), dtype="bool", name="mask")
        y = b.keras.layers.LayerNormalization()(x + attend(b, x, mask))
        return _head(b, [ids, mask], y)

    return build


def _plain(change: Callable[[Build, Any], Any], length: int | None = _LENGTH) -> Any:
    def build(b: Build) -> Any:
        ids, x = _embedded(b, length)
        return _head(b, ids, change(b, x))

    return build


def _layer_mask(b: Build, x: Any, mask: Any) -> Any:
    k = b.keras.layers
    return k.MultiHeadAttention(_HEADS, _DEPTH)(x, x, attention_mask=mask[:, None, :])


def _added(b: Build, x: Any, mask: Any) -> Any:
    away = 1.0 - b.keras.ops.cast(mask, "float32")
    return _written_out(b, x, add=(-1e9 * away)[:, None, None, :])


def _added_in_half(b: Build, x: Any, mask: Any) -> Any:
    """The mask takes the type of the scores first: -1e9 is infinite in float16, and 0 · inf NaN."""
    away = 1.0 - b.keras.ops.cast(mask, x.dtype)
    return _written_out(b, x, add=(-1e9 * away)[:, None, None, :])


def _kept(b: Build, x: Any, mask: Any) -> Any:
    return _written_out(b, x, keep=mask[:, None, None, :])


def _causal_and_padding(b: Build, x: Any, mask: Any) -> Any:
    ops = b.keras.ops
    past = ops.arange(_LENGTH)[:, None] >= ops.arange(_LENGTH)[None, :]
    return _written_out(b, x, keep=ops.logical_and(mask[:, None, None, :], past))


def _grouped(b: Build, x: Any) -> Any:
    layer = b.keras.layers.GroupQueryAttention(_DEPTH, _HEADS, 2)
    return x + layer(x, x, use_causal_mask=True)


def _relative_bias(b: Build, x: Any) -> Any:
    """As T5: a learned bias per head and distance."""
    ops = b.keras.ops
    steps = np.arange(_LENGTH)
    distance = steps[None] - steps[:, None] + _LENGTH - 1
    table = b.keras.layers.Embedding(2 * _LENGTH - 1, _HEADS, embeddings_initializer="normal")
    bias = table(ops.convert_to_tensor(distance, "int32"))
    return x + _written_out(b, x, add=ops.transpose(bias, (2, 0, 1))[None])


def _sinusoidal(b: Build, x: Any) -> Any:
    y = x + b.keras.ops.cast(_sinusoids(_LENGTH, _WIDTH), x.dtype)
    return y + _written_out(b, y)


def _encoder(b: Build, x: Any) -> Any:
    k = b.keras.layers
    y = k.LayerNormalization()(x + k.MultiHeadAttention(_HEADS, _DEPTH)(x, x))
    return y + _feed_forward(b, y)


def _vision(b: Build) -> Any:
    """As ViT: patches by a strided convolution, a class token, norms before."""
    keras, k, ops = b.keras, b.keras.layers, b.keras.ops
    image = keras.Input((16, 16, 3), name="image")
    patches = k.Reshape((16, _WIDTH))(k.Conv2D(_WIDTH, 4, strides=4)(image))
    first = k.Dense(_WIDTH)(k.GlobalAveragePooling1D()(patches))
    x = ops.concatenate([ops.expand_dims(first, 1), patches], 1)
    x = x + k.Embedding(17, _WIDTH)(ops.arange(17)[None])
    normed = k.LayerNormalization(epsilon=1e-6)(x)
    x = x + k.MultiHeadAttention(_HEADS, _DEPTH)(normed, normed)
    x = x + _feed_forward(b, k.LayerNormalization(epsilon=1e-6)(x))
    return _head(b, image, k.LayerNormalization(epsilon=1e-6)(x)[:, 0])


def _case(name: str, build: Any, feeds: dict[str, Feed] | None = None, **options: Any) -> Case:
    return Case(f"transformers/{name}", build, feeds=feeds or _IDS, **options)


_MASK = {**_IDS, "mask": _padding(False)}
_PAST = normal(4, _HEADS, _DEPTH)
_STEP = {"ids": integers(0, _VOCABULARY, 1), "past_key": _PAST, "past_value": _PAST}
_PADDED_OUT = {**_IDS, "mask": _padding(True)}

CASES = [
    _case("bert", _post_norm),
    _case("gpt2", _pre_norm, {"ids": integers(0, 200, _LENGTH)}),
    _case("llama-open-length", _llama),
    _case("vit", _vision, {"image": normal(16, 16, 3)}),
    _case("encoder-open-length", _plain(_encoder, None)),
    _case("encoder", _plain(_encoder), fast=True),
    _case("cross-attention", _encoder_decoder, {**_IDS, "source": normal(7, 8)}),
    _case("cached-step", _cached, _STEP),
    _case("grouped-queries", _plain(_grouped)),
    _case("relative-bias", _plain(_relative_bias)),
    _case("sinusoidal-positions", _plain(_sinusoidal)),
    _case("rotary-positions", _plain(lambda b, x: x + _written_out(b, x, rotary=True))),
    _case("mask-layer", _masked(_layer_mask), _MASK, fast=True),
    _case("mask-layer-all-padding", _masked(_layer_mask), _PADDED_OUT),
    _case("mask-added", _masked(_added), _MASK),
    _case("mask-added-all-padding", _masked(_added), _PADDED_OUT, fast=True),
    _case("mask-added-in-half", _masked(_added_in_half), _MASK),
    _case("mask-boolean", _masked(_kept), _MASK),
    _case("mask-boolean-all-padding", _masked(_kept), _PADDED_OUT),
    _case("mask-causal-and-padding", _masked(_causal_and_padding), _MASK),
]
