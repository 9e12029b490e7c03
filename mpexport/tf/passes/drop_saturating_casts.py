"""Drop the clamp to the range of a 16-bit type before a Cast to it.

Given::

    c = Maximum(Minimum(x, 65504), -65504)          h = Cast{float → half}(c:z:0)

Result::

    h = Cast{float → half}(x)

A saturating cast clamps so that the cast can't overflow; Keras puts one behind a resize whose
result it narrows. With the Cast promoted to one to float32, whose range holds every float32, there
is nothing to clamp: the model built in float32 has no such ops. Fires on constants that are exactly
the largest and lowest number of the Cast's type, in either order, or in one ClipByValue.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.framework import tensor_util

from mpexport.findings import Change
from mpexport.tf.graph import HALF_TYPES, FunctionDef, NodeDef, Program, tensor_node, where
from mpexport.tf.pipeline import GraphPass, PassContext

_CLAMPS = frozenset({"Minimum", "Maximum"})


def _scalar(ref: str, nodes: dict[str, NodeDef]) -> float | None:
    node = nodes.get(tensor_node(ref))
    if node is None or node.op != "Const":
        return None
    value = tensor_util.MakeNdarray(node.attr["value"].tensor)
    return float(value) if value.ndim == 0 else None


def _bounded(ref: str, nodes: dict[str, NodeDef]) -> tuple[str, dict[str, float]]:
    """What stands before the clamps that end in a tensor, and their bounds by op."""
    bounds: dict[str, float] = {}
    node = nodes.get(tensor_node(ref))
    if node is not None and node.op == "ClipByValue" and len(node.input) == 3:
        low, high = _scalar(node.input[1], nodes), _scalar(node.input[2], nodes)
        if low is not None and high is not None:
            return node.input[0], {"Maximum": low, "Minimum": high}
    while node is not None and node.op in _CLAMPS - set(bounds) and len(node.input) == 2:
        values = [_scalar(r, nodes) for r in node.input]
        place = next((i for i, v in enumerate(values) if v is not None), None)
        if place is None:
            break
        bounds[node.op] = values[place] or 0.0
        ref = node.input[1 - place]
        node = nodes.get(tensor_node(ref))
    return ref, bounds


def _clamped(cast: NodeDef, nodes: dict[str, NodeDef]) -> str | None:
    """What stands before the clamps to the range of the Cast's type."""
    dtype = tf.as_dtype(cast.attr["DstT"].type)
    source, bounds = _bounded(cast.input[0], nodes)
    expected = {"Minimum": float(dtype.max), "Maximum": float(dtype.min)}
    return source if bounds == expected else None


def _between(cast: NodeDef, source: str, nodes: dict[str, NodeDef]) -> set[str]:
    """The nodes that a Cast has read and its new input has not: the clamps and their bounds."""
    found: set[str] = set()
    todo = [tensor_node(cast.input[0])]
    while todo:
        name = todo.pop()
        if name in nodes and name != tensor_node(source):
            found.add(name)
            todo.extend(tensor_node(r) for r in nodes[name].input)
    return found


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
                freed |= _between(node, source, nodes)
                node.input[0] = source
                changes.append(Change(PASS.name, "clamp-removed", where(fdef, node)))
        if freed:
            _drop_unread(fdef, freed)
    return changes


PASS = GraphPass(
    name="drop_saturating_casts",
    stage="normalize",
    apply=_apply,
    after=("strip_trace_attributes",),
)
