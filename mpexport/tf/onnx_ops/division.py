"""Remainders and quotients rounded down, by ONNX's Mod.

tf2onnx divides and rounds: for integers ONNX's division truncates, so that -7 // 2 came out as -3;
for floats ``x - floor(x / y) * y`` loses every digit that ``x / y`` has before the point.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto
from tf2onnx import utils

from mpexport.tf.onnx_ops import OpHandlers

_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)


def _replaced(ctx: Any, node: Any) -> tuple[list[str], str, dict[str, Any]]:
    """Takes the node out; its inputs, its output, and what its last successor needs."""
    output = node.output[0]
    kept = {"shapes": [ctx.get_shape(output)], "dtypes": [ctx.get_dtype(output)]}
    inputs = list(node.input)
    ctx.remove_node(node.name)
    return inputs, output, {**kept, "outputs": [output]}


def _floor_mod(ctx: Any, node: Any, name: str, args: Any) -> None:
    """Of integers: Mod, whose result has the divisor's sign. Of floats: C's fmod, corrected."""
    del args
    dtype = ctx.get_dtype(node.input[0])
    (x, y), _, last = _replaced(ctx, node)
    if dtype not in _FLOATS:
        ctx.make_node("Mod", [x, y], name=name, **last)
        return
    kind = utils.map_onnx_to_numpy_type(dtype)
    zero = ctx.make_const(utils.make_name(name), np.array(0, kind)).output[0]
    rest = ctx.make_node("Mod", [x, y], attr={"fmod": 1}).output[0]
    is_below = ctx.make_node("Less", [rest, zero]).output[0]
    wants_below = ctx.make_node("Less", [y, zero]).output[0]
    differs = ctx.make_node("Xor", [is_below, wants_below]).output[0]
    is_zero = ctx.make_node("Equal", [rest, zero]).output[0]
    exists = ctx.make_node("Not", [is_zero]).output[0]
    moves = ctx.make_node("And", [differs, exists]).output[0]
    moved = ctx.make_node("Add", [rest, y]).output[0]
    ctx.make_node("Where", [moves, moved, rest], name=name, **last)


def _floor_div(ctx: Any, node: Any, name: str, args: Any) -> None:
    """Of integers: less the remainder the division is exact. Of floats: as TensorFlow does it."""
    del args
    dtype = ctx.get_dtype(node.input[0])
    (x, y), _, last = _replaced(ctx, node)
    if dtype in _FLOATS:
        quotient = ctx.make_node("Div", [x, y]).output[0]
        ctx.make_node("Floor", [quotient], name=name, **last)
        return
    rest = ctx.make_node("Mod", [x, y]).output[0]
    multiple = ctx.make_node("Sub", [x, rest]).output[0]
    ctx.make_node("Div", [multiple, y], name=name, **last)


def _truncate_mod(ctx: Any, node: Any, name: str, args: Any) -> None:
    """C's remainder, which has the dividend's sign."""
    del args
    inputs, _, last = _replaced(ctx, node)
    ctx.make_node("Mod", inputs, attr={"fmod": 1}, name=name, **last)


HANDLERS = OpHandlers(
    "division",
    {"FloorDiv": _floor_div, "FloorMod": _floor_mod, "TruncateMod": _truncate_mod},
)
