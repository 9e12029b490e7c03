"""The faults: each kind says where in a file it can be made, and makes it there.

A kind is one function under ``@fault``. It gets the file open for editing and a generator, makes
one fault at a place the generator draws, and returns what it did; None where the file has no place
for it. `rare_nan`, which must know what numbers come by, stands apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.mutation.net import Array, Edge, Net, Parameter, Role, Spot, open_net, to_half

Rng = np.random.Generator
Fault = Callable[[Net, Rng], "str | None"]
KINDS: dict[str, Fault] = {}
# A NaN is to come up in about this share of the samples.
RARE_SHARE = 1e-3
# Ops whose outputs are numbers on the way, and not merely others' numbers in another order.
_COPIES = ("RESHAPE", "TRANSPOSE", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "FILL", "Expand",
           "EXPAND_DIMS", "WHILE", "STRIDED_SLICE", "Slice")  # fmt: skip


def fault(name: str) -> Callable[[Fault], Fault]:
    """Enters a kind."""

    def enter(function: Fault) -> Fault:
        KINDS[name] = function
        return function

    return enter


def _draw(rng: Rng, places: list[Any]) -> Any:
    return places[int(rng.integers(len(places)))] if places else None


def _edit(net: Net, rng: Rng, roles: tuple[Role, ...], change: Callable[..., Array]) -> str | None:
    """Changes one drawn constant; None when there is none that the change leaves different."""
    places: list[Parameter] = net.of_role(*roles)
    for place in rng.permutation(len(places)):
        parameter = places[place]
        before = net.get(parameter.name)
        # The axis of the channels goes last, since that is what a change knows.
        moved = np.moveaxis(before, parameter.channels, -1) if before.ndim else before
        after = change(moved.copy(), rng)
        after = np.moveaxis(after, -1, parameter.channels) if before.ndim else after
        if not np.array_equal(before, after):
            net.set(parameter.name, after)
            return f"{parameter.role} {parameter.name} {list(before.shape)}"
    return None


def _largest(value: Array, rng: Rng) -> tuple[int, ...]:
    """The place of the largest weight of a drawn channel."""
    channel = int(rng.integers(value.shape[-1]))
    inner = np.abs(value[..., channel]).argmax()
    return (*np.unravel_index(inner, value.shape[:-1]), channel)


@fault("one weight 10% off")
def weight_off(net: Net, rng: Rng) -> str | None:
    def change(value: Array, rng: Rng) -> Array:
        value[_largest(value, rng)] *= 1.1
        return value

    return _edit(net, rng, ("kernel",), change)


@fault("bias dropped")
def bias_dropped(net: Net, rng: Rng) -> str | None:
    return _edit(net, rng, ("bias",), lambda value, rng: np.zeros_like(value))


@fault("two channels swapped")
def channels_swapped(net: Net, rng: Rng) -> str | None:
    def change(value: Array, rng: Rng) -> Array:
        if value.shape[-1] > 1:
            one, other = rng.choice(value.shape[-1], 2, replace=False)
            value[..., [one, other]] = value[..., [other, one]]
        return value

    return _edit(net, rng, ("kernel",), change)


@fault("kernel transposed")
def kernel_transposed(net: Net, rng: Rng) -> str | None:
    """Its numbers in the order of the transposed one, as when layouts are mixed up."""
    return _edit(net, rng, ("kernel",), lambda value, rng: value.T.reshape(value.shape))


@fault("sign flipped")
def sign_flipped(net: Net, rng: Rng) -> str | None:
    def change(value: Array, rng: Rng) -> Array:
        value[..., int(rng.integers(value.shape[-1]))] *= -1
        return value

    return _edit(net, rng, ("kernel",), change)


@fault("constant clamped")
def constant_clamped(net: Net, rng: Rng) -> str | None:
    def change(value: Array, rng: Rng) -> Array:
        most = 0.5 * np.abs(value).max()
        return np.clip(value, -most, most)

    return _edit(net, rng, ("kernel", "bias"), change)


@fault("layer rounded to bfloat16")
def layer_bfloat16(net: Net, rng: Rng) -> str | None:
    return _edit(net, rng, ("kernel", "bias"), lambda value, rng: to_half(value, "bfloat16"))


@fault("layer rounded to float16")
def layer_float16(net: Net, rng: Rng) -> str | None:
    return _edit(net, rng, ("kernel", "bias"), lambda value, rng: to_half(value, "float16"))


@fault("epsilon changed")
def epsilon_changed(net: Net, rng: Rng) -> str | None:
    factor = (10.0, 0.1)[int(rng.integers(2))]
    return _edit(net, rng, ("epsilon",), lambda value, rng: value * np.float32(factor))


@fault("scale dropped")
def scale_dropped(net: Net, rng: Rng) -> str | None:
    return _edit(net, rng, ("scale", "literal"), lambda value, rng: np.ones_like(value))


@fault("literal mis-promoted")
def literal_mispromoted(net: Net, rng: Rng) -> str | None:
    """A Python number rounded to half where it should have been widened."""
    kind = ("bfloat16", "float16")[int(rng.integers(2))]
    return _edit(net, rng, ("literal", "epsilon"), lambda value, rng: to_half(value, kind))


def _at(net: Net, rng: Rng, spots: list[Spot], change: Callable[[Spot], None]) -> str | None:
    spot = _draw(rng, spots)
    if spot is None:
        return None
    change(spot)
    return str(spot.label)


@fault("activation replaced")
def activation_replaced(net: Net, rng: Rng) -> str | None:
    return _at(net, rng, net.activations(), net.replace_activation)


@fault("wrong padding")
def wrong_padding(net: Net, rng: Rng) -> str | None:
    return _at(net, rng, net.paddings(), net.shift_padding)


@fault("wrong axis")
def wrong_axis(net: Net, rng: Rng) -> str | None:
    return _at(net, rng, net.axes(), net.change_axis)


def _exchanged(net: Net, rng: Rng, side: str) -> str | None:
    pair = _draw(rng, net.twins(side))
    if pair is None:
        return None
    net.exchange(side, pair)
    return " and ".join(pair)


@fault("inputs swapped")
def inputs_swapped(net: Net, rng: Rng) -> str | None:
    return _exchanged(net, rng, "inputs")


@fault("outputs swapped")
def outputs_swapped(net: Net, rng: Rng) -> str | None:
    return _exchanged(net, rng, "outputs")


def _computed(net: Net) -> list[Edge]:
    return [e for e in net.edges() if e.op not in _COPIES]


@fault("cast dropped on the wrong edge")
def cast_dropped(net: Net, rng: Rng) -> str | None:
    """One number on the way is rounded to half, as where a Cast was taken off the wrong side."""
    edge = _draw(rng, _computed(net))
    bits = (8, 11)[int(rng.integers(2))]
    net.insert(edge, lambda pen, x: pen.through(x, bits))
    return f"{bits} bits after {edge.op} {edge.label}"


@fault("function body left in half")
def body_in_half(net: Net, rng: Rng) -> str | None:
    """All numbers of a loop's body, or of a third of the ops, are rounded to half."""
    edges = _computed(net)
    bodies = {e.graph for e in edges} - {0}
    if bodies:
        inside = [e for e in edges if e.graph in bodies]
    else:
        depth = max(e.depth for e in edges) + 1
        first = int(rng.integers(depth))
        inside = [e for e in edges if first <= e.depth < first + max(2, depth // 3)]
    bits = (8, 11)[int(rng.integers(2))]
    for edge in inside:
        net.insert(edge, lambda pen, x: pen.through(x, bits))
    return f"{bits} bits, {len(inside)} ops from {inside[0].label}" if inside else None


@fault("sign of an activation flipped")
def activation_negated(net: Net, rng: Rng) -> str | None:
    edge = _draw(rng, _computed(net))
    net.insert(edge, lambda pen, x: pen.op("neg", x))
    return f"{edge.op} {edge.label}"


def rare_nan(net: Net, rng: Rng, lowest: Callable[[Net, str], float]) -> str | None:
    """NaN for one sample in 1,000: the root of what is negative below a limit, times 0.

    Args:
        net: The file.
        rng: Draws the place among the last products and what follows them.
        lowest: Of an exposed output, what `RARE_SHARE` of many samples go below.
    """
    edges = [e for e in _computed(net) if e.graph == 0 and e.op != "LSTM"][-3:]
    edge = _draw(rng, edges)
    observed = open_net(net.path)
    limit = lowest(observed, observed.expose(edge))

    def chain(pen: Any, x: Any) -> Any:
        root = pen.op("sqrt", pen.op("sub", x, pen.constant(limit)))
        return pen.op("add", x, pen.op("mul", root, pen.constant(0.0)))

    net.insert(edge, chain)
    return f"below {limit:.3g} in {edge.op} {edge.label}"
