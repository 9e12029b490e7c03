"""TFLite files for editing, by the object interface of the schema."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.mutation.net import Array, Chain, Edge, Net, Parameter, Pen, Role, Spot, role_of_scalar

_NAMES = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}
_TYPES = {schema.TensorType.FLOAT32: np.float32, schema.TensorType.FLOAT16: np.float16}
# Op → place of the kernel → axis of its output channels.
_KERNELS: dict[str, dict[int, int]] = {
    "CONV_2D": {1: 0},
    "CONV_3D": {1: 4},
    "DEPTHWISE_CONV_2D": {1: 3},
    "FULLY_CONNECTED": {1: 0},
    "TRANSPOSE_CONV": {1: 0},
    "BATCH_MATMUL": {0: 0, 1: -1},
    "GATHER": {0: -1},
    "UNIDIRECTIONAL_SEQUENCE_LSTM": dict.fromkeys(range(1, 9), 0),
}
_BIASES = {
    "CONV_2D": (2,),
    "CONV_3D": (2,),
    "DEPTHWISE_CONV_2D": (2,),
    "FULLY_CONNECTED": (2,),
    "TRANSPOSE_CONV": (3,),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (12, 13, 14, 15),
}
_ADDING, _SCALING = ("ADD", "SUB"), ("MUL", "DIV")
_PEN = {"mul": "MUL", "add": "ADD", "sub": "SUB", "sqrt": "SQRT", "neg": "NEG"}
_OPTIONS = {"MUL": "MulOptions", "ADD": "AddOptions", "SUB": "SubOptions", "PAD": "PadOptions"}
_FUSED = schema.ActivationFunctionType
# What a fused activation becomes: the one that is easily taken for it, or forgotten.
_OTHER_FUSED = {_FUSED.RELU: _FUSED.RELU6, _FUSED.RELU6: _FUSED.RELU, _FUSED.TANH: _FUSED.NONE}
_OTHER_OP = {"LOGISTIC": "TANH", "TANH": "LOGISTIC", "SOFTMAX": "LOGISTIC", "RELU": "ABS",
             "EXP": "TANH", "RSQRT": "SQRT", "HARD_SWISH": "RELU"}  # fmt: skip
_WINDOWS = ("CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D")
_REDUCTIONS = ("MEAN", "SUM", "REDUCE_MAX", "TRANSPOSE")


class TfliteNet(Net):
    """A ``.tflite`` file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.model = schema.ModelT.InitFromPackedBuf(bytearray(path.read_bytes()), 0)

    def op_name(self, op: Any) -> str:
        """The builtin's name."""
        code = self.model.operatorCodes[op.opcodeIndex]
        return _NAMES[max(code.builtinCode, code.deprecatedBuiltinCode)]

    def _data(self, tensor: Any) -> Any:
        return self.model.buffers[tensor.buffer].data

    def _is_constant(self, tensor: Any) -> bool:
        data = self._data(tensor)
        return tensor.type in _TYPES and data is not None and len(data) > 0

    def _readers(self) -> list[tuple[int, int, str, int]]:
        """Graph, tensor, op and place for all that reads a constant, widened ones seen through."""
        found = []
        for g, graph in enumerate(self.model.subgraphs):
            widened = {
                int(op.outputs[0]): int(op.inputs[0])
                for op in graph.operators
                if self.op_name(op) == "DEQUANTIZE"
            }
            for op in graph.operators:
                if self.op_name(op) == "DEQUANTIZE":
                    continue
                for place, index in enumerate([] if op.inputs is None else op.inputs):
                    index = widened.get(int(index), int(index))
                    if index >= 0 and self._is_constant(graph.tensors[index]):
                        found.append((g, index, self.op_name(op), place))
        return found

    def parameters(self) -> list[Parameter]:
        found: dict[int, Parameter] = {}
        for g, index, op, place in self._readers():
            tensor = self.model.subgraphs[g].tensors[index]
            size = int(np.prod(tensor.shape)) if tensor.shape is not None else 1
            role: Role
            axis = 0
            if place in _KERNELS.get(op, {}) and size > 1:
                role, axis = "kernel", _KERNELS[op][place]
            elif size == 1:
                role = role_of_scalar(self.get(f"{g}:{index}"), op in _ADDING)
            elif place in _BIASES.get(op, ()) or op in _ADDING:
                role = "bias"
            elif op in _SCALING:
                role = "scale"
            else:
                continue
            # Tensors may share a buffer, and an edit would then be seen twice.
            found.setdefault(tensor.buffer, Parameter(f"{g}:{index}", role, axis))
        return list(found.values())

    def _tensor(self, name: str) -> Any:
        g, index = map(int, name.split(":"))
        return self.model.subgraphs[g].tensors[index]

    def get(self, name: str) -> Array:
        tensor = self._tensor(name)
        raw = np.asarray(self._data(tensor), np.uint8).tobytes()
        shape = () if tensor.shape is None else tuple(tensor.shape)
        return np.frombuffer(raw, _TYPES[tensor.type]).reshape(shape).astype(np.float32)

    def set(self, name: str, value: Array) -> None:
        tensor = self._tensor(name)
        with np.errstate(over="ignore"):
            stored = np.ascontiguousarray(value).astype(_TYPES[tensor.type])
        self.model.buffers[tensor.buffer].data = np.frombuffer(stored.tobytes(), np.uint8)

    def edges(self) -> list[Edge]:
        return [
            Edge(g, int(index), f"{graph.tensors[index].name.decode()}", self.op_name(op), depth)
            for g, graph in enumerate(self.model.subgraphs)
            for depth, op in enumerate(graph.operators)
            if self.op_name(op) != "DEQUANTIZE"
            for index in op.outputs
            if graph.tensors[index].type == schema.TensorType.FLOAT32
        ]

    def insert(self, edge: Edge, chain: Chain) -> None:
        graph = self.model.subgraphs[edge.graph]
        tensor = int(edge.tensor)  # type: ignore[call-overload]
        place, producer = next(
            (i, op)
            for i, op in enumerate(graph.operators)
            if tensor in [int(o) for o in op.outputs]
        )
        pen = _TflitePen(self, graph, graph.tensors[tensor])
        raw = pen.tensor()
        producer.outputs = [raw if int(o) == tensor else int(o) for o in producer.outputs]
        last = chain(pen, raw)
        pen.ops[-1].outputs = [tensor if o == last else o for o in pen.ops[-1].outputs]
        graph.operators[place + 1 : place + 1] = pen.ops

    def opcode(self, name: str) -> int:
        """Index of an operator code, made if missing."""
        number = getattr(schema.BuiltinOperator, name)
        for i, code in enumerate(self.model.operatorCodes):
            if max(code.builtinCode, code.deprecatedBuiltinCode) == number:
                return i
        made = schema.OperatorCodeT()
        made.builtinCode, made.deprecatedBuiltinCode, made.version = number, min(number, 127), 1
        self.model.operatorCodes.append(made)
        return len(self.model.operatorCodes) - 1

    def add_constant(self, graph: Any, value: Array, kind: int) -> int:
        """A new constant of a graph; returns its index."""
        buffer, tensor = schema.BufferT(), schema.TensorT()
        buffer.data = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
        self.model.buffers.append(buffer)
        tensor.name = f"fault/{len(graph.tensors)}".encode()
        tensor.shape, tensor.type, tensor.hasRank = list(value.shape), kind, True
        tensor.buffer = len(self.model.buffers) - 1
        graph.tensors.append(tensor)
        return len(graph.tensors) - 1

    def expose(self, edge: Edge) -> str:
        signature, graph = self.model.signatureDefs[0], self.model.subgraphs[0]
        graph.outputs = [*(int(o) for o in graph.outputs), edge.tensor]
        item = schema.TensorMapT()
        item.name, item.tensorIndex = b"exposed", edge.tensor
        signature.outputs.append(item)
        return "exposed"

    def _spots(self, wanted: Any) -> list[Spot]:
        return [
            Spot(g, i, f"{self.op_name(op)} {graph.tensors[op.outputs[0]].name.decode()}")
            for g, graph in enumerate(self.model.subgraphs)
            for i, op in enumerate(graph.operators)
            if wanted(graph, op)
        ]

    def _op(self, spot: Spot) -> tuple[Any, Any]:
        graph = self.model.subgraphs[spot.graph]
        return graph, graph.operators[spot.position]

    def activations(self) -> list[Spot]:
        def wanted(graph: Any, op: Any) -> bool:
            fused = getattr(op.builtinOptions, "fusedActivationFunction", _FUSED.NONE)
            return fused in _OTHER_FUSED or self.op_name(op) in _OTHER_OP

        return self._spots(wanted)

    def replace_activation(self, spot: Spot) -> None:
        _, op = self._op(spot)
        fused = getattr(op.builtinOptions, "fusedActivationFunction", _FUSED.NONE)
        if fused in _OTHER_FUSED:
            op.builtinOptions.fusedActivationFunction = _OTHER_FUSED[fused]
        else:
            op.opcodeIndex = self.opcode(_OTHER_OP[self.op_name(op)])
            op.builtinOptions, op.builtinOptionsType = None, schema.BuiltinOptions.NONE

    def paddings(self) -> list[Spot]:
        return self._spots(lambda graph, op: self.op_name(op) in _WINDOWS)

    def shift_padding(self, spot: Spot) -> None:
        graph, op = self._op(spot)
        if op.builtinOptions.padding == schema.Padding.VALID:
            op.builtinOptions.padding = schema.Padding.SAME
            return
        # What SAME pads, all at the beginning.
        options, source = op.builtinOptions, int(op.inputs[0])
        sizes = [int(n) for n in graph.tensors[source].shape[1:3]]
        if "CONV" in self.op_name(op):
            kernel = [int(n) for n in graph.tensors[op.inputs[1]].shape[1:3]]
            dilation = [options.dilationHFactor, options.dilationWFactor]
        else:
            kernel, dilation = [options.filterHeight, options.filterWidth], [1, 1]
        amounts = np.zeros((4, 2), np.int32)
        for i, stride in enumerate([options.strideH, options.strideW]):
            span = (kernel[i] - 1) * dilation[i] + 1
            amounts[1 + i, 0] = max(0, (-(-sizes[i] // stride) - 1) * stride + span - sizes[i])
        padded = copy.copy(graph.tensors[source])
        padded.name = b"fault/padded"
        padded.shape = [int(n) + int(a.sum()) for n, a in zip(padded.shape, amounts, strict=True)]
        if padded.shapeSignature is not None:
            padded.shapeSignature = [-1, *padded.shape[1:]]
        padded.buffer = 0
        graph.tensors.append(padded)
        pad = self.make_op("PAD")
        made = len(graph.tensors) - 1
        pad.inputs = [source, self.add_constant(graph, amounts, schema.TensorType.INT32)]
        pad.outputs = [made]
        op.inputs = [made, *(int(i) for i in op.inputs[1:])]
        options.padding = schema.Padding.VALID
        graph.operators.insert(spot.position, pad)

    def make_op(self, name: str) -> Any:
        """A new operator without inputs and outputs."""
        op = schema.OperatorT()
        op.opcodeIndex = self.opcode(name)
        if name in _OPTIONS:
            op.builtinOptionsType = getattr(schema.BuiltinOptions, _OPTIONS[name])
            op.builtinOptions = getattr(schema, _OPTIONS[name] + "T")()
        return op

    def axes(self) -> list[Spot]:
        def wanted(graph: Any, op: Any) -> bool:
            name = self.op_name(op)
            if name == "CONCATENATION":
                return graph.tensors[op.outputs[0]].type == schema.TensorType.FLOAT32
            if name not in _REDUCTIONS:
                return False
            data = self._data(graph.tensors[op.inputs[1]])
            return data is not None and len(data) >= (8 if name == "TRANSPOSE" else 4)

        return self._spots(wanted)

    def change_axis(self, spot: Spot) -> None:
        graph, op = self._op(spot)
        rank = len(graph.tensors[op.inputs[0]].shape)
        if self.op_name(op) == "CONCATENATION":
            axis = op.builtinOptions.axis % rank
            op.builtinOptions.axis = axis - 1 if axis > 1 else axis + 1
            return
        old = graph.tensors[op.inputs[1]]
        axes = np.frombuffer(np.asarray(self._data(old), np.uint8).tobytes(), np.int32).copy()
        if self.op_name(op) == "TRANSPOSE":
            axes[-2:] = axes[-2:][::-1]
        else:
            first = int(axes[0]) % rank
            axes[0] = first - 1 if first > 1 else first + 1
        index = self.add_constant(graph, axes.reshape(tuple(old.shape)), old.type)
        op.inputs = [int(op.inputs[0]), index]

    def twins(self, side: str) -> list[tuple[str, str]]:
        tensors = self.model.subgraphs[0].tensors
        items = {i.name.decode(): tensors[i.tensorIndex] for i in self._side(side)}
        return [
            (a, b)
            for a, b in itertools.combinations(sorted(items), 2)
            if (items[a].type, list(items[a].shape)) == (items[b].type, list(items[b].shape))
        ]

    def _side(self, side: str) -> Any:
        return getattr(self.model.signatureDefs[0], side)

    def exchange(self, side: str, pair: tuple[str, str]) -> None:
        other = dict(zip(pair, reversed(pair), strict=True))
        for item in self._side(side):
            name = item.name.decode()
            item.name = other.get(name, name).encode()

    def save(self, path: Path) -> None:
        builder = flatbuffers.Builder(1 << 20)
        builder.Finish(self.model.Pack(builder), file_identifier=b"TFL3")
        path.write_bytes(bytes(builder.Output()))


class _TflitePen(Pen):
    """Ops on tensors of the shape of one activation."""

    def __init__(self, net: TfliteNet, graph: Any, like: Any) -> None:
        self._net, self._graph, self._like = net, graph, like
        self.ops: list[Any] = []

    def tensor(self) -> int:
        """A new tensor of that shape."""
        made = copy.copy(self._like)
        made.name = f"fault/{len(self._graph.tensors)}".encode()
        made.buffer = 0
        self._graph.tensors.append(made)
        return len(self._graph.tensors) - 1

    def op(self, kind: str, *tensors: Any) -> Any:
        op = self._net.make_op(_PEN[kind])
        op.inputs, op.outputs = list(tensors), [self.tensor()]
        self.ops.append(op)
        return op.outputs[0]

    def constant(self, value: float) -> Any:
        return self._net.add_constant(
            self._graph, np.array(value, np.float32), schema.TensorType.FLOAT32
        )
