"""The element types mpexport talks about, and the facts about each that other modules need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class DType:
    """One element type.

    Attributes:
        name: Canonical (numpy) name.
        kind: ``float``, ``int``, ``bool``, ``string``, ``complex`` or ``opaque`` (a handle).
        size_bytes: Bytes per element; 0 when there is no fixed size.
        unit_roundoff: Largest relative rounding error of one operation; None unless a float.
        max_finite: Largest finite value; None unless a float.
        smallest_subnormal: Smallest positive value; None unless a float.
    """

    name: str
    kind: str
    size_bytes: int
    unit_roundoff: Optional[float] = None
    max_finite: Optional[float] = None
    smallest_subnormal: Optional[float] = None

    @property
    def is_16_bit_float(self) -> bool:
        """Whether this is float16 or bfloat16."""
        return self.kind == "float" and self.size_bytes == 2


# IEEE 754: unit roundoff 2^-p with p significant bits; max finite (2 - 2^(1-p)) * 2^emax;
# smallest subnormal 2^(emin - p + 1).
_ALL = (
    DType("float16", "float", 2, 2.0**-11, (2 - 2.0**-10) * 2.0**15, 2.0**-24),
    DType("bfloat16", "float", 2, 2.0**-8, (2 - 2.0**-7) * 2.0**127, 2.0**-133),
    DType("float32", "float", 4, 2.0**-24, (2 - 2.0**-23) * 2.0**127, 2.0**-149),
    DType("float64", "float", 8, 2.0**-53, (2 - 2.0**-52) * 2.0**1023, 2.0**-1074),
    DType("int8", "int", 1),
    DType("int16", "int", 2),
    DType("int32", "int", 4),
    DType("int64", "int", 8),
    DType("uint8", "int", 1),
    DType("uint16", "int", 2),
    DType("uint32", "int", 4),
    DType("uint64", "int", 8),
    DType("bool", "bool", 1),
    DType("complex64", "complex", 8),
    DType("complex128", "complex", 16),
    DType("string", "string", 0),
    DType("resource", "opaque", 0),
    DType("variant", "opaque", 0),
)
_BY_NAME = {d.name: d for d in _ALL}
FLOAT16 = _BY_NAME["float16"]
_ALIASES = {
    "half": "float16",
    "fp16": "float16",
    "f16": "float16",
    "bf16": "bfloat16",
    "float": "float32",
    "fp32": "float32",
    "f32": "float32",
    "double": "float64",
    "fp64": "float64",
    "f64": "float64",
    "boolean": "bool",
    "object": "string",
    "str": "string",
}


def get(name: str) -> DType:
    """Looks an element type up by any of its usual names (``float16``, ``fp16``, ``half`` …).

    Raises:
        KeyError: The name is no element type known here.
    """
    return _BY_NAME[canonical(name)]


def canonical(name: str) -> str:
    """The canonical name for any usual spelling; unknown names come back unchanged."""
    low = name.lower()
    return _ALIASES.get(low, low)


def is_16_bit_float(name: str) -> bool:
    """Whether ``name`` means float16 or bfloat16."""
    return canonical(name) in ("float16", "bfloat16")
