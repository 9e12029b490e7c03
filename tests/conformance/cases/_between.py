"""How the tables of Keras 3 put one layer between two that compute in half.

A row names the class, says what the layer gets and how it is made::

    row("Conv2D-dilated", (9, 7, 3), 4, 3, dilation_rate=2)

is ``keras.layers.Conv2D(4, 3, dilation_rate=2)`` on 9 × 7 × 3 values out of a convolution, and a
Dense layer after it; what follows the class after ``-`` only tells rows apart. The layer before is
a convolution for three and four
dimensions and Dense for others. Whole numbers that a layer gives are
looked up in an Embedding first. Arguments that are functions are called with ``keras.layers``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tests.conformance.case import TARGETS, Build, Case, Feed, normal

Shape = tuple[int | None, ...]

# What a lookup may give, and more: ids after a layer of the tables stay below.
IDS = 64
CONVERTED = tuple(t for t in TARGETS if t != "savedmodel")


def row(
    name: str,
    shape: Shape | Sequence[Shape],
    *args: Any,
    before: str = "",
    call: Mapping[str, Any] | None = None,
    feed: Sequence[int] = (),
    **kwargs: Any,
) -> Case:
    """A case for one class of ``keras.layers``.

    Args:
        name: Class, and after ``-`` what tells the row from others of the class.
        shape: What the layer gets, without the batch; a list for a layer that takes a list.
        *args: Of the layer.
        before: Activation of the layer before; ``ids`` for an Embedding with masked zeros.
        call: Arguments of the call.
        feed: Shape of a sample where ``shape`` leaves sizes open.
        **kwargs: Of the layer.
    """

    def build(b: Build) -> Any:
        k = b.keras.layers
        inputs, halves = [], []
        for i, one in enumerate(shape if isinstance(shape, list) else [shape]):
            x, y = _half(b, one, before, f"x{i}" if isinstance(shape, list) else "x")
            inputs.append(x)
            halves.append(y)
        layer = make(k, name, args, kwargs)
        y = layer(halves if isinstance(shape, list) else halves[0], **(call or {}))
        return b.keras.Model(inputs if isinstance(shape, list) else inputs[0], after(b, y))

    feeds: dict[str, Feed] = {"x": normal(*feed)} if feed else {}
    if before == "ids":
        feeds["x"] = _padded_ids(feed or shape[:1])
    return Case(f"layers/{name}", build, feeds=feeds)


def data(name: str, feed: Feed, shape: Shape, dtype: str, *args: Any, **kwargs: Any) -> Case:
    """A case for a layer that gets an input of the model itself, such as text or ids."""

    def build(b: Build) -> Any:
        x = b.keras.Input(shape, dtype=dtype, name="x")
        return b.keras.Model(x, after(b, make(b.keras.layers, name, args, kwargs)(x)))

    return Case(f"layers/{name}", build, feeds={"x": feed})


def make(k: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The layer that a row describes."""

    def value(v: Any) -> Any:
        return v(k) if callable(v) else v

    cls = getattr(k, name.partition("-")[0])
    return cls(*(value(v) for v in args), **{key: value(v) for key, v in kwargs.items()})


def after(b: Build, y: Any) -> Any:
    """A layer that computes in half on each output."""
    k = b.keras.layers
    if isinstance(y, dict):
        return {name: after(b, one) for name, one in y.items()}
    if isinstance(y, list | tuple):
        return [after(b, one) for one in y]
    if "int" in str(y.dtype):
        y = k.Embedding(IDS, 4, embeddings_initializer="normal")(y)
    return k.Dense(3)(y)


def special(case: Case, **changes: Any) -> Case:
    """The case with other attributes."""
    return dataclasses.replace(case, **changes)


def fast(case: Case) -> Case:
    """The case as one that ``make test`` runs too."""
    return special(case, fast=True)


def refused(case: Case, why: str) -> Case:
    """The case as one of which only a SavedModel can be made."""
    return special(case, refused=dict.fromkeys(CONVERTED, why))


def _half(b: Build, shape: Shape, activation: str, name: str) -> tuple[Any, Any]:
    k = b.keras.layers
    if activation == "ids":
        x = b.keras.Input(shape[:1], dtype="int32", name=name)
        return x, k.Embedding(IDS, shape[-1], mask_zero=True, embeddings_initializer="normal")(x)
    x = b.keras.Input(shape, name=name)
    if len(shape) in (3, 4):
        conv = k.Conv2D if len(shape) == 3 else k.Conv3D
        layer = conv(shape[-1], 3, padding="same", activation=activation or None)
    else:
        layer = k.Dense(shape[-1], activation=activation or None)
    return x, layer(x)


def _padded_ids(shape: Sequence[int]) -> Feed:
    """Ids of which the last ones are padding, at least one of each sample is not."""

    def feed(rng: Any, batch: int) -> Any:
        ids = rng.integers(1, IDS, (batch, *shape)).astype("int32")
        lengths = rng.integers(1, shape[0], batch)
        for sample, length in zip(ids, lengths, strict=True):
            sample[length:] = 0
        return ids

    return feed
