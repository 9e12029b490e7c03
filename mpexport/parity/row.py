"""The result of comparing one output."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Union

from mpexport.findings import Verdict
from mpexport.parity.accuracy import PairedAccuracy
from mpexport.parity.exact import Octaves
from mpexport.parity.tolerance import Tolerance

# Causes. Stable words: they appear in JSON.
OK = "ok"
OK_FLOAT32 = "ok (as in float32)"
OK_TRAINED_NOISE = "ok (within trained noise)"
OK_WEIGHT_ROUNDING = "ok (within float16 weight rounding)"
OK_HALF_ROUNDING = "ok (within float16 rounding)"
PRECISION = "precision"
CONVERSION = "conversion"
NO_EVIDENCE = "no evidence"
REFERENCE_UNUSABLE = "reference unusable"

Value = Union[float, str, None]

_PARTS: dict[str, Any] = {
    "accuracy": PairedAccuracy,
    "errors": Octaves,
    "noise_errors": Octaves,
}
_NAMES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def encode_number(value: Any) -> Any:
    """A value for JSON: NaN and infinities as ``"NaN"``, ``"Infinity"``, ``"-Infinity"``."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def decode_number(value: Any) -> Any:
    """The inverse of `encode_number`."""
    return _NAMES.get(value, value) if isinstance(value, str) else value


@dataclass(frozen=True)
class WorstSample:
    """The worst element of a sample.

    Attributes:
        error: |c - r|; infinite for a wrong NaN or infinity.
        case: Number of the case.
        index: Of the element, the sample first.
        reference: The reference there.
        candidate: The candidate there. Strings are given as Python literals.
    """

    error: float
    case: int
    index: tuple[int, ...]
    reference: Value
    candidate: Value

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        data = {name: encode_number(value) for name, value in asdict(self).items()}
        return {**data, "index": list(self.index)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> WorstSample:
        """The inverse of `to_json`."""
        values = {name: decode_number(value) for name, value in data.items()}
        return cls(**{**values, "index": tuple(data["index"])})


@dataclass(frozen=True)
class TensorComparison:
    """One output over all cases.

    Differences are candidate minus reference, over pairs where both are finite, in float64; None
    where there are none, and for strings.

    Attributes:
        output: Its name.
        verdict: PASS, FAIL or INCONCLUSIVE.
        cause: One of the constants of this module.
        message: One line.
        tolerance: The bound it was held to.
        count: Elements compared, over all cases.
        mismatched: Elements beyond the bound, with the wrong NaN or infinity, or not equal.
        max_abs: Largest |c - r|; the smallest atol alone that passes.
        mean_abs: Mean |c - r|.
        rmse: Root of the mean (c - r)^2.
        abs_p50: Median of |c - r|, at most 2.2% above; likewise the next two.
        abs_p99: The 0.99 quantile of |c - r|.
        abs_p999: The 0.999 quantile of |c - r|.
        max_rel: Largest |c - r| / |r| where r is not 0.
        ulp: Largest distance in the float32 grid, in units in the last place.
        cosine: Cosine of the angle between both, in [-1, 1]; None when one is all zero.
        snr_db: 10 log10(sum r^2 / sum (c - r)^2) in dB; infinite when there is no difference.
        top1_rows: Rows compared, when the output is class-like (float, rank 2, at least 2 columns).
        top1_agree: Rows in which both have their maximum in the same column.
        top5_agree: Rows in which both have the same five highest columns.
        flip_margin: Largest difference of the reference's two highest values in a row that flipped.
        flips_in_noise: Flipped rows in which that difference is at most twice the noise floor.
        kl_mean: Mean Kullback-Leibler divergence of the rows in nats, where all rows of both are
            probabilities.
        kl_max: Its largest value.
        accuracy: Right answers, where there are labels.
        worst_case: Number of the case that holds the worst element.
        worst_index: Its index: the first wrong NaN or infinity, else where |c - r| is largest.
        worst_reference: The reference there.
        worst_candidate: The candidate there. Strings are given as Python literals.
        worst_samples: The samples with the largest errors, if any, each with its worst element.
        required_rtol: The smallest rtol alone that passes; infinite where r is 0 and c is not.
        required_atol: The smallest atol alone that passes.
        reference_nan: NaN in the reference.
        candidate_nan: NaN in the candidate.
        reference_inf: Infinities in the reference.
        candidate_inf: Infinities in the candidate.
        noise_floor: Largest |t - r| of the model as trained, where finite.
        rounding_floor: Largest |f - r| where only the rounding to float16 is added: of weights, or
            of all that is float16 in the file.
        errors: How the sizes |c - r| are spread; None where there is nothing to compare.
        noise_errors: Likewise |t - r| of the model as trained.
    """

    output: str
    verdict: Verdict
    cause: str
    message: str
    tolerance: Tolerance
    count: int = 0
    mismatched: int = 0
    max_abs: float | None = None
    mean_abs: float | None = None
    rmse: float | None = None
    abs_p50: float | None = None
    abs_p99: float | None = None
    abs_p999: float | None = None
    max_rel: float | None = None
    ulp: int | None = None
    cosine: float | None = None
    snr_db: float | None = None
    top1_rows: int = 0
    top1_agree: int = 0
    top5_agree: int = 0
    flip_margin: float | None = None
    flips_in_noise: int | None = None
    kl_mean: float | None = None
    kl_max: float | None = None
    accuracy: PairedAccuracy | None = None
    worst_case: int | None = None
    worst_index: tuple[int, ...] | None = None
    worst_reference: Value = None
    worst_candidate: Value = None
    worst_samples: tuple[WorstSample, ...] = ()
    required_rtol: float | None = None
    required_atol: float | None = None
    reference_nan: int = 0
    candidate_nan: int = 0
    reference_inf: int = 0
    candidate_inf: int = 0
    noise_floor: float | None = None
    rounding_floor: float | None = None
    errors: Octaves | None = None
    noise_errors: Octaves | None = None

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; numbers that JSON lacks become ``"NaN"``, ``"Infinity"``, …."""
        data = {name: encode_number(value) for name, value in asdict(self).items()}
        data["verdict"] = self.verdict.value
        for name in _PARTS:
            part = getattr(self, name)
            data[name] = None if part is None else part.to_json()
        data["worst_samples"] = [sample.to_json() for sample in self.worst_samples]
        data["worst_index"] = None if self.worst_index is None else list(self.worst_index)
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TensorComparison:
        """The inverse of `to_json`."""
        text = ("output", "cause", "message")
        fields = {n: v if n in text else decode_number(v) for n, v in data.items()}
        index = data["worst_index"]
        fields["verdict"] = Verdict(data["verdict"])
        for name, kind in _PARTS.items():
            if data[name] is not None:
                fields[name] = kind.from_json(data[name])
        fields["tolerance"] = Tolerance.from_json(data["tolerance"])
        fields["worst_samples"] = tuple(map(WorstSample.from_json, data["worst_samples"]))
        fields["worst_index"] = None if index is None else tuple(index)
        return cls(**fields)
