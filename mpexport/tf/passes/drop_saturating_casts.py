"""Drop the clamp to the range of a 16-bit type before a Cast to it.

Given::

    c = Maximum(Minimum(x, 65504), -65504)          h = Cast{float → half}(c:z:0)

Result::

    h = Cast{float → half}(x)

A saturating cast clamps so that the cast can't overflow; Keras puts one behind a resize whose
result it narrows. With the Cast promoted to one to float32, whose range holds every float32, there
is nothing to clamp: the model built in float32 has no such ops. Fires on constants that are exactly
the largest and lowest number of the Cast's type, in either order of Minimum and Maximum.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.framework import tensor_util

from mpexport.findings import Change
from mpexport.tf.graph import HALF_TYPES, FunctionDef, NodeDef, Program, tensor_node, where
from mpexport.tf.pipeline import GraphPass, PassContext

_CLAMPS = ("Minimum", "Maximum")


def _bounded(node: NodeDef | None, nodes: dict[str, NodeDef]) -> tuple[str, float] | None:
    """What a Minimum or Maximum with a scalar constant bounds, and by which number."""
    if node is None or node.op not in _CLAMPS or len(node.input) != 2:
        return None
    for source, bound in (node.input, reversed(node.input)):
        const = nodes.get(tensor_node(bound))
        if const is not None and const.op == "Const":
            value = tensor_util.MakeNdarray(const.attr["value"].tensor)
            return (source, float(value)) if value.ndim == 0 else None
    return None


def _clamped(cast: NodeDef, nodes: dict[str, NodeDef]) -> str | None:
    """What stands before the two clamps to the range of the Cast's type."""
    dtype = tf.as_dtype(cast.attr["DstT"].type)
    outer = nodes.get(tensor_node(cast.input[0]))
    second = _bounded(outer, nodes)
    inner = nodes.get(tensor_node(second[0])) if second else None
    first = _bounded(inner, nodes)
    if outer is None or inner is None or first is None or second is None:
        return None
    bounds = {outer.op: second[1], inner.op: first[1]}
    expected = {"Minimum": float(dtype.max), "Maximum": float(dtype.min)}
    return first[0] if bounds == expected else None


def _drop_unread(fdef: FunctionDef, names: set[str]) -> None:
    """Removes nodes that nobody reads any more, and those that only they have read."""
    while True:
        read = {tensor_node(r) for n in fdef.node_def for r in n.input}
        read |= {tensor_node(r) for r in [*fdef.ret.values(), *fdef.control_ret.values()]}
        kept = [n for n in fdef.node_def if n.name not in names or n.name in read]
        if len(kept) == len(fdef.node_def):
            return
        del fdef.node_def[:]
        fdef.node_def.extend(kept)


def _apply(program: Program, context: PassContext) -> list[Change]:
    changes = []
    for fdef in program.library.values():
        nodes = {n.name: n for n in fdef.node_def}
        freed: set[str] = set()
        for node in fdef.node_def:
            if node.op != "Cast" or node.attr["DstT"].type not in HALF_TYPES:
                continue
            source = _clamped(node, nodes)
            if source is not None:
                outer = nodes[tensor_node(node.input[0])]
                inner = next(nodes[tensor_node(r)] for r in outer.input if _is_clamp(r, nodes))
                freed |= {n.name for n in (outer, inner)}
                freed |= {tensor_node(r) for n in (outer, inner) for r in n.input}
                freed.discard(tensor_node(source))
                node.input[0] = source
                changes.append(Change(PASS.name, "clamp-removed", where(fdef, node)))
        if freed:
            _drop_unread(fdef, freed)
    return changes


def _is_clamp(ref: str, nodes: dict[str, NodeDef]) -> bool:
    node = nodes.get(tensor_node(ref))
    return node is not None and node.op in _CLAMPS


PASS = GraphPass(
    name="drop_saturating_casts",
    stage="normalize",
    apply=_apply,
    after=("strip_trace_attributes",),
)
