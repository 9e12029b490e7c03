"""Ids that pass through 16 bits on their way to a table: the large ones come out rounded.

float16 has every whole number up to 2048, bfloat16 up to 256. An Embedding whose Input names no
element type gets its ids as floats, which a mixed policy casts; row 2909 is then row 2908.
"""

from __future__ import annotations

from typing import Any

from tensorflow.core.framework import types_pb2

from mpexport.errors import ConversionError
from mpexport.findings import Finding, Severity
from mpexport.tf import concrete
from mpexport.tf.check import CheckContext, Rule
from mpexport.tf.graph import tensor_node
from mpexport.tf.inline import FlatGraph, flatten

_EXACT_UP_TO = {types_pb2.DT_HALF: 2048, types_pb2.DT_BFLOAT16: 256}
_INTEGERS = frozenset({types_pb2.DT_INT32, types_pb2.DT_INT64})
# Op → which inputs are the table (None for a depth) and the ids.
_LOOKUPS = {"GatherV2": (0, 1), "ResourceGather": (0, 1), "OneHot": (None, 0)}
_PASS_ON = frozenset({"Identity", "Reshape", "ExpandDims", "Squeeze", "Transpose"})


def _check(context: CheckContext) -> list[Finding]:
    if not any(node.op in _LOOKUPS for _, node in context.program.nodes()):
        return []
    findings = {}
    for key in context.program.entries:
        try:
            flat = flatten(context.program, key)
        except ConversionError:  # it changes variables: there is no flat form to look at
            continue
        for finding in _in_graph(flat):
            findings[finding.where] = finding
    return list(findings.values())


def _in_graph(flat: FlatGraph) -> list[Finding]:
    nodes = {n.name: n for n in flat.graph_def.node}

    def rounding(ref: str) -> int | None:
        """The 16-bit type that the ids of a tensor come from; None for none."""
        node = nodes.get(tensor_node(ref))
        while node is not None:
            if node.op == "Cast" and node.attr["DstT"].type in _INTEGERS:
                source = node.attr["SrcT"].type
                return source if source in _EXACT_UP_TO else None
            if node.op == "SelectV2":
                # where(ids < 0, ids + size, ids): how a negative index is wrapped around.
                node = nodes.get(tensor_node(node.input[2]))
            elif node.op in _PASS_ON or node.op == "Cast":
                node = nodes.get(tensor_node(node.input[0]))
            else:
                return None
        return None

    findings = []
    for node in nodes.values():
        if node.op not in _LOOKUPS:
            continue
        table, ids = _LOOKUPS[node.op]
        half = rounding(node.input[ids])
        if half is None:
            continue
        rows = None if table is None else _rows(flat, nodes, node.input[table])
        limit = _EXACT_UP_TO[half]
        if rows is not None and rows <= limit + 1:
            continue
        findings.append(
            Finding(
                RULE.name,
                Severity.WARNING,
                node.name,
                f"ids come from {'float16' if limit == 2048 else 'bfloat16'}, "
                f"which rounds those above {limit}",
                'give the Input an integer dtype: Input(..., dtype="int32"); '
                "exports don't round ids, so they give other rows than the trained model",
            )
        )
    return findings


def _rows(flat: FlatGraph, nodes: dict[str, Any], ref: str) -> int | None:
    """The largest axis of a table, as a bound of the ids; None for unknown."""
    node = nodes.get(tensor_node(ref))
    while node is not None and node.op in ("Identity", "Cast", "ReadVariableOp"):
        node = nodes.get(tensor_node(node.input[0]))
    if node is None:
        return None
    if node.name in flat.weights:
        shape = concrete.capture_shape(flat.weights[node.name]) or []
    elif node.op == "Const":
        shape = [d.size for d in node.attr["value"].tensor.tensor_shape.dim]
    else:
        return None
    known = [size for size in shape if size is not None]
    return max(known) if known and len(known) == len(shape) else None


RULE = Rule("rounded-ids", _check)
