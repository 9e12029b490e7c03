"""What an ONNX file holds."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

from mpexport import dtypes
from mpexport.errors import InputError
from mpexport.inspection import counted, shown
from mpexport.runtimes._onnx_file import Span, fields, mapped, precision
from mpexport.signature import Signature, TensorSpec

# onnx.TensorProto.DataType by number.
_TYPES = (
    *("undefined", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "string"),
    *("bool", "float16", "float64", "uint32", "uint64", "complex64", "complex128", "bfloat16"),
)
_QUANTIZED = frozenset({"DequantizeLinear", "QLinearConv", "QLinearMatMul", "MatMulInteger"})
# Field numbers of onnx.proto.
_IR, _PRODUCER, _PRODUCER_VERSION, _GRAPH, _OPSET, _METADATA = 1, 2, 3, 7, 8, 14
_NODE, _INITIALIZER, _INPUT, _OUTPUT = 1, 5, 11, 12
_OP, _ATTRIBUTE, _DOMAIN = 4, 5, 7
_TENSOR, _SUBGRAPH, _SUBGRAPHS = 5, 6, 11
_DIMS, _TYPE, _NAME, _EXTERNAL = 1, 2, 8, 13


@dataclass
class _Found:
    ops: Counter[tuple[str, str]] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    external: set[str] = field(default_factory=set)
    weights: set[str] = field(default_factory=set)


def read(path: Path) -> dict[str, Any]:
    """The fields of a `FileReport` that depend on the format."""
    try:
        with path.open("rb") as f, mapped(f) as data:
            return _read(data, path)
    except (IndexError, ValueError) as e:
        raise InputError(
            f"{path}: the ONNX file is damaged: {e}", hint="write it again", where=str(path)
        ) from e


def _read(data: Any, path: Path) -> dict[str, Any]:
    found = _Found()
    opsets: dict[str, int] = {}
    metadata: dict[str, str] = {}
    ir_version = 0
    inputs: list[TensorSpec] = []
    outputs: list[TensorSpec] = []
    for number, value in fields(data, 0, len(data)):
        if number == _IR and isinstance(value, int):
            ir_version = value
        if isinstance(value, int):
            continue
        if number in (_PRODUCER, _PRODUCER_VERSION):
            name = "producer_name" if number == _PRODUCER else "producer_version"
            metadata[name] = shown(name, data[slice(*value)])
        elif number == _METADATA:
            entry = dict(fields(data, *value))
            name = _text(data, entry.get(1))
            metadata[name] = shown(name, _text(data, entry.get(2)).encode())
        elif number == _OPSET:
            entry = dict(fields(data, *value))
            version = entry.get(2, 0)
            opsets[_text(data, entry.get(1))] = version if isinstance(version, int) else 0
        elif number == _GRAPH:
            inputs, outputs = _graph(data, value, found)
    own = tuple(s for s in inputs if s.name not in found.weights)
    weights, computation = precision(path)
    form = "float16" if computation == "float16" else "float32"
    form = "float16-weights" if form == "float32" and weights == "float16" else form
    if any(op in _QUANTIZED for _, op in found.ops):
        form = "quantized"
    histogram: Counter[tuple[str, int]] = Counter()
    for (domain, op), count in found.ops.items():
        histogram[f"{domain}:{op}" if domain else op, opsets.get(domain, 0)] += count
    return {
        "precision": form,
        "signatures": (Signature("", own, tuple(outputs)),),
        "ops": counted(histogram),
        "weight_bytes": dict(sorted(found.sizes.items())),
        "requirements": {"opset": opsets, "ir_version": ir_version},
        "metadata": metadata,
        "external_data": tuple(sorted(found.external)),
    }


def _text(data: Any, span: Optional[Union[int, Span]]) -> str:
    return data[slice(*span)].decode(errors="replace") if isinstance(span, tuple) else ""


def _graph(data: Any, span: Span, found: _Found) -> tuple[list[TensorSpec], list[TensorSpec]]:
    sides: dict[int, list[TensorSpec]] = {_INPUT: [], _OUTPUT: []}
    for number, value in fields(data, *span):
        if isinstance(value, int):
            continue
        if number == _NODE:
            _node(data, value, found)
        elif number == _INITIALIZER:
            _tensor(data, value, found)
        elif number in sides:
            sides[number].append(_spec(data, value))
    return sides[_INPUT], sides[_OUTPUT]


def _node(data: Any, span: Span, found: _Found) -> None:
    op = domain = ""
    for number, value in fields(data, *span):
        if number == _OP:
            op = _text(data, value)
        elif number == _DOMAIN:
            domain = _text(data, value)
        elif number == _ATTRIBUTE and isinstance(value, tuple):
            for inner, content in fields(data, *value):
                if isinstance(content, tuple) and inner == _TENSOR:
                    _tensor(data, content, found)
                elif isinstance(content, tuple) and inner in (_SUBGRAPH, _SUBGRAPHS):
                    _graph(data, content, found)
    found.ops["" if domain == "ai.onnx" else domain, op] += 1


def _tensor(data: Any, span: Span, found: _Found) -> None:
    sizes, dtype = [], "undefined"
    for number, value in fields(data, *span):
        if number == _DIMS:
            sizes += [value] if isinstance(value, int) else _packed(data, value)
        elif number == _TYPE and isinstance(value, int):
            dtype = _type_name(value)
        elif number == _NAME:
            found.weights.add(_text(data, value))
        elif number == _EXTERNAL and isinstance(value, tuple):
            entry = dict(fields(data, *value))
            if _text(data, entry.get(1)) == "location":
                found.external.add(_text(data, entry.get(2)))
    try:
        item = dtypes.get(dtype).size_bytes
    except KeyError:
        item = 1  # smaller than a byte, or a float of 8 bits
    found.sizes[dtype] += math.prod(sizes) * item


def _packed(data: Any, span: Span) -> list[int]:
    """Varints one after the other: the same bytes as fields without their tags."""
    values, value, shift = [], 0, 0
    for byte in data[slice(*span)]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            values.append(value)
            value = shift = 0
    return values


def _type_name(number: int) -> str:
    return _TYPES[number] if number < len(_TYPES) else f"type {number}"


def _spec(data: Any, span: Span) -> TensorSpec:
    value = dict(fields(data, *span))
    name, kind = _text(data, value.get(1)), value.get(2)
    tensor = dict(fields(data, *kind)).get(1) if isinstance(kind, tuple) else None
    if not isinstance(tensor, tuple):  # a sequence, an optional
        return TensorSpec(name, None, "undefined")
    about = dict(fields(data, *tensor))
    element, shape = about.get(1, 0), about.get(2)
    sizes: Optional[tuple[Optional[int], ...]] = None
    if isinstance(shape, tuple):
        dims = [dict(fields(data, *d)) for n, d in fields(data, *shape) if isinstance(d, tuple)]
        known = [d.get(1) for d in dims]
        sizes = tuple(n if isinstance(n, int) else None for n in known)
    return TensorSpec(name, sizes, _type_name(element if isinstance(element, int) else 0))
