"""A ModelProto as nested regions: who makes a tensor, who reads it, and its element type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

STANDARD_DOMAINS = ("", "ai.onnx")

# What inlining a signature puts in front of every name.
_CALL = re.compile(r"^call/(StatefulPartitionedCall(_\d+)?/)*")
# Shape inference wants the values of small tensors, such as the scales of a Resize.
_READ_BY_INFERENCE = 64

# A tensor: the number of the region that defines it, and its name.
Key = tuple[int, str]


@dataclass
class Region:
    """The main graph, or the body of a Loop, If or Scan.

    Attributes:
        index: Its number; a region comes after the one around it.
        graph: The GraphProto.
        nodes: ``graph.node`` as a list, so that the objects live on.
        parent: The region around it.
        path: Names of the nodes it is the body of, outermost first, each with a slash.
        types: Tensor defined here → element type of ONNX.
        bodies: Number of a node → its bodies.
        labels: For each node: where it belongs, see `_label`.
    """

    index: int
    graph: Any
    nodes: list[Any]
    parent: Region | None
    path: str
    types: dict[str, int] = field(default_factory=dict)
    bodies: dict[int, list[Region]] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)


def body_graphs(node: Any) -> Iterator[Any]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_graphs(model: Any) -> Iterator[Any]:
    """The main graph and all bodies."""
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        yield graph
        for node in graph.node:
            pending.extend(body_graphs(node))


class Nest:
    """All regions of a model.

    Args:
        model: The ModelProto; is not changed.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.opsets = {o.domain: o.version for o in model.opset_import}
        self.regions: list[Region] = []
        self._add(model.graph, None, "")
        inferred = _with_types(model)
        for region, graph in zip(self.regions, _in_order(inferred.graph)):
            region.types = _types_of(graph)
        self._label()

    def _add(self, graph: Any, parent: Region | None, path: str) -> Region:
        region = Region(len(self.regions), graph, list(graph.node), parent, path)
        self.regions.append(region)
        for i, node in enumerate(region.nodes):
            bodies = [self._add(g, region, f"{path}{node.name}/") for g in body_graphs(node)]
            if bodies:
                region.bodies[i] = bodies
        return region

    def nodes(self) -> Iterator[tuple[Region, int, Any]]:
        """Every node, in the order in which a body comes after its node."""
        for region in self.regions:
            for i, node in enumerate(region.nodes):
                yield region, i, node

    def find(self, region: Region, name: str) -> Key:
        """The tensor that a name means inside a region."""
        at: Region | None = region
        while at is not None:
            if name in at.types:
                return at.index, name
            at = at.parent
        return region.index, name  # of a type that shape inference does not know

    def elem_type(self, region: Region, name: str) -> int:
        """Element type of what a name means inside a region; 0 when unknown, or for no name."""
        index, name = self.find(region, name)
        return self.regions[index].types.get(name, 0)

    def schema(self, node: Any) -> Any:
        """The schema of a node's op in the model's opset; None for another domain."""
        if node.domain not in STANDARD_DOMAINS:
            return None
        try:
            return onnx.defs.get_schema(node.op_type, self.opsets.get("", 1), "")
        except onnx.defs.SchemaError:
            return None

    def initializers(self) -> dict[Key, Any]:
        """Every initializer."""
        return {(r.index, t.name): t for r in self.regions for t in r.graph.initializer}

    def names(self) -> set[str]:
        """Every name of a tensor or node."""
        found = {n for r in self.regions for n in r.types}
        for region in self.regions:
            found.update(n.name for n in region.nodes)
            found.update(o for n in region.nodes for o in n.output)
        return found

    def _label(self) -> None:
        """Gives each node the name to show and to match patterns with.

        That is its own name; a name without a scope (tf2onnx writes ``MatMul__12`` where it takes
        an op apart) gets the scope of what reads the node.
        """
        for region in reversed(self.regions):
            region.labels = [""] * len(region.nodes)
            readers: dict[str, str] = {}
            for i in range(len(region.nodes) - 1, -1, -1):
                node = region.nodes[i]
                scope, slash, _ = node.name.rpartition("/")
                if not slash:
                    scope = next((readers[o] for o in node.output if o in readers), "")
                own = node.name.rpartition("/")[2] or node.op_type
                label = region.path + (f"{scope}/{own}" if scope else own)
                region.labels[i] = _CALL.sub("", label)
                for name in node.input if scope else ():
                    readers.setdefault(name, scope)


def _in_order(graph: Any) -> Iterator[Any]:
    """Graphs in the order in which `Nest` numbers them."""
    yield graph
    for node in graph.node:
        for body in body_graphs(node):
            yield from _in_order(body)


def _with_types(model: Any) -> Any:
    """Shape inference without large weights: they may exceed what a message can hold."""
    skeleton = onnx.ModelProto(ir_version=model.ir_version)
    skeleton.opset_import.extend(model.opset_import)
    skeleton.functions.extend(model.functions)
    graph = skeleton.graph
    graph.name = model.graph.name
    for part in ("node", "input", "output", "value_info"):
        getattr(graph, part).extend(getattr(model.graph, part))
    for tensor in model.graph.initializer:
        is_float = tensor.data_type in (TensorProto.FLOAT, TensorProto.FLOAT16)
        if is_float and elements(tensor) > _READ_BY_INFERENCE:
            graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        else:
            graph.initializer.add().CopyFrom(tensor)
    return onnx.shape_inference.infer_shapes(skeleton)


def _types_of(graph: Any) -> dict[str, int]:
    types = {t.name: t.data_type for t in graph.initializer}
    for value in [*graph.input, *graph.value_info, *graph.output]:
        types.setdefault(value.name, value.type.tensor_type.elem_type)
    for node in graph.node:
        for name in node.output:
            types.setdefault(name, 0)
    return types


def identity(region: Region, node: Any) -> str:
    """The name of a node, with those of the nodes it is in the body of."""
    return f"{region.path}{node.name}"


def type_names(formals: Any, count: int) -> list[str]:
    """The type of each actual input (or output) as the schema writes it; ``""`` where unknown."""
    names = []
    for i in range(count):
        formal = formals[min(i, len(formals) - 1)] if formals else None
        names.append(formal.type_str if formal is not None else "")
    return names


def half_parameters(schema: Any) -> set[str]:
    """The type parameters of an op that may be float32 and may be float16."""
    both = {"tensor(float)", "tensor(float16)"}
    return {c.type_param_str for c in schema.type_constraints if both <= set(c.allowed_type_strs)}


def constants_to_initializers(model: Any) -> None:
    """Turns Constant nodes that hold a float32 tensor into initializers, in place."""
    for graph in all_graphs(model):
        kept = []
        for node in graph.node:
            value = next((a.t for a in node.attribute if a.name == "value"), None)
            is_float = value is not None and value.data_type == TensorProto.FLOAT
            if node.op_type == "Constant" and is_float:
                graph.initializer.add().CopyFrom(value)
                graph.initializer[-1].name = node.output[0]
            else:
                kept.append(node)
        if len(kept) != len(graph.node):
            copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in kept]
            del graph.node[:]
            graph.node.extend(copies)


def values(tensor: Any) -> Any:
    """The content of an initializer as a numpy array."""
    return onnx.numpy_helper.to_array(tensor)


def elements(tensor: Any) -> int:
    """How many elements a TensorProto has."""
    return int(np.prod(tensor.dims, dtype=np.int64))


class Names:
    """Gives names that a model has not."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken

    def fresh(self, wanted: str) -> str:
        """``wanted``, or that with a number."""
        name, count = wanted, 1
        while name in self._taken:
            count += 1
            name = f"{wanted}_{count}"
        self._taken.add(name)
        return name
