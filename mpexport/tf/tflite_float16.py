"""A finished float32 TFLite file → the same file with its weights stored in float16.

Given::

    W: FLOAT32[256, 128] (constant)          y = FULLY_CONNECTED(x, W)

Result::

    W: FLOAT16[256, 128] (constant)
    W_dequantize = DEQUANTIZE(W)             y = FULLY_CONNECTED(x, W_dequantize)

This is the form that TensorFlow's own float16 quantization gives, and it follows the same rule:
every float32 constant that an operator reads becomes float16, of any size (a single number too) and
whatever the operator. A runtime folds the DEQUANTIZE when it loads the file. What stays in float32,
as TensorFlow leaves it: constants that no operator reads (a subgraph gives them as they are),
variable tensors (the state of a fused LSTM), and what is no float32 at all.

In four places it does otherwise. A constant that holds numbers beyond ±65504 stays in float32:
weights were looked at before (`mpexport.tf.weights`), so it is a mask or a limit of the graph, and
TensorFlow would clamp it. So does a single number below 2^-14, an epsilon or a factor of the graph,
of which float16 keeps few bits or none. A constant that is read and given alike is given widened,
where TensorFlow may write it twice. And constants are taken in the order of their indices, where
TensorFlow goes by a hash table.
"""

from __future__ import annotations

from typing import Any

import flatbuffers  # type: ignore[import-untyped]
import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

from mpexport.dtypes import FLOAT16
from mpexport.tf.weights import SMALLEST_NORMAL
from mpexport.tflite_file.reader import REDUCED_PRECISION
from mpexport.tflite_file.requirements import minimum_runtime

_FLOAT32, _FLOAT16 = schema.TensorType.FLOAT32, schema.TensorType.FLOAT16
_IDENTIFIER = b"TFL3"
# Buffers start at multiples of this, which the schema demands and the Python packer does not do.
_ALIGNMENT = 16
# Room for the tables; a builder that is too small doubles itself and copies.
_SLACK_BYTES = 2**16
_BYTES_PER_TABLE = 512
# The metadata of this name is 16 bytes long, padded with zeros.
_MIN_RUNTIME, _MIN_RUNTIME_BYTES = b"min_runtime_version", 16


class _Buffer(schema.BufferT):  # type: ignore[misc]
    """A buffer that is packed in one piece, aligned."""

    def Pack(self, builder: Any) -> int:  # noqa: N802
        vector = None
        if self.data is not None and len(self.data):
            raw = np.ascontiguousarray(self.data).view(np.uint8).reshape(-1)
            builder.StartVector(1, raw.size, _ALIGNMENT)
            builder.head = builder.head - raw.size
            builder.Bytes[builder.head : builder.head + raw.size] = raw.data
            vector = builder.EndVector()
        schema.BufferStart(builder)
        if vector is not None:
            schema.BufferAddData(builder, vector)
        return int(schema.BufferEnd(builder))


def load(content: Any) -> Any:
    """A file as an editable ModelT; buffers are views of ``content``, wherever they lie in it."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    for i, old in enumerate(model.buffers):
        new = _Buffer()
        new.data = old.data
        if old.offset > 1:  # behind the flatbuffer, as in files of more than 2 GiB
            new.data = np.frombuffer(content, np.uint8, count=old.size, offset=old.offset)
        model.buffers[i] = new
    return model


def pack(model: Any) -> memoryview:
    """The bytes of a ModelT."""
    data = sum(len(b.data) for b in model.buffers if b.data is not None)
    tables = sum(len(g.tensors) + len(g.operators) for g in model.subgraphs) + len(model.buffers)
    builder = flatbuffers.Builder(data + _BYTES_PER_TABLE * tables + _SLACK_BYTES)
    builder.Finish(model.Pack(builder), file_identifier=_IDENTIFIER)
    return memoryview(builder.Bytes)[builder.head :]


def store_float16(content: Any, *, accumulation: bool = False) -> memoryview:
    """Stores the constants of a file in float16.

    Args:
        content: The bytes of a float32 file; may be a memory map.
        accumulation: Whether to mark the file as one that may be summed up in float16.
    """
    model = load(content)
    halves = _Halves(model)
    for graph in model.subgraphs:
        _store(graph, halves)
    halves.drop_unused()
    _set_metadata(
        model, REDUCED_PRECISION.encode(), b"fp16accfp16" if accumulation else b"fp16accfp32"
    )
    version = minimum_runtime(_ops(model)).encode()
    _set_metadata(model, _MIN_RUNTIME, version.ljust(_MIN_RUNTIME_BYTES, b"\0"))
    return pack(model)


def _ops(model: Any) -> list[tuple[int, int]]:
    used = {op.opcodeIndex for g in model.subgraphs for op in g.operators}
    codes = [c for i, c in enumerate(model.operatorCodes) if i in used]
    return [(max(c.builtinCode, c.deprecatedBuiltinCode), c.version) for c in codes]


class _Halves:
    """float16 twins of buffers: one per buffer, whoever shares it."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._twins: dict[int, int | None] = {}
        self._opcode: int | None = None

    def twin(self, index: int) -> int | None:
        """The buffer with the same numbers in float16; None when it is no constant, or too wide."""
        if index not in self._twins:
            self._twins[index] = self._make(self._model.buffers[index].data)
        return self._twins[index]

    def _make(self, data: Any) -> int | None:
        if data is None or not len(data):
            return None
        value = np.ascontiguousarray(data).view(np.uint8).view("<f4")
        with np.errstate(over="ignore"):
            half = value.astype("<f2")
        if value.size == 1 and 0 < abs(float(value[0])) < SMALLEST_NORMAL:
            return None
        # What rounds to infinity, and NaN: float16 ends at 65504.
        if not (np.abs(half) <= np.float16(FLOAT16.max_finite)).all():
            return None
        buffer = _Buffer()
        buffer.data = half.view(np.uint8)
        self._model.buffers.append(buffer)
        return len(self._model.buffers) - 1

    def opcode(self) -> int:
        """Index of DEQUANTIZE among the operator codes, of the version that takes float16."""
        if self._opcode is None:
            code = schema.OperatorCodeT()
            code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.DEQUANTIZE
            code.version = 3
            self._model.operatorCodes.append(code)
            self._opcode = len(self._model.operatorCodes) - 1
        return self._opcode

    def drop_unused(self) -> None:
        """Puts each twin in its original's place where nothing needs the original any more."""
        buffers = self._model.buffers
        tensors = [t for g in self._model.subgraphs for t in g.tensors]
        used = {t.buffer for t in tensors} | {m.buffer for m in self._model.metadata or []}
        moved = {t: o for o, t in self._twins.items() if t is not None and o not in used}
        for twin, original in moved.items():
            buffers[original] = buffers[twin]
        kept = [i for i in range(len(buffers)) if i not in moved]
        places = {old: new for new, old in enumerate(kept)}
        places.update({twin: places[original] for twin, original in moved.items()})
        self._model.buffers = [buffers[i] for i in kept]
        for tensor in tensors:
            tensor.buffer = places[tensor.buffer]
        for item in self._model.metadata or []:
            item.buffer = places[item.buffer]


def _store(graph: Any, halves: _Halves) -> None:
    first: dict[int, int] = {}
    for position, op in enumerate(graph.operators):
        for index in [] if op.inputs is None else op.inputs:
            if index >= 0:  # -1 is an optional input that isn't there
                first.setdefault(int(index), position)
    before: dict[int, list[Any]] = {}
    widened: dict[int, int] = {}
    for index in sorted(first):
        tensor = graph.tensors[index]
        twin = None if tensor.type != _FLOAT32 or tensor.isVariable else halves.twin(tensor.buffer)
        if twin is None:
            continue
        tensor.type, tensor.buffer = _FLOAT16, twin
        widened[index] = len(graph.tensors)
        graph.tensors.append(_output_of(tensor))
        op = schema.OperatorT()
        op.opcodeIndex, op.inputs, op.outputs = halves.opcode(), [index], [widened[index]]
        op.builtinOptionsType = schema.BuiltinOptions.DequantizeOptions
        op.builtinOptions = schema.DequantizeOptionsT()
        before.setdefault(first[index], []).append(op)
    for op in graph.operators:
        if op.inputs is not None:
            op.inputs = [widened.get(int(i), int(i)) for i in op.inputs]
    graph.outputs = [widened.get(int(i), int(i)) for i in _items(graph.outputs)]
    graph.operators = [
        made for i, op in enumerate(graph.operators) for made in [*before.get(i, []), op]
    ]


def _items(vector: Any) -> Any:
    return [] if vector is None else vector


def _output_of(stored: Any) -> Any:
    """The float32 tensor that DEQUANTIZE gives."""
    tensor = schema.TensorT()
    tensor.name = (stored.name or b"") + b"_dequantize"
    tensor.shape, tensor.shapeSignature = stored.shape, stored.shapeSignature
    tensor.hasRank = stored.hasRank
    tensor.type, tensor.buffer = _FLOAT32, 0
    return tensor


def _set_metadata(model: Any, name: bytes, value: bytes) -> None:
    buffer = _Buffer()
    buffer.data = np.frombuffer(value, np.uint8)
    for item in model.metadata or []:
        if item.name == name:
            model.buffers[item.buffer] = buffer
            return
    item = schema.MetadataT()
    item.name, item.buffer = name, len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or []), item]
