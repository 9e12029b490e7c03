"""Attention layers of ``keras.layers``: masks of every kind, scores returned, cross attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.conformance.case import Build, Case, Feed, integers, normal
from tests.conformance.cases._between import IDS, after, fast, make

_QUERY, _VALUE = (5, 8), (6, 8)


def _attend(
    name: str,
    *args: Any,
    inputs: str = "qv",
    call: Mapping[str, Any] | None = None,
    mask: str = "",
    **kwargs: Any,
) -> Case:
    """A row for an attention layer.

    Args:
        name: Class, and what tells the row from others.
        *args: Of the layer.
        inputs: ``q`` for self attention, ``qv``, or ``qvk``.
        call: Arguments of the call.
        mask: ``ids`` for padding that an Embedding masks, ``input`` for a mask as an input.
        **kwargs: Of the layer.
    """
    takes_list = name.startswith(("Attention", "AdditiveAttention"))

    def build(b: Build) -> Any:
        k = b.keras.layers
        given, tensors, extra = [], [], dict(call or {})
        for letter in inputs:
            shape = _QUERY if letter == "q" else _VALUE
            if mask == "ids":
                x = b.keras.Input(shape[:1], dtype="int32", name=letter)
                y = k.Embedding(IDS, 8, mask_zero=True, embeddings_initializer="normal")(x)
            else:
                x = b.keras.Input(shape, name=letter)
                y = k.Dense(8)(x)
            given.append(x)
            tensors.append(y)
        if len(tensors) == 1:
            tensors *= 2
        if mask == "input":
            given.append(b.keras.Input((5, 6 if len(inputs) > 1 else 5), dtype="bool", name="mask"))
            extra["attention_mask"] = given[-1]
        layer = make(k, name, args, kwargs)
        y = layer(tensors, **extra) if takes_list else layer(*tensors, **extra)
        return b.keras.Model(given, after(b, y))

    feeds: dict[str, Feed] = {}
    if mask == "ids":
        feeds = {n: _ids(_QUERY if n == "q" else _VALUE) for n in inputs}
    elif mask == "input":
        feeds = {n: normal(*(_QUERY if n == "q" else _VALUE)) for n in inputs}
        feeds["mask"] = _some(5, 6 if len(inputs) > 1 else 5)
    return Case(f"layers/{name}", build, feeds=feeds)


def _ids(shape: tuple[int, ...]) -> Feed:
    """The first id is never padding, so that every row attends to something."""

    def feed(rng: Any, batch: int) -> Any:
        ids = integers(0, 4, shape[0])(rng, batch)
        ids[:, 0] = 1
        return ids

    return feed


def _some(rows: int, columns: int) -> Feed:
    """About half of all; each row at least one."""

    def feed(rng: Any, batch: int) -> Any:
        mask = rng.integers(0, 2, (batch, rows, columns)).astype(bool)
        mask[:, :, 0] = True
        return mask

    return feed


_SCORES = {"return_attention_scores": True}
_CAUSAL = {"use_causal_mask": True}

_DOT = [
    case
    for name, scaled in (("Attention", {"use_scale": True}), ("AdditiveAttention", {}))
    for case in (
        _attend(name),
        _attend(f"{name}-scores", call=_SCORES, inputs="qvk", **scaled),
        _attend(f"{name}-causal", call=_CAUSAL, inputs="q"),
        _attend(f"{name}-masked", mask="ids"),
    )
]

CASES = [
    *_DOT,
    _attend("Attention-concat", score_mode="concat", use_scale=True),
    _attend("Attention-scaled", use_scale=True, dropout=0.3),
    _attend("AdditiveAttention-unscaled", use_scale=False),
    fast(_attend("MultiHeadAttention", 2, 4, inputs="q")),
    _attend("MultiHeadAttention-cross", 2, 4, value_dim=3, inputs="qvk", output_shape=6),
    fast(_attend("MultiHeadAttention-causal", 2, 4, inputs="q", call=_CAUSAL)),
    _attend("MultiHeadAttention-scores", 2, 4, inputs="q", call=_SCORES),
    _attend("MultiHeadAttention-masked", 2, 4, mask="ids"),
    _attend("MultiHeadAttention-masked-causal", 2, 4, inputs="q", mask="ids", call=_CAUSAL),
    _attend("MultiHeadAttention-mask", 2, 4, mask="input"),
    _attend("MultiHeadAttention-no-bias", 2, 4, inputs="q", use_bias=False, dropout=0.2),
    _attend("MultiHeadAttention-gated", 2, 4, inputs="q", use_gate=True),
    _attend("GroupQueryAttention", 4, 4, 2, inputs="q"),
    _attend("GroupQueryAttention-causal", 4, 4, 1, inputs="q", call=_CAUSAL),
    _attend("GroupQueryAttention-cross", 4, 4, 2, inputs="qvk", use_bias=False),
    _attend("GroupQueryAttention-mask", 4, 4, 2, mask="input"),
    _attend("GroupQueryAttention-scores", 4, 4, 4, inputs="q", call=_SCORES),
    _attend("GroupQueryAttention-window", 4, 4, 2, inputs="q", sliding_window=2),
    _attend("GroupQueryAttention-gated", 4, 4, 2, inputs="q", use_gate=True),
]
