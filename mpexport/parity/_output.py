"""What is known about one output while its cases go by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mpexport import tensors
from mpexport.errors import UsageError
from mpexport.findings import Verdict
from mpexport.parity import row
from mpexport.parity._seen import MOST_WORST, Seen, worst_first
from mpexport.parity.exact import LogHistogram
from mpexport.parity.metrics import Floats
from mpexport.parity.row import TensorComparison, Value, WorstSample
from mpexport.parity.tolerance import Tolerance, default_for
from mpexport.tensors import Array

# A trained model (or rounded weights) further than this share of max|r| from the reference is not
# noisy but broken, for example by overflow; it then excuses nothing.
NOISE_CAP = 2.0**-3
# How many times the trained model's own error is still no fault. A float32 file rounds far less
# than a model in 16 bits; one that computes in float16 as much, but in other places.
TRAINED_K = {"float32": 0.5, "float16-weights": 1.0, "float16": 2.0}
# How many times what float32 does to the reference is still no fault of a float32 file: both are
# maxima of roundings of the same size in other places, over as few as four numbers.
FLOAT32_K = 4.0
# An error of up to this many times what the candidate's precision explains is put down to
# precision: wide enough for a layer more sensitive than most, too narrow for a wrong layer.
EXPLAINED = 8.0

_FLOAT32 = default_for("float32")


class OutputState:
    """Collects the cases of one output, in any order and number of parts; gives the verdict.

    The bound holds max|r| of all cases, which is known in the end only. So what an element needs is
    kept as the max|r| from which on it would pass: in a histogram, and only where that is more than
    what has been seen. max|r| counts as the upper end of its bin there, at most 2.2% more.
    """

    def __init__(
        self,
        name: str,
        bound: Tolerance,
        k: float,
        precision: str,
    ) -> None:
        """Starts without cases.

        Args:
            name: The output.
            bound: What it is held to.
            k: How many times what rounding to float16 does is still no fault.
            precision: The candidate's.
        """
        self._name, self._bound, self._k, self._precision = name, bound, k, precision
        self._explained = default_for(precision)
        self._seen = Seen()

    def reject(self, case: int, why: str) -> None:
        """Notes a difference of structure, which no number can mend."""
        found = (case, why)
        self._seen.structure = min(self._seen.structure or found, found)

    def add(
        self,
        case: int,
        reference: Array,
        candidate: Array,
        trained: Array | None,
        rounded: Array | None,
        labels: Array | None = None,
        single: Array | None = None,
    ) -> None:
        """Takes in one case; see `mpexport.parity.compare.Comparison.add`."""
        if reference.shape != candidate.shape:
            self.reject(case, f"shape {list(reference.shape)} became {list(candidate.shape)}")
            return
        kind = tensors.kind_of(reference)
        if kind != tensors.kind_of(candidate):
            before, after = (tensors.dtype_name(a.dtype) for a in (reference, candidate))
            self.reject(case, f"element type {before} became {after}")
            return
        seen = self._seen
        seen.count += reference.size
        if kind in ("float", "complex"):
            r = _real(reference)
            plain = self._aside(r, single)
            self._add_floats(case, r, _real(candidate), plain)
            seen.single = _larger(seen.single, _distances(r, plain))
            noise = _distances(r, self._aside(r, trained))
            seen.noise = _larger(seen.noise, noise)
            seen.noise_errors.add(noise)
            seen.rounding = _larger(seen.rounding, _distances(r, self._aside(r, rounded)))
            if labels is not None:
                seen.accuracy.add(r, _real(candidate), labels)
        else:
            seen.is_exact = True
            self._add_exact(case, reference, candidate)

    def merge(self, other: OutputState) -> None:
        """Takes in what a state of the same output, bound and options has seen of other cases."""
        self._seen.merge(other._seen)

    def to_json(self) -> dict[str, Any]:
        """What was seen, as a JSON object."""
        return self._seen.to_json()

    def load_json(self, data: Mapping[str, Any]) -> None:
        """Takes in what `to_json` gave."""
        self._seen.merge(Seen.from_json(data))

    def _add_floats(self, case: int, r: Floats, c: Floats, single: Floats | None) -> None:
        seen = self._seen
        seen.reference_nan += int(np.isnan(r).sum())
        seen.candidate_nan += int(np.isnan(c).sum())
        seen.reference_inf += int(np.isinf(r).sum())
        seen.candidate_inf += int(np.isinf(c).sum())
        # Where the reference is NaN there is nothing to compare with.
        infinite = np.isinf(r) | np.isinf(c)
        wrong = ~np.isnan(r) & (np.isnan(c) | (infinite & (r != c)))
        if wrong.any():
            seen.nonfinite += int(wrong.sum())
            self._note_worst(case, r, c, np.where(wrong, np.inf, -1.0))
        usable = np.isfinite(r)
        if usable.any():
            seen.scale = max(seen.scale, float(np.abs(r[usable]).max()))
        finite = usable & np.isfinite(c)
        x, y = r[finite], c[finite]
        seen.sums.add(x, y)
        if not x.size:
            return
        error, size = np.abs(y - x), np.abs(x)
        self._count_beyond(error, size, seen.needed_float64, "beyond_float64")
        if single is not None:
            error = np.fmin(error, np.abs(y - single[finite]))
        self._count_beyond(error, size, seen.needed, "beyond")
        seen.excess = max(seen.excess, float((error - _FLOAT32.rtol * size).max()))
        wide = EXPLAINED * self._explained.rtol
        seen.unexplained = max(seen.unexplained, float((error - wide * size).max()))
        spread = np.full(r.shape, -1.0)
        spread[finite] = error
        self._note_worst(case, r, c, spread)
        if r.ndim == 2 and r.shape[1] >= 2:
            rows = finite.all(axis=1)
            seen.top.add(r[rows], c[rows])
            seen.divergence.add(r[rows], c[rows])

    def _add_exact(self, case: int, reference: Array, candidate: Array) -> None:
        if tensors.kind_of(reference) == "string":
            reference, candidate = tensors.as_bytes(reference), tensors.as_bytes(candidate)
            error = (reference != candidate).astype(np.float64)
        else:
            numbers = [tensors.as_float64(a) for a in (reference, candidate)]
            self._seen.sums.add(*(n.ravel() for n in numbers))
            error = np.abs(numbers[1] - numbers[0])
        unequal = np.asarray(reference != candidate)
        self._seen.beyond += int(unequal.sum())
        # An integer above 2^53 can differ and still give a difference of 0 in float64.
        self._note_worst(case, reference, candidate, np.where(unequal, error, -1.0))

    def _note_worst(self, case: int, r: Array, c: Array, size: Floats) -> None:
        if not size.size:
            return
        by_sample = size.reshape(size.shape[0] if size.ndim else 1, -1)
        largest = by_sample.max(axis=1)
        found = []
        for sample in np.argsort(-largest, kind="stable")[:MOST_WORST]:
            place = sample * by_sample.shape[1] + by_sample[sample].argmax()
            index = tuple(int(i) for i in np.unravel_index(int(place), size.shape))
            if size[index] >= 0:
                values = _plain(r[index]), _plain(c[index])
                found.append(WorstSample(float(size[index]), case, index, *values))
        self._seen.worst = worst_first((*self._seen.worst, *found))

    def _count_beyond(self, error: Floats, size: Floats, needed: LogHistogram, count: str) -> None:
        over = error - self._bound.atol - self._bound.rtol * size
        if self._bound.atol_scale:
            scales = over / self._bound.atol_scale
            needed.add(scales[scales > self._seen.scale])
        else:
            setattr(self._seen, count, getattr(self._seen, count) + int((over > 0).sum()))

    def _aside(self, r: Floats, other: Array | None) -> Floats | None:
        """Numbers of another run of the model."""
        if other is None:
            return None
        values = _real(other)
        if values.shape != r.shape:
            raise UsageError(
                f"output {self._name!r}: a noise floor of shape {list(values.shape)} "
                f"for a reference of shape {list(r.shape)}"
            )
        return values

    def _excuses(self, error: float, floor: float | None, k: float) -> bool:
        if floor is None or floor > NOISE_CAP * self._seen.scale:
            return False
        return error <= k * floor

    def _judge(self, beyond: int, *, is_constant: bool) -> tuple[Verdict, str, str]:
        """Verdict, cause and message."""
        seen = self._seen
        if seen.structure:
            return Verdict.FAIL, row.CONVERSION, seen.structure[1]
        if seen.nonfinite:
            return Verdict.FAIL, row.CONVERSION, "NaN or infinite in one but not in the other"
        cause, message = row.OK, f"within {self._bound}"
        absorbed = seen.beyond_float64 + seen.needed_float64.above(seen.scale)
        if absorbed and not beyond:
            cause = row.OK_FLOAT32
            message = (
                f"{absorbed} of {seen.count} beyond {self._bound}, but the model itself, computed "
                "in float32, gives the same"
            )
        if beyond and seen.is_exact:
            return Verdict.FAIL, row.CONVERSION, f"{beyond} of {seen.count} are not equal"
        if beyond:
            what = f"{beyond} of {seen.count} beyond {self._bound}"
            scale = _rounded_up(seen.scale)
            excess = max(0.0, seen.excess - _FLOAT32.atol_scale * scale)
            if self._precision == "float32" and self._excuses(
                seen.sums.max_abs, seen.single, FLOAT32_K
            ):
                cause = row.OK_FLOAT32
                message = f"{what}, but the model itself is {seen.single:.3g} off in float32"
            elif self._excuses(seen.sums.max_abs, seen.noise, TRAINED_K[self._precision]):
                cause = row.OK_TRAINED_NOISE
                message = f"{what}, but the trained model is {seen.noise:.3g} off itself"
            elif self._excuses(excess, seen.rounding, self._k):
                computes_half = self._precision == "float16"
                what_rounds = "to float16" if computes_half else "the weights alone"
                cause = row.OK_HALF_ROUNDING if computes_half else row.OK_WEIGHT_ROUNDING
                message = f"{what}, but rounding {what_rounds} makes {seen.rounding:.3g}"
            else:
                limit = EXPLAINED * (self._explained.atol + self._explained.atol_scale * scale)
                explained = seen.unexplained <= limit or (
                    seen.rounding is not None and excess <= EXPLAINED * seen.rounding
                )
                return Verdict.FAIL, row.PRECISION if explained else row.CONVERSION, what
        if seen.count == 0:
            return Verdict.INCONCLUSIVE, row.NO_EVIDENCE, "there are no elements"
        if seen.reference_nan:
            text = f"the reference has {seen.reference_nan} NaN of {seen.count} elements"
            return Verdict.INCONCLUSIVE, row.REFERENCE_UNUSABLE, text
        if seen.is_exact:
            return Verdict.PASS, row.OK, "equal"
        if seen.sums.low >= seen.sums.high and not is_constant:
            text = "all of the reference is one number, which proves nothing"
            return Verdict.INCONCLUSIVE, row.NO_EVIDENCE, text
        return Verdict.PASS, cause, message

    def finish(self, *, is_constant: bool = False) -> TensorComparison:
        """The row over all cases added.

        Args:
            is_constant: Whether it depends on no input, so that one number is all to be seen of it.
        """
        seen = self._seen
        beyond = seen.beyond + seen.needed.above(seen.scale)
        verdict, cause, message = self._judge(beyond, is_constant=is_constant)
        sums, top = seen.sums, seen.top
        measured: dict[str, Any] = {}
        if sums.count:
            measured = {
                "max_abs": sums.max_abs,
                "mean_abs": sums.mean_abs,
                "rmse": sums.rmse,
                "abs_p50": sums.errors.quantile(0.5),
                "abs_p99": sums.errors.quantile(0.99),
                "abs_p999": sums.errors.quantile(0.999),
                "max_rel": sums.max_rel,
                "ulp": sums.max_ulp,
                "cosine": sums.cosine,
                "snr_db": sums.snr_db,
                "required_rtol": sums.required_rtol,
                "required_atol": sums.max_abs,
            }
            measured["errors"] = sums.errors.octaves()
        if seen.noise is not None:
            measured["noise_errors"] = seen.noise_errors.octaves()
        if top.rows and seen.noise is not None:
            # Two values that both move by the noise can swap across twice that.
            measured["flips_in_noise"] = top.margins.count - top.margins.above(2 * seen.noise)
        if seen.divergence.mean is not None:
            measured["kl_mean"] = seen.divergence.mean
            measured["kl_max"] = seen.divergence.largest
        if seen.accuracy.rows:
            measured["accuracy"] = seen.accuracy
        if seen.worst:
            worst = seen.worst[0]
            measured["worst_case"], measured["worst_index"] = worst.case, worst.index
            measured["worst_reference"] = worst.reference
            measured["worst_candidate"] = worst.candidate
            measured["worst_samples"] = tuple(sample for sample in seen.worst if sample.error > 0)
        return TensorComparison(
            output=self._name,
            verdict=verdict,
            cause=cause,
            message=message,
            tolerance=Tolerance() if seen.is_exact else self._bound,
            count=seen.count,
            mismatched=beyond + seen.nonfinite,
            top1_rows=top.rows,
            top1_agree=top.agree,
            top5_agree=top.agree_5,
            flip_margin=top.flip_margin,
            reference_nan=seen.reference_nan,
            candidate_nan=seen.candidate_nan,
            reference_inf=seen.reference_inf,
            candidate_inf=seen.candidate_inf,
            noise_floor=seen.noise,
            rounding_floor=seen.rounding,
            **measured,
        )


def _distances(r: Floats, other: Floats | None) -> Floats:
    """|other - r| of the finite pairs, as a vector: a NaN of the other excuses nothing."""
    if other is None:
        return np.empty(0)
    finite = np.isfinite(other) & np.isfinite(r)
    return np.abs(other[finite] - r[finite])


def _larger(known: float | None, distances: Floats) -> float | None:
    return max(known or 0.0, float(distances.max())) if distances.size else known


def _rounded_up(scale: float) -> float:
    """The upper end of the bin in which max|r| lies."""
    return LogHistogram.edge(int(LogHistogram.bins(np.array([scale]))[0])) if scale > 0 else 0.0


def _real(array: Array) -> Floats:
    """As float64; a complex number becomes two along a new last axis."""
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], axis=-1)
    return tensors.as_float64(array)


def _plain(value: Any) -> Value:
    return repr(value) if isinstance(value, bytes) else float(value)
