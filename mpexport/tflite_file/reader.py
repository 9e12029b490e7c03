"""The tables of a TFLite file, read from a memory map: devices have no flatbuffers package.

A flatbuffer table begins with the distance back to its vtable, which holds, per field, where in the
table the field lies, or 0 for its default. Fields are addressed by their number in the schema.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Optional, Union

from mpexport.errors import InputError
from mpexport.tflite_file.op_versions import CUSTOM, op_code, op_name

TENSOR_TYPES = (
    *("float32", "float16", "int32", "uint8", "int64", "string", "bool", "int16", "complex64"),
    *("int8", "float64", "complex128", "uint64", "resource", "variant", "uint32", "uint16", "int4"),
    *("bfloat16", "int2", "uint4", "float8_e4m3fn", "float8_e5m2"),
)
# Name of the metadata that says what an accelerator may compute in.
REDUCED_PRECISION = "reduced_precision_support"
_IDENTIFIER = b"TFL3"
# Operator codes above 127 are in a wider field; the old one then holds this.
_WIDER = 127

Bytes = Union[bytes, mmap.mmap]


class Table:
    """One table of a flatbuffer."""

    def __init__(self, data: Bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._vtable = at - self._read("<i", at)
        self._size = self._read("<H", self._vtable)

    def _read(self, form: str, at: int) -> int:
        return int(struct.unpack_from(form, self._data, at)[0])

    def _field(self, number: int) -> int:
        """Where a field lies; 0 when it has its default."""
        slot = 4 + 2 * number
        offset = self._read("<H", self._vtable + slot) if slot < self._size else 0
        return self._at + offset if offset else 0

    def number(self, field: int, form: str, default: int = 0) -> int:
        """A scalar; ``form`` as in `struct`."""
        at = self._field(field)
        return self._read(form, at) if at else default

    def _target(self, field: int) -> int:
        at = self._field(field)
        return at + self._read("<I", at) if at else 0

    def table(self, field: int) -> Optional[Table]:
        """A table in a field."""
        at = self._target(field)
        return Table(self._data, at) if at else None

    def span(self, field: int) -> tuple[int, int]:
        """Where the elements of a vector begin, and how many there are."""
        at = self._target(field)
        return (at + 4, self._read("<I", at)) if at else (0, 0)

    def text(self, field: int) -> str:
        """A string."""
        at, size = self.span(field)
        return bytes(self._data[at : at + size]).decode(errors="replace")

    def raw(self, field: int) -> bytes:
        """A vector of bytes, copied."""
        at, size = self.span(field)
        return bytes(self._data[at : at + size])

    def numbers(self, field: int, form: str = "i") -> tuple[int, ...]:
        """A vector of scalars."""
        at, size = self.span(field)
        return struct.unpack_from(f"<{size}{form}", self._data, at)

    def tables(self, field: int) -> list[Table]:
        """A vector of tables."""
        at, size = self.span(field)
        places = range(at, at + 4 * size, 4)
        return [Table(self._data, p + self._read("<I", p)) for p in places]


@dataclass(frozen=True)
class OpCode:
    """An op as the file names it: builtin name (or that of a custom op), version."""

    code: int
    version: int
    custom: str

    @property
    def name(self) -> str:
        """The builtin's name, or ``CUSTOM:name``."""
        return f"{CUSTOM}:{self.custom}" if self.code == op_code(CUSTOM) else op_name(self.code)


@dataclass(frozen=True)
class Tensor:
    """One tensor of a subgraph.

    Attributes:
        name: Tells the layer it comes from.
        dtype: Canonical element type name.
        shape: Sizes; None for one that is unknown until run time.
        buffer: Index of its content; that of 0 is empty.
        is_variable: Whether it lives from one call to the next.
        is_quantized: Whether its integers stand for real numbers.
    """

    name: str
    dtype: str
    shape: tuple[Optional[int], ...]
    buffer: int
    is_variable: bool
    is_quantized: bool


@dataclass(frozen=True)
class Operator:
    """One operator of a subgraph: op, tensor indices (-1: absent), its options' table."""

    op: OpCode
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Optional[Table]


class Subgraph:
    """One subgraph."""

    def __init__(self, table: Table, codes: list[OpCode]) -> None:
        self._table = table
        self._codes = codes
        self.name = table.text(4)
        self.inputs, self.outputs = table.numbers(1), table.numbers(2)

    @cached_property
    def tensors(self) -> list[Tensor]:
        """Its tensors, by index."""
        return [_tensor(t) for t in self._table.tables(0)]

    @cached_property
    def operators(self) -> list[Operator]:
        """Its operators in the order they run."""
        return [
            Operator(
                self._codes[t.number(0, "<I")],
                t.numbers(1),
                t.numbers(2),
                t.table(4),
            )
            for t in self._table.tables(3)
        ]

    def widened(self) -> set[int]:
        """Indices of the tensors that are stored narrower than they are used: DEQUANTIZE's."""
        return {i for op in self.operators if op.op.name == "DEQUANTIZE" for i in op.inputs}


def _tensor(table: Table) -> Tensor:
    kind = table.number(1, "<b")
    quantization = table.table(4)
    return Tensor(
        name=table.text(3),
        dtype=TENSOR_TYPES[kind] if 0 <= kind < len(TENSOR_TYPES) else f"type {kind}",
        # The signature of a shape has -1 where the shape itself has the size planned for.
        shape=tuple(None if n < 0 else n for n in table.numbers(7) or table.numbers(0)),
        buffer=table.number(2, "<I"),
        is_variable=bool(table.number(5, "<b")),
        is_quantized=quantization is not None and quantization.span(2)[1] > 0,
    )


class TfliteFile:
    """An open TFLite file."""

    def __init__(self, data: Bytes) -> None:
        root = Table(data, struct.unpack_from("<I", data, 0)[0])
        self._data = data
        self.schema_version = root.number(0, "<I")
        self.description = root.text(3)
        self.codes = [_code(t) for t in root.tables(1)]
        self.subgraphs = [Subgraph(t, self.codes) for t in root.tables(2)]
        self._buffers = root.tables(4)
        self._metadata = [(t.text(0), t.number(1, "<I")) for t in root.tables(6)]
        self._signatures = root.tables(7)

    def buffer_bytes(self, index: int) -> int:
        """The size of a buffer, inside the flatbuffer or behind it."""
        buffer = self._buffers[index]
        return buffer.number(2, "<Q") if buffer.number(1, "<Q") > 1 else buffer.span(0)[1]

    def buffer(self, index: int) -> bytes:
        """The content of a buffer, copied."""
        buffer = self._buffers[index]
        at, size = buffer.number(1, "<Q"), buffer.number(2, "<Q")
        return bytes(self._data[at : at + size]) if at > 1 else buffer.raw(0)

    @property
    def metadata(self) -> dict[str, bytes]:
        """Metadata by name."""
        return {name: self.buffer(index) for name, index in self._metadata}

    def signatures(self) -> list[tuple[str, Subgraph, dict[str, int], dict[str, int]]]:
        """Per signature: key, subgraph, and inputs and outputs as name → tensor index."""
        found = []
        for table in self._signatures:
            sides = [{t.text(0): t.number(1, "<I") for t in table.tables(side)} for side in (0, 1)]
            graph = self.subgraphs[table.number(4, "<I")]
            found.append((table.text(2), graph, sides[0], sides[1]))
        return found


def _code(table: Table) -> OpCode:
    old, code = table.number(0, "<b"), table.number(3, "<i")
    return OpCode(max(old, code), table.number(2, "<i", 1), table.text(1))


@contextmanager
def open_tflite(path: Path) -> Iterator[TfliteFile]:
    """Opens a file for reading; its weights are not read.

    Raises:
        InputError: No TFLite file, or damaged.
    """
    try:
        with path.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[4:8] != _IDENTIFIER:
                raise InputError(f"{path}: is no TFLite file", where=str(path))
            yield TfliteFile(data)
    except (struct.error, IndexError, ValueError) as e:
        raise InputError(
            f"{path}: the TFLite file is damaged: {e}", hint="write it again", where=str(path)
        ) from e
    except OSError as e:
        raise InputError(f"{path}: {e.strerror}", where=str(path)) from e
