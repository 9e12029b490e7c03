"""Recurrent layers of ``keras.layers``, their cells and what wraps them.

Sequences, states, direction, masks, unrolling, open lengths; cells stand in an RNN layer.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.case import Build, Case
from tests.conformance.cases._between import after, fast, make, refused, row, special

_STEPS = (6, 4)


def _cell(name: str, *args: Any, **kwargs: Any) -> Case:
    """A row for a cell, which can't stand in a model alone."""

    def build(b: Build) -> Any:
        k = b.keras.layers
        x = b.keras.Input(_STEPS, name="x")
        layer = k.RNN(make(k, name, args, kwargs), return_sequences=True)
        return b.keras.Model(x, after(b, layer(k.Dense(4)(x))))

    return Case(f"layers/{name}", build)


def _initial_state(b: Build) -> Any:
    """An encoder's state starts a decoder."""
    k = b.keras.layers
    source = b.keras.Input((5, 4), name="source")
    target = b.keras.Input((6, 4), name="target")
    _, *state = k.LSTM(5, return_state=True)(k.Dense(4)(source))
    y = k.LSTM(5, return_sequences=True)(k.Dense(4)(target), initial_state=state)
    return b.keras.Model([source, target], after(b, y))


def _stateful(b: Build) -> Any:
    k = b.keras.layers
    x = b.keras.Input(batch_shape=(1, *_STEPS), name="x")
    return b.keras.Model(x, after(b, k.GRU(5, stateful=True)(k.Dense(4)(x))))


def _rows(name: str) -> list[Case]:
    return [
        row(name, _STEPS, 5),
        row(f"{name}-sequences", _STEPS, 5, return_sequences=True),
        row(f"{name}-state", _STEPS, 5, return_sequences=True, return_state=True),
        row(f"{name}-backwards", _STEPS, 5, return_sequences=True, go_backwards=True),
        row(f"{name}-unrolled", _STEPS, 5, unroll=True),
        row(f"{name}-masked", _STEPS, 5, before="ids"),
        row(f"{name}-masked-sequences", _STEPS, 5, before="ids", return_sequences=True,
            zero_output_for_mask=True),
        row(f"{name}-open", (None, 4), 5, feed=_STEPS),
        row(f"{name}-no-bias", _STEPS, 5, use_bias=False, activation="relu"),
    ]  # fmt: skip


_FAST = {"layers/GRU", "layers/LSTM", "layers/GRU-state"}

CASES = [
    *(fast(c) if c.name in _FAST else c for c in _rows("GRU") + _rows("LSTM")),
    *_rows("SimpleRNN"),
    row("GRU-reset-before", _STEPS, 5, reset_after=False, return_sequences=True),
    row("GRU-hard", _STEPS, 5, recurrent_activation="hard_sigmoid", recurrent_dropout=0.2),
    refused(special(row("GRU-stateful", _STEPS, 5), build=_stateful, batches=(1,)),
            "keeps state between calls"),
    special(row("LSTM-initial-state", _STEPS, 5), build=_initial_state),
    row("LSTM-forget-bias", _STEPS, 5, unit_forget_bias=False, dropout=0.2),
    _cell("GRUCell", 5),
    _cell("GRUCell-reset-before", 5, reset_after=False),
    _cell("LSTMCell", 5),
    _cell("SimpleRNNCell", 5),
    _cell("StackedRNNCells", lambda k: [k.LSTMCell(5), k.GRUCell(4), k.SimpleRNNCell(3)]),
    row("RNN", _STEPS, lambda k: k.GRUCell(5)),
    row("RNN-list", _STEPS, lambda k: [k.LSTMCell(5), k.LSTMCell(4)], return_state=True),
    row("RNN-masked", _STEPS, lambda k: k.LSTMCell(5), before="ids"),
    row("Bidirectional", _STEPS, lambda k: k.LSTM(5, return_sequences=True)),
    row("Bidirectional-sum", _STEPS, lambda k: k.GRU(5), merge_mode="sum"),
    row("Bidirectional-apart", _STEPS, lambda k: k.GRU(5), merge_mode=None),
    row("Bidirectional-state", _STEPS, lambda k: k.LSTM(5, return_state=True)),
    row("Bidirectional-masked", _STEPS, lambda k: k.GRU(5, return_sequences=True), before="ids"),
    row("Bidirectional-two", _STEPS, lambda k: k.LSTM(5),
        backward_layer=lambda k: k.GRU(5, go_backwards=True)),
    row("TimeDistributed", _STEPS, lambda k: k.Dense(5, activation="relu")),
    row("TimeDistributed-Conv2D", (3, 6, 6, 2), lambda k: k.Conv2D(4, 3)),
    row("TimeDistributed-open", (None, 4), lambda k: k.Dense(5), feed=_STEPS),
    row("ConvLSTM1D", (4, 6, 2), 3, 3),
    row("ConvLSTM1D-sequences", (4, 6, 2), 3, 3, padding="same", return_sequences=True),
    row("ConvLSTM2D", (3, 5, 5, 2), 3, 3),
    row("ConvLSTM2D-sequences", (3, 6, 5, 2), 3, 3, strides=2, padding="same",
        return_sequences=True),
    row("ConvLSTM2D-state", (3, 5, 5, 2), 3, 3, return_state=True, go_backwards=True),
    row("ConvLSTM3D", (3, 4, 4, 4, 2), 2, 3, padding="same"),
]  # fmt: skip
