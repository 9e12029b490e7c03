"""The precision of an ONNX file, read from its bytes: devices have no ``onnx`` package.

Reads protobuf's wire format over a memory map and steps over the weights, whatever their size.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Union

_FLOAT16 = 10  # onnx.TensorProto.FLOAT16
# Field numbers of onnx.proto.
_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_INPUT = 1, 5, 11
_NODE_INPUT, _NODE_OP, _NODE_ATTRIBUTE = 1, 4, 5
_ATTRIBUTE_NAME, _ATTRIBUTE_INT, _ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS = 1, 3, 6, 11
_TENSOR_TYPE, _TENSOR_NAME = 2, 8
_VALUE_NAME, _VALUE_TYPE, _TYPE_TENSOR, _TENSOR_ELEMENT = 1, 2, 1, 1

Span = tuple[int, int]
_Field = tuple[int, Union[int, Span]]


@dataclass
class _Found:
    weights: set[bytes] = field(default_factory=set)
    inputs: set[bytes] = field(default_factory=set)
    computed_on: set[bytes] = field(default_factory=set)
    narrows: bool = False


def precision(path: Path) -> tuple[str, str]:
    """Element type of the weights and of the computation: ``float32`` or ``float16`` each.

    Weights count as float16 when any is stored so; computation does when an op other than a Cast
    reads such a weight or input, or when a Cast gives float16.
    """
    found = _Found()
    # An IndexError is a file that is cut off: the runtime says so itself when it opens it.
    with path.open("rb") as f, mapped(f) as data, suppress(IndexError):
        for number, value in fields(data, 0, len(data)):
            if number == _MODEL_GRAPH and isinstance(value, tuple):
                _read_graph(data, value, found)
    computes = found.narrows or bool((found.weights | found.inputs) & found.computed_on)
    return ("float16" if found.weights else "float32", "float16" if computes else "float32")


def mapped(file: BinaryIO) -> mmap.mmap:
    """An open file as bytes."""
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(data: mmap.mmap, at: int, end: int) -> Iterator[_Field]:
    """Number and value of each field; a value of given length is its (start, end)."""
    while at < end:
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
        elif kind == 2:
            size, at = _varint(data, at)
            yield tag >> 3, (at, at + size)
            at += size
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise IndexError(f"wire type {kind}")


def _read_graph(data: mmap.mmap, span: tuple[int, int], found: _Found) -> None:
    for number, value in fields(data, *span):
        if isinstance(value, tuple) and number == _GRAPH_INITIALIZER:
            _read_tensor(data, value, found)
        elif isinstance(value, tuple) and number == _GRAPH_INPUT:
            _read_input(data, value, found)
        elif isinstance(value, tuple) and number == _GRAPH_NODE:
            _read_node(data, value, found)


def _read_tensor(data: mmap.mmap, span: tuple[int, int], found: _Found) -> None:
    kind, name = 0, b""
    for number, value in fields(data, *span):
        if number == _TENSOR_TYPE and isinstance(value, int):
            kind = value
        elif number == _TENSOR_NAME and isinstance(value, tuple):
            name = data[slice(*value)]
    if kind == _FLOAT16:
        found.weights.add(name)


def _read_input(data: mmap.mmap, span: tuple[int, int], found: _Found) -> None:
    name, is_half = b"", False
    for number, value in fields(data, *span):
        if number == _VALUE_NAME and isinstance(value, tuple):
            name = data[slice(*value)]
        elif number == _VALUE_TYPE and isinstance(value, tuple):
            tensors = [v for n, v in fields(data, *value) if n == _TYPE_TENSOR]
            for tensor in tensors:
                if isinstance(tensor, tuple):
                    is_half = dict(fields(data, *tensor)).get(_TENSOR_ELEMENT) == _FLOAT16
    if is_half:
        found.inputs.add(name)


def _read_node(data: mmap.mmap, span: tuple[int, int], found: _Found) -> None:
    op, inputs, to = b"", [], 0
    for number, value in fields(data, *span):
        if not isinstance(value, tuple):
            continue
        if number == _NODE_INPUT:
            inputs.append(data[slice(*value)])
        elif number == _NODE_OP:
            op = data[slice(*value)]
        elif number == _NODE_ATTRIBUTE:
            to = _read_attribute(data, value, found) or to
    if op != b"Cast":
        found.computed_on.update(inputs)
    elif to == _FLOAT16:
        found.narrows = True


def _read_attribute(data: mmap.mmap, span: tuple[int, int], found: _Found) -> int:
    """The value of an attribute ``to``, else 0; looks into graphs on the way."""
    name, number_of = b"", 0
    for number, value in fields(data, *span):
        if isinstance(value, int):
            number_of = value if number == _ATTRIBUTE_INT else number_of
        elif number == _ATTRIBUTE_NAME:
            name = data[slice(*value)]
        elif number in (_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS):
            _read_graph(data, value, found)
    return number_of if name == b"to" else 0
