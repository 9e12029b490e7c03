"""ONNX files for editing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.mutation.net import Array, Chain, Edge, Net, Parameter, Pen, Role, Spot, role_of_scalar

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)
# Op → place of the kernel → axis of its output channels.
_KERNELS: dict[str, dict[int, int]] = {
    "Conv": {1: 0},
    "ConvTranspose": {1: 1},
    "MatMul": {0: 0, 1: -1},
    "Gemm": {1: -1},
    "Gather": {0: -1},
    "LSTM": {1: 1, 2: 1},
    "GRU": {1: 1, 2: 1},
    "RNN": {1: 1, 2: 1},
}
_BIASES = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2, "LSTM": 3, "GRU": 3, "RNN": 3}
_ADDING, _SCALING = ("Add", "Sub"), ("Mul", "Div")
_PEN = {"mul": "Mul", "add": "Add", "sub": "Sub", "sqrt": "Sqrt", "neg": "Neg"}
_OTHER_OP = {"Relu": "Abs", "Sigmoid": "Tanh", "Tanh": "Sigmoid", "Softmax": "Sigmoid",
             "Exp": "Tanh", "Erf": "Tanh", "Reciprocal": "Identity"}  # fmt: skip
_OTHER_GATE = {b"Sigmoid": b"Tanh", b"Tanh": b"Sigmoid"}
_WINDOWS = ("Conv", "AveragePool", "MaxPool")
_RECURRENT = ("LSTM", "GRU", "RNN")


class OnnxNet(Net):
    """An ``.onnx`` file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.model = onnx.load(path)
        self.graphs = list(_graphs(self.model.graph))
        inferred = onnx.shape_inference.infer_shapes(self.model)
        self._types = {
            v.name: v.type.tensor_type.elem_type
            for g in _graphs(inferred.graph)
            for v in [*g.value_info, *g.output, *g.input]
        }
        self._constants = {i.name: i for g in self.graphs for i in g.initializer}

    def parameters(self) -> list[Parameter]:
        widened = {
            n.output[0]: n.input[0] for g in self.graphs for n in g.node if n.op_type == "Cast"
        }
        found: dict[str, Parameter] = {}
        for node in (n for g in self.graphs for n in g.node if n.op_type != "Cast"):
            for place, name in enumerate(node.input):
                name = widened.get(name, name)
                stored = self._constants.get(name)
                if stored is None or stored.data_type not in _FLOATS:
                    continue
                size, op = int(np.prod(stored.dims)), node.op_type
                role: Role
                axis = 0
                if place in _KERNELS.get(op, {}) and size > 1:
                    role, axis = "kernel", _KERNELS[op][place]
                elif size == 1:
                    role = role_of_scalar(self.get(name), op in _ADDING)
                elif place == _BIASES.get(op) or op in _ADDING:
                    role = "bias"
                elif op in _SCALING:
                    role = "scale"
                else:
                    continue
                found.setdefault(name, Parameter(name, role, axis))
        return list(found.values())

    def get(self, name: str) -> Array:
        return numpy_helper.to_array(self._constants[name]).astype(np.float32)

    def set(self, name: str, value: Array) -> None:
        stored = self._constants[name]
        dtype = helper.tensor_dtype_to_np_dtype(stored.data_type)
        with np.errstate(over="ignore"):
            made = numpy_helper.from_array(np.ascontiguousarray(value).astype(dtype), name)
        made.dims[:] = stored.dims
        stored.CopyFrom(made)

    def edges(self) -> list[Edge]:
        return [
            Edge(g, name, name, node.op_type, depth)
            for g, graph in enumerate(self.graphs)
            for depth, node in enumerate(graph.node)
            if not (node.op_type == "Cast" and node.input[0] in self._constants)
            for name in node.output
            if self._types.get(name) == TensorProto.FLOAT
        ]

    def insert(self, edge: Edge, chain: Chain) -> None:
        graph, name = self.graphs[edge.graph], str(edge.tensor)
        place, producer = next((i, n) for i, n in enumerate(graph.node) if name in n.output)
        raw = f"{name}/fault"
        producer.output[:] = [raw if o == name else o for o in producer.output]
        pen = _OnnxPen(self, graph, raw)
        chain(pen, raw)
        pen.nodes[-1].output[0] = name
        nodes = list(graph.node)
        nodes[place + 1 : place + 1] = pen.nodes
        del graph.node[:]
        graph.node.extend(nodes)

    def add_constant(self, graph: Any, value: Array) -> str:
        """A new constant of a graph; returns its name."""
        name = f"fault/constant_{len(graph.initializer)}"
        graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    def expose(self, edge: Edge) -> str:
        self.model.graph.output.append(
            helper.make_tensor_value_info(str(edge.tensor), TensorProto.FLOAT, None)
        )
        return str(edge.tensor)

    def _spots(self, wanted: Any) -> list[Spot]:
        return [
            Spot(g, i, f"{node.op_type} {node.output[0]}")
            for g, graph in enumerate(self.graphs)
            for i, node in enumerate(graph.node)
            if wanted(node)
        ]

    def _node(self, spot: Spot) -> Any:
        return self.graphs[spot.graph].node[spot.position]

    def activations(self) -> list[Spot]:
        return self._spots(lambda node: node.op_type in (*_OTHER_OP, *_RECURRENT))

    def replace_activation(self, spot: Spot) -> None:
        node = self._node(spot)
        if node.op_type in _RECURRENT:
            for attribute in node.attribute:
                if attribute.name == "activations":
                    # The last one: that of the state.
                    last = attribute.strings[-1]
                    attribute.strings[-1] = _OTHER_GATE.get(last, b"Relu")
            return
        node.op_type = _OTHER_OP[node.op_type]
        del node.attribute[:]

    def paddings(self) -> list[Spot]:
        return self._spots(lambda node: node.op_type in _WINDOWS)

    def shift_padding(self, spot: Spot) -> None:
        node = self._node(spot)
        pads = next((a for a in node.attribute if a.name == "pads"), None)
        if pads is None or not any(pads.ints):
            given = [a for a in node.attribute if a.name not in ("pads", "auto_pad")]
            del node.attribute[:]
            node.attribute.extend([*given, helper.make_attribute("auto_pad", "SAME_UPPER")])
            return
        half = len(pads.ints) // 2
        total = [a + b for a, b in zip(pads.ints[:half], pads.ints[half:], strict=True)]
        pads.ints[:] = [*total, *[0] * half]

    def axes(self) -> list[Spot]:
        def wanted(node: Any) -> bool:
            if self._types.get(node.output[0]) != TensorProto.FLOAT:
                return False
            if node.op_type.startswith("Reduce"):
                return len(node.input) > 1 and node.input[1] in self._constants
            return node.op_type in ("Concat", "Transpose") or (
                node.op_type == "Softmax" and any(a.name == "axis" for a in node.attribute)
            )

        return self._spots(wanted)

    def change_axis(self, spot: Spot) -> None:
        node = self._node(spot)
        if node.op_type.startswith("Reduce"):
            axes = numpy_helper.to_array(self._constants[node.input[1]]).copy()
            axes.ravel()[0] += -1 if axes.ravel()[0] > 1 or axes.ravel()[0] < 0 else 1
            node.input[1] = self.add_constant(self.model.graph, axes)
            return
        for attribute in node.attribute:
            if attribute.name == "perm":
                attribute.ints[-2:] = list(attribute.ints[-2:])[::-1]
            elif attribute.name == "axis":
                attribute.i += -1 if attribute.i > 1 or attribute.i < 0 else 1

    def twins(self, side: str) -> list[tuple[str, str]]:
        values = {v.name: v.type for v in self._side(side)}
        return [
            (a, b)
            for a, b in itertools.combinations(sorted(values), 2)
            if _shape(values[a]) == _shape(values[b])
        ]

    def _side(self, side: str) -> Any:
        return self.model.graph.input if side == "inputs" else self.model.graph.output

    def exchange(self, side: str, pair: tuple[str, str]) -> None:
        other = dict(zip(pair, reversed(pair), strict=True))
        # The values stay in their order; all else that speaks of the two now means the other.
        for graph in self.graphs:
            for node in graph.node:
                node.input[:] = [other.get(i, i) for i in node.input]
                if side == "outputs":
                    node.output[:] = [other.get(o, o) for o in node.output]

    def save(self, path: Path) -> None:
        onnx.save(self.model, path)


class _OnnxPen(Pen):
    def __init__(self, net: OnnxNet, graph: Any, prefix: str) -> None:
        self._net, self._graph, self._prefix = net, graph, prefix
        self.nodes: list[Any] = []

    def op(self, kind: str, *tensors: Any) -> Any:
        name = f"{self._prefix}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(_PEN[kind], list(tensors), [name], name=name))
        return name

    def constant(self, value: float) -> Any:
        return self._net.add_constant(self._graph, np.array(value, np.float32))


def _graphs(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def _shape(kind: Any) -> tuple[Any, ...]:
    # A size that is open has another name in each value.
    sizes = tuple(d.dim_value for d in kind.tensor_type.shape.dim)
    return kind.tensor_type.elem_type, sizes
