"""What has been seen of one output; parts of it merge exactly and travel as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from mpexport.parity.accuracy import PairedAccuracy
from mpexport.parity.exact import LogHistogram
from mpexport.parity.metrics import Differences, Divergence, TopK
from mpexport.parity.row import WorstSample, decode_number, encode_number

# Enough to see whether the worst is a class of samples or a single one.
MOST_WORST = 5


def worst_first(found: Iterable[WorstSample]) -> tuple[WorstSample, ...]:
    """Samples by their worst element; of equals the first in order of cases and elements.

    A sample is a case and an index along the first axis. Each belongs to one part, so that parts
    merge to the same as one run.
    """
    samples: dict[tuple[int, tuple[int, ...]], WorstSample] = {}
    for worst in sorted(found, key=lambda w: (-w.error, w.case, w.index)):
        samples.setdefault((worst.case, worst.index[:1]), worst)
    return tuple(samples.values())[:MOST_WORST]


@dataclass
class Seen:
    """Counts, sums and extremes; see `mpexport.parity._output.OutputState` for their use.

    Attributes:
        structure: First case with a difference of structure, and which.
        is_exact: Whether the elements must be equal.
        count: Elements.
        beyond: Elements beyond a bound that doesn't depend on max|r|.
        needed: The max|r| from which on an element would pass, where it is more than seen so far.
        beyond_float64: Like ``beyond``, but no closeness to the model in float32 counts.
        needed_float64: Likewise.
        nonfinite: Elements with a wrong NaN or infinity.
        reference_nan: NaN in the reference; likewise the next three.
        scale: max|r|.
        excess: max(|c - r| - rtol·|r|) with the float32 rtol, r of float64 or of float32.
        unexplained: The same with what the candidate's precision explains.
        noise: max|t - r| of the model as trained.
        noise_errors: Histogram of the same.
        single: max|s - r| of the reference in float32.
        rounding: max|f - r| of the reference with rounding.
        worst: The worst elements of the worst samples.
        sums: Over all numbers.
        top: Over rows of outputs of rank 2.
        divergence: Likewise.
        accuracy: Right answers, where there are labels.
    """

    structure: tuple[int, str] | None = None
    is_exact: bool = False
    count: int = 0
    beyond: int = 0
    needed: LogHistogram = field(default_factory=LogHistogram)
    beyond_float64: int = 0
    needed_float64: LogHistogram = field(default_factory=LogHistogram)
    nonfinite: int = 0
    reference_nan: int = 0
    candidate_nan: int = 0
    reference_inf: int = 0
    candidate_inf: int = 0
    scale: float = 0.0
    excess: float = 0.0
    unexplained: float = 0.0
    noise: float | None = None
    single: float | None = None
    noise_errors: LogHistogram = field(default_factory=LogHistogram)
    rounding: float | None = None
    worst: tuple[WorstSample, ...] = ()
    sums: Differences = field(default_factory=Differences)
    top: TopK = field(default_factory=TopK)
    divergence: Divergence = field(default_factory=Divergence)
    accuracy: PairedAccuracy = field(default_factory=PairedAccuracy)

    def merge(self, other: Seen) -> None:
        """Takes in what another part has seen."""
        structures = [s for s in (self.structure, other.structure) if s is not None]
        self.structure = min(structures) if structures else None
        self.is_exact = self.is_exact or other.is_exact
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("scale", "excess", "unexplained"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        for name in ("noise", "single", "rounding"):
            known = [v for v in (getattr(self, name), getattr(other, name)) if v is not None]
            setattr(self, name, max(known) if known else None)
        self.worst = worst_first((*self.worst, *other.worst))
        for name in _PARTS:
            getattr(self, name).merge(getattr(other, name))

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {f.name: _encoded(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Seen:
        """The inverse of `to_json`."""
        values = {name: _decoded(value) for name, value in data.items()}
        for name, kind in _PARTS.items():
            values[name] = kind.from_json(values[name])
        if values["structure"] is not None:
            values["structure"] = tuple(values["structure"])
        values["worst"] = tuple(map(WorstSample.from_json, values["worst"]))
        return cls(**values)


_COUNTS = ("count", "beyond", "beyond_float64", "nonfinite", "reference_nan", "candidate_nan",
           "reference_inf", "candidate_inf")  # fmt: skip
_PARTS: dict[str, Any] = {
    "needed": LogHistogram,
    "needed_float64": LogHistogram,
    "noise_errors": LogHistogram,
    "sums": Differences,
    "top": TopK,
    "divergence": Divergence,
    "accuracy": PairedAccuracy,
}


def _encoded(value: Any) -> Any:
    if hasattr(value, "to_json"):
        value = value.to_json()
    if isinstance(value, dict):
        return {k: _encoded(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encoded(v) for v in value]
    return encode_number(value)


def _decoded(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _decoded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_decoded(v) for v in value]
    return decode_number(value)
