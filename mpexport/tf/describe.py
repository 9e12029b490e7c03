"""What the parent needs to know of a normalized model, as JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tensorflow.python.framework import tensor_util

from mpexport.errors import ConversionError
from mpexport.signature import Signature
from mpexport.tf import concrete
from mpexport.tf.graph import NodeDef, Program
from mpexport.tf.inline import flatten, node_name
from mpexport.tf.normalized import NormalizedModel

# Ops whose output holds the values of their first input, so that an index stays an index.
_PASS_ON = frozenset(
    {
        "Cast",
        "ExpandDims",
        "Identity",
        "Reshape",
        "Squeeze",
        "StopGradient",
        "StridedSlice",
        "Tile",
        "Transpose",
    }
)
_GATHERS = frozenset({"ResourceGather", "ResourceGatherNd", "GatherV2", "GatherNd", "OneHot"})


def describe(model: NormalizedModel) -> dict[str, Any]:
    """Signatures, ranges of index inputs, weight bytes, changes and versions."""
    keys = list(model.program.entries)
    original = {
        k: Signature(k, tuple(e.inputs), tuple(e.outputs))
        for k, e in model.original.entries.items()
    }
    counted = Counter((c.pass_name, c.kind) for c in model.changes)
    return {
        "chosen": model.source.chosen,
        "distinct": model.source.distinct(),
        "signatures": {k: model.signature(k).to_json() for k in keys},
        "original_signatures": {k: s.to_json() for k, s in original.items()},
        "ranges": {k: index_ranges(model.program, k) for k in model.source.distinct()},
        "weight_bytes": {k: model.weight_bytes([k]) for k in keys},
        "total_weight_bytes": model.weight_bytes(),
        "notes": model.notes,
        "changes": [
            {"pass": p, "kind": kind, "count": n} for (p, kind), n in sorted(counted.items())
        ],
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Versions of the packages that make the files."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for package in ("tensorflow", "keras", "tf-keras", "tf2onnx", "onnx", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def index_ranges(program: Program, key: str) -> dict[str, list[int]]:
    """Which inputs are indices into tables, and the largest index every table allows.

    Args:
        program: The normalized program.
        key: Signature key.

    Returns:
        Input name → ``[0, size - 1]`` of the smallest table it indexes.
    """
    if not any(node.op in _GATHERS for _, node in program.nodes()):
        return {}
    try:
        flat = flatten(program, key)
    except ConversionError:  # it changes variables: there is no flat form to look at
        return {}
    nodes = {n.name: n for n in flat.graph_def.node}
    origin = {node_name(s.name): s.name for s in flat.entry.inputs}

    def source(ref: str) -> str | None:
        name = ref.partition(":")[0]
        while name in nodes and nodes[name].op in _PASS_ON:
            name = nodes[name].input[0].partition(":")[0]
        if name in nodes and nodes[name].op == "SelectV2":
            # where(ids < 0, ids + size, ids): how a negative index is wrapped around.
            return source(nodes[name].input[2])
        return origin.get(name)

    def table_shape(ref: str) -> list[int | None]:
        name = ref.partition(":")[0]
        while name in nodes and nodes[name].op == "Identity":
            name = nodes[name].input[0].partition(":")[0]
        if name in flat.weights:
            return concrete.capture_shape(flat.weights[name]) or []
        if name in nodes and nodes[name].op == "Const":
            return [d.size for d in nodes[name].attr["value"].tensor.tensor_shape.dim]
        return []

    def rows(node: NodeDef, name: str | None) -> int | None:
        """The size of the indexed axis; of several (GatherNd), the smallest."""
        shape = table_shape(node.input[0])
        if node.op == "GatherNd":
            indices = next((s.shape for s in flat.entry.inputs if s.name == name), None)
            depth = indices[-1] if indices else None
            return min((s for s in shape[:depth] if s), default=None)
        axis = nodes.get(node.input[2].partition(":")[0])
        if axis is None or axis.op != "Const" or not shape:
            return None
        return shape[int(tensor_util.MakeNdarray(axis.attr["value"].tensor))]

    ranges: dict[str, list[int]] = {}
    for node in nodes.values():
        if node.op in ("GatherV2", "GatherNd"):
            name = source(node.input[1])
            size = rows(node, name)
        elif node.op == "OneHot":
            name = source(node.input[0])
            depth = nodes.get(node.input[1].partition(":")[0])
            size = None
            if depth is not None and depth.op == "Const":
                size = int(tensor_util.MakeNdarray(depth.attr["value"].tensor))
        else:
            continue
        if name is not None and size:
            ranges[name] = [0, min(size - 1, ranges.get(name, [0, size - 1])[1])]
    return ranges
