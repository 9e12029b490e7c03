"""The precision report: what a source computes in which element type. Plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from mpexport.findings import Finding, Severity
from mpexport.signature import Signature


@dataclass(frozen=True)
class LayerPolicy:
    """The dtype policy of one layer.

    Attributes:
        layer: Path of the layer, outer models first.
        kind: Class name.
        policy: Policy name, for example ``mixed_float16``.
        compute_dtype: What the layer computes in.
        variable_dtype: What its weights are stored in.
        origin: How the file says it: ``DTypePolicy``, ``Policy``, ``PolicyV1``, ``dtype`` …
    """

    layer: str
    kind: str
    policy: str
    compute_dtype: str
    variable_dtype: str
    origin: str


@dataclass(frozen=True)
class CastSite:
    """One Cast from or to a 16-bit type.

    Attributes:
        where: ``function/node``.
        src_dtype: Element type before.
        dst_dtype: Element type behind.
        role: ``weight``, ``input``, ``output``, ``integer``, ``constant`` or ``activation``.
    """

    where: str
    src_dtype: str
    dst_dtype: str
    role: str


@dataclass(frozen=True)
class DtypeCount:
    """How much of a graph has one element type.

    Attributes:
        dtype: The element type.
        ops: Ops whose first floating output has it.
        variables: Variables stored in it.
        variable_bytes: Their bytes.
    """

    dtype: str
    ops: int
    variables: int
    variable_bytes: int


@dataclass(frozen=True)
class RoundedLiteral:
    """A literal held in 16 bits: what the model was trained with, not what was written."""

    where: str
    dtype: str
    value: str


@dataclass(frozen=True)
class PrecisionReport:
    """What `mpexport.check` finds in a source.

    Attributes:
        source: The path.
        signatures: All signatures.
        counts: By element type, largest op count first.
        casts: Every Cast from and to a 16-bit type.
        policies: dtype policies of the layers; empty when the source has none.
        literals: 16-bit literals.
        findings: What the rules say.
        notes: What loading had to say.
    """

    source: str
    signatures: tuple[Signature, ...]
    counts: tuple[DtypeCount, ...]
    casts: tuple[CastSite, ...]
    policies: tuple[LayerPolicy, ...]
    literals: tuple[RoundedLiteral, ...]
    findings: tuple[Finding, ...] = field(default=())
    notes: tuple[str, ...] = field(default=())

    @property
    def has_errors(self) -> bool:
        """Whether a rule found an error."""
        return any(f.severity is Severity.ERROR for f in self.findings)

    @property
    def is_16_bit(self) -> bool:
        """Whether anything is stored or computed in float16 or bfloat16."""
        return any(c.dtype in ("float16", "bfloat16") for c in self.counts)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "source": self.source,
            "signatures": [s.to_json() for s in self.signatures],
            "counts": [asdict(c) for c in self.counts],
            "casts": [asdict(c) for c in self.casts],
            "policies": [asdict(p) for p in self.policies],
            "literals": [asdict(x) for x in self.literals],
            "findings": [f.to_json() for f in self.findings],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PrecisionReport:
        """The inverse of `to_json`."""
        return cls(
            data["source"],
            tuple(Signature.from_json(s) for s in data["signatures"]),
            tuple(DtypeCount(**c) for c in data["counts"]),
            tuple(CastSite(**c) for c in data["casts"]),
            tuple(LayerPolicy(**p) for p in data["policies"]),
            tuple(RoundedLiteral(**x) for x in data["literals"]),
            tuple(Finding.from_json(f) for f in data["findings"]),
            tuple(data["notes"]),
        )
