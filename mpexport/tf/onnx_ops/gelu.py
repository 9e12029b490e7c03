"""GELUs as the one node that ONNX has for them from opset 20 on.

Given (``c`` is √½, which a 16-bit trace has rounded to 0.70703125)::

    y = Mul(Mul(0.5, x), Sub(1, Erf(Mul(Neg(x), c))))

Result::

    y = Gelu(x)                                        c as exact as float32 can be
    y = Mul(Gelu(Mul(x, s)), 1 / s), s = c √2          c rounded: the same function still

The form with tanh has two constants; when they are rounded no scale mends both, and the nodes stay.
Before opset 20 an exact GELU becomes the chain of nodes that runtimes fuse when they load a file::

    y = Mul(Mul(x, Add(Erf(Div(x, √2)), 1)), 0.5)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import TensorProto
from tf2onnx import utils

from mpexport.tf.onnx_ops import OpHandlers

FIRST_OPSET = 20
# A constant made of two or three float32 operations.
_EXACT = 4 * 2.0**-24
# One rounded to bfloat16 at most, which has 8 bits, and the constant half beside it.
_ROUNDED = 2.0**-7
_TANH_SCALE, _TANH_CUBIC = math.sqrt(2 / math.pi), 0.044715
_WRAPPERS = ("Identity", "Neg", "Mul", "RealDiv")


def _number(graph: Any, ref: str) -> float | None:
    """The value of a constant of one float32 element."""
    node = graph.get_node_by_output(ref)
    if node is None or not node.is_const():
        return None
    value = node.get_tensor_value(as_list=False)
    if value.size != 1 or value.ndim or value.dtype != np.float32:
        return None
    return float(value)


def _split(graph: Any, node: Any) -> tuple[float, str] | None:
    """A binary op of a number and a tensor."""
    for this, other in ((0, 1), (1, 0)):
        number = _number(graph, node.input[this])
        if number is not None:
            return number, node.input[other]
    return None


def _scaled(graph: Any, ref: str) -> tuple[float, str]:
    """``(k, x)`` of a tensor that is ``k x``, with ``x`` as far up as that goes."""
    factor = 1.0
    while True:
        node = graph.get_node_by_output(ref)
        if node is None or node.type not in _WRAPPERS:
            return factor, ref
        if node.type in ("Identity", "Neg"):
            factor, ref = (-factor if node.type == "Neg" else factor), node.input[0]
            continue
        if node.type == "RealDiv":
            number = _number(graph, node.input[1])
            if not number:
                return factor, ref
            factor, ref = factor / number, node.input[0]
            continue
        parts = _split(graph, node)
        if parts is None:
            return factor, ref
        factor, ref = factor * parts[0], parts[1]


def _only_reader(graph: Any, node: Any) -> Any:
    """The one node that reads this one; None when there are more or it is an output."""
    readers = graph.find_output_consumers(node.output[0])
    return readers[0] if len(readers) == 1 and node.output[0] not in graph.outputs else None


def _one_plus(graph: Any, node: Any) -> tuple[float, Any] | None:
    """The node ``1 ± f`` above ``f``, and the sign."""
    reader = _only_reader(graph, node)
    if reader is None or reader.type not in ("Add", "AddV2", "Sub"):
        return None
    if reader.type == "Sub":
        return (-1.0, reader) if _number(graph, reader.input[0]) == 1.0 else None
    parts = _split(graph, reader)
    return (1.0, reader) if parts is not None and parts[0] == 1.0 else None


def _product(graph: Any, node: Any, x: str, scale: float) -> tuple[float, Any] | None:
    """The node ``C x f`` above ``f`` with ``C`` half the scale, and ``C``."""
    total, found = 1.0, False
    while True:
        reader = _only_reader(graph, node)
        if reader is None or reader.type != "Mul":
            return None
        other = reader.input[1 if reader.input[0] == node.output[0] else 0]
        factor, base = _scaled(graph, other)
        number = _number(graph, other)
        if number is not None:
            total *= number
        elif base == x and not found:
            total, found = total * factor, True
        else:
            return None
        node = reader
        if found and abs(2 * total / scale - 1) < _ROUNDED:
            return total, node


def _monomial(graph: Any, ref: str, x: str) -> tuple[float, float] | None:
    """``(k, n)`` of a tensor that is ``k xⁿ``."""
    if ref == x:
        return 1.0, 1.0
    number = _number(graph, ref)
    if number is not None:
        return number, 0.0
    node = graph.get_node_by_output(ref)
    if node is None or node.type not in ("Mul", "Pow", "Square"):
        return None
    first = _monomial(graph, node.input[0], x)
    if first is None:
        return None
    if node.type == "Mul":
        second = _monomial(graph, node.input[1], x)
        return None if second is None else (first[0] * second[0], first[1] + second[1])
    power = 2.0 if node.type == "Square" else _number(graph, node.input[1])
    return None if power is None or first[0] < 0 else (first[0] ** power, first[1] * power)


def _tanh_source(graph: Any, node: Any) -> str | None:
    """The ``x`` of ``tanh(√(2/π) (x + 0.044715 x³))``."""
    outer, inner = _scaled(graph, node.input[0])
    total = graph.get_node_by_output(inner)
    if total is None or total.type not in ("Add", "AddV2"):
        return None
    for x in [_scaled(graph, ref)[1] for ref in total.input]:
        terms = [_monomial(graph, ref, x) for ref in total.input]
        known = {t[1]: t[0] for t in terms if t is not None}
        if (
            set(known) == {1.0, 3.0}
            and abs(outer * known[1.0] / _TANH_SCALE - 1) < _EXACT
            and abs(known[3.0] / known[1.0] / _TANH_CUBIC - 1) < _EXACT
        ):
            return x
    return None


def _times(graph: Any, ref: str, number: float, **last: Any) -> str:
    return _binary(graph, "Mul", ref, number, **last)


def _binary(graph: Any, op: str, ref: str, number: float, **last: Any) -> str:
    constant = graph.make_const(utils.make_name("gelu"), np.array(number, np.float32))
    output: str = graph.make_node(op, [ref, constant.output[0]], **last).output[0]
    return output


def _replace(graph: Any, node: Any, x: str, scale: float, total: float, kind: str) -> None:
    """Puts ``total x (1 + f(scale x))`` as a Gelu in a product's place."""
    name, output = node.name, node.output[0]
    last = {"shapes": [graph.get_shape(output)], "dtypes": [graph.get_dtype(output)]}
    graph.remove_node(name)
    is_exact = abs(scale - 1) < _EXACT
    source = x if is_exact else _times(graph, x, scale)
    after = 2 * total / (1.0 if is_exact else scale)
    attr = {"approximate": kind}
    if abs(after - 1) < _EXACT:
        graph.make_node("Gelu", [source], attr, name=name, outputs=[output], **last)
        return
    made = graph.make_node("Gelu", [source], attr, **last).output[0]
    _times(graph, made, after, name=name, outputs=[output], **last)


def _write_out(graph: Any, node: Any, x: str) -> None:
    """Puts an exact GELU as its well-known chain in a product's place."""
    name, output = node.name, node.output[0]
    kept = {"shapes": [graph.get_shape(output)], "dtypes": [graph.get_dtype(output)]}
    graph.remove_node(name)
    inner = _binary(graph, "Div", x, math.sqrt(2), **kept)
    erf = graph.make_node("Erf", [inner], **kept).output[0]
    share = _binary(graph, "Add", erf, 1.0, **kept)
    product = graph.make_node("Mul", [x, share], **kept).output[0]
    _times(graph, product, 0.5, name=name, outputs=[output], **kept)


def fuse(graph: Any, ops: list[Any]) -> list[Any]:
    """A rewriter as tf2onnx takes them."""
    for node in ops:
        if node.type not in ("Erf", "Tanh") or graph.get_dtype(node.output[0]) != TensorProto.FLOAT:
            continue
        found = _one_plus(graph, node)
        if found is None:
            continue
        sign, half = found
        if node.type == "Erf":
            factor, x = _scaled(graph, node.input[0])
            # 1 - erf(-k x) is 1 + erf(k x).
            scale, kind = sign * factor * math.sqrt(2), "none"
        else:
            source = _tanh_source(graph, node) if sign > 0 else None
            if source is None:
                continue
            x, scale, kind = source, 1.0, "tanh"
        product = _product(graph, half, x, scale) if scale > 0 else None
        if product is None or (kind == "tanh" and abs(2 * product[0] - 1) > _EXACT):
            continue
        if graph.opset >= FIRST_OPSET:
            _replace(graph, product[1], x, scale, product[0], kind)
        elif kind == "none" and abs(scale - 1) < _EXACT and abs(2 * product[0] - 1) < _EXACT:
            _write_out(graph, product[1], x)
    nodes: list[Any] = graph.get_nodes()
    return nodes


HANDLERS = OpHandlers("gelu", {}, (fuse,))
