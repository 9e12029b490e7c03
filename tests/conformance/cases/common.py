"""Layers of everyday models, each between two layers that compute in half."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conformance.case import Build, Case, integers

Between = Callable[[Any], Any]


def _after_dense(make: Between, *shape: int) -> Callable[[Build], Any]:
    def build(b: Build) -> Any:
        layers = b.keras.layers
        x = b.keras.Input(shape, name="x")
        y = make(layers)(layers.Dense(8)(x))
        return b.keras.Model(x, layers.Dense(3)(y))

    return build


def _attention(b: Build) -> Any:
    layers = b.keras.layers
    ids = b.keras.Input((6,), dtype="int32", name="ids")
    x = layers.Embedding(3000, 8)(ids)
    y = layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
    return b.keras.Model(ids, layers.Dense(3)(layers.LayerNormalization()(x + y)))


CASES = [
    Case("common/Dense", _after_dense(lambda k: k.Dense(6), 5), fast=True),
    Case("common/gelu", _after_dense(lambda k: k.Activation("gelu"), 5)),
    Case("common/Conv2D", _after_dense(lambda k: k.Conv2D(4, 3, dilation_rate=2), 9, 7, 2)),
    Case("common/BatchNormalization", _after_dense(lambda k: k.BatchNormalization(), 5, 5, 2)),
    Case("common/GRU", _after_dense(lambda k: k.GRU(4), 6, 3), fast=True),
    Case(
        "common/MultiHeadAttention",
        _attention,
        feeds={"ids": integers(0, 3000, 6)},
    ),
]
