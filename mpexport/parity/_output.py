"""What is known about one output while its cases go by."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpexport import tensors
from mpexport.errors import UsageError
from mpexport.findings import Verdict
from mpexport.parity import metrics, row
from mpexport.parity.metrics import Floats
from mpexport.parity.row import TensorComparison, Value
from mpexport.parity.tolerance import Tolerance, default_for
from mpexport.tensors import Array

# A trained model (or rounded weights) further than this share of max|r| from the reference is not
# noisy but broken, for example by overflow; it then excuses nothing.
NOISE_CAP = 2.0**-3
# An error of up to this many times what the candidate's precision explains is put down to
# precision: wide enough for a layer more sensitive than most, too narrow for a wrong layer.
EXPLAINED = 8.0

_FLOAT32 = default_for("float32")


class OutputState:
    """Collects the cases of one output and gives the verdict in the end."""

    def __init__(
        self,
        name: str,
        bound: Tolerance,
        explained: Tolerance,
        scale: float,
        k: float,
        *,
        computes_half: bool = False,
        is_constant: bool = False,
    ) -> None:
        """Starts without cases.

        Args:
            name: The output.
            bound: What it is held to.
            explained: What the candidate's precision explains.
            scale: max|r| over all cases.
            k: How many times a floor is still no fault.
            computes_half: Whether the floor is that of computing in float16, not of its weights.
            is_constant: Whether it depends on no input, so that one number is all to be seen of it.
        """
        self._is_constant = is_constant
        self._computes_half = computes_half
        self._name, self._bound, self._explained = name, bound, explained
        self._scale, self._k = scale, k
        self._sums = metrics.Differences()
        self._top = metrics.TopOne()
        self._structure = ""
        self._is_exact = False
        self._count = self._beyond = self._nonfinite = 0
        self._nans, self._infs = [0, 0], [0, 0]
        self._worst: tuple[int, tuple[int, ...], Value, Value] | None = None
        self._worst_size = -1.0
        self._excess = self._ratio = 0.0
        self._noise: float | None = None
        self._rounding: float | None = None

    def reject(self, why: str) -> None:
        """Notes a difference of structure, which no number can mend."""
        self._structure = self._structure or why

    def add(
        self,
        case: int,
        reference: Array,
        candidate: Array,
        trained: Array | None,
        rounded: Array | None,
    ) -> None:
        """Takes in one case."""
        if reference.shape != candidate.shape:
            self.reject(f"shape {list(reference.shape)} became {list(candidate.shape)}")
            return
        kind = tensors.kind_of(reference)
        if kind != tensors.kind_of(candidate):
            before, after = (tensors.dtype_name(a.dtype) for a in (reference, candidate))
            self.reject(f"element type {before} became {after}")
            return
        self._count += reference.size
        if kind in ("float", "complex"):
            r = _real(reference)
            self._add_floats(case, r, _real(candidate))
            self._noise = self._farthest(self._noise, r, trained)
            self._rounding = self._farthest(self._rounding, r, rounded)
        else:
            self._is_exact = True
            self._add_exact(case, reference, candidate)

    def _add_floats(self, case: int, r: Floats, c: Floats) -> None:
        self._nans[0] += int(np.isnan(r).sum())
        self._nans[1] += int(np.isnan(c).sum())
        self._infs[0] += int(np.isinf(r).sum())
        self._infs[1] += int(np.isinf(c).sum())
        # Where the reference is NaN there is nothing to compare with.
        infinite = np.isinf(r) | np.isinf(c)
        wrong = ~np.isnan(r) & (np.isnan(c) | (infinite & (r != c)))
        if wrong.any():
            self._nonfinite += int(wrong.sum())
            self._note_worst(case, r, c, np.where(wrong, np.inf, -1.0))
        finite = np.isfinite(r) & np.isfinite(c)
        x, y = r[finite], c[finite]
        self._sums.add(x, y)
        if not x.size:
            return
        error = np.abs(y - x)
        self._beyond += int((error > self._bound.limit(x, self._scale)).sum())
        self._excess = max(self._excess, float((error - _FLOAT32.limit(x, self._scale)).max()))
        explained = self._explained.limit(x, self._scale)
        self._ratio = max(self._ratio, float(metrics.relative(error, explained).max()))
        spread = np.full(r.shape, -1.0)
        spread[finite] = error
        self._note_worst(case, r, c, spread)
        if r.ndim == 2 and r.shape[1] >= 2:
            rows = finite.all(axis=1)
            self._top.add(r[rows], c[rows])

    def _add_exact(self, case: int, reference: Array, candidate: Array) -> None:
        if tensors.kind_of(reference) == "string":
            reference, candidate = tensors.as_bytes(reference), tensors.as_bytes(candidate)
            error = (reference != candidate).astype(np.float64)
        else:
            self._sums.add(
                tensors.as_float64(reference).ravel(), tensors.as_float64(candidate).ravel()
            )
            error = np.abs(tensors.as_float64(candidate) - tensors.as_float64(reference))
        unequal = np.asarray(reference != candidate)
        self._beyond += int(unequal.sum())
        # An integer above 2^53 can differ and still give a difference of 0 in float64.
        self._note_worst(case, reference, candidate, np.where(unequal, error, -1.0))

    def _note_worst(self, case: int, r: Array, c: Array, size: Floats) -> None:
        if not size.size:
            return
        index = tuple(int(i) for i in np.unravel_index(int(size.argmax()), size.shape))
        if float(size[index]) > self._worst_size:
            self._worst_size = float(size[index])
            self._worst = (case, index, _plain(r[index]), _plain(c[index]))

    def _farthest(self, known: float | None, r: Floats, other: Array | None) -> float | None:
        """max(known, max|other - r|) over finite pairs: a NaN of the other excuses nothing."""
        if other is None:
            return known
        values = _real(other)
        if values.shape != r.shape:
            raise UsageError(
                f"output {self._name!r}: a noise floor of shape {list(values.shape)} "
                f"for a reference of shape {list(r.shape)}"
            )
        finite = np.isfinite(values) & np.isfinite(r)
        if not finite.any():
            return known
        return max(known or 0.0, float(np.abs(values[finite] - r[finite]).max()))

    def _excuses(self, error: float, floor: float | None) -> bool:
        if floor is None or floor > NOISE_CAP * self._scale:
            return False
        return error <= self._k * floor

    def _judge(self) -> tuple[Verdict, str, str]:
        """Verdict, cause and message."""
        if self._structure:
            return Verdict.FAIL, row.CONVERSION, self._structure
        if self._nonfinite:
            return Verdict.FAIL, row.CONVERSION, "NaN or infinite in one but not in the other"
        cause, message = row.OK, f"within {self._bound}"
        if self._beyond and self._is_exact:
            return Verdict.FAIL, row.CONVERSION, f"{self._beyond} of {self._count} are not equal"
        if self._beyond:
            error = self._sums.max_abs
            what = f"{self._beyond} of {self._count} beyond {self._bound}"
            if self._excuses(error, self._noise):
                cause = row.OK_TRAINED_NOISE
                message = f"{what}, but the trained model is {self._noise:.3g} off itself"
            elif self._excuses(self._excess, self._rounding):
                what_rounds = "to float16" if self._computes_half else "the weights alone"
                cause = row.OK_HALF_ROUNDING if self._computes_half else row.OK_WEIGHT_ROUNDING
                message = f"{what}, but rounding {what_rounds} makes {self._rounding:.3g}"
            else:
                by_rounding = self._rounding is not None and self._excess <= (
                    EXPLAINED * self._rounding
                )
                explained = by_rounding or self._ratio <= EXPLAINED
                return Verdict.FAIL, row.PRECISION if explained else row.CONVERSION, what
        if self._count == 0:
            return Verdict.INCONCLUSIVE, row.NO_EVIDENCE, "there are no elements"
        if self._nans[0]:
            text = f"the reference has {self._nans[0]} NaN of {self._count} elements"
            return Verdict.INCONCLUSIVE, row.REFERENCE_UNUSABLE, text
        if self._is_exact:
            return Verdict.PASS, row.OK, "equal"
        if self._sums.low >= self._sums.high and not self._is_constant:
            text = "all of the reference is one number, which proves nothing"
            return Verdict.INCONCLUSIVE, row.NO_EVIDENCE, text
        return Verdict.PASS, cause, message

    def finish(self) -> TensorComparison:
        """The row over all cases added."""
        verdict, cause, message = self._judge()
        sums, top = self._sums, self._top
        case, index, r, c = self._worst or (None, None, None, None)
        measured: dict[str, Any] = {}
        if sums.count:
            measured = {
                "max_abs": sums.max_abs,
                "mean_abs": sums.mean_abs,
                "rmse": sums.rmse,
                "max_rel": sums.max_rel,
                "ulp": sums.max_ulp,
                "cosine": sums.cosine,
                "snr_db": sums.snr_db,
                "required_rtol": sums.required_rtol,
                "required_atol": sums.max_abs,
            }
        return TensorComparison(
            output=self._name,
            verdict=verdict,
            cause=cause,
            message=message,
            tolerance=Tolerance() if self._is_exact else self._bound,
            count=self._count,
            mismatched=self._beyond + self._nonfinite,
            top1_rows=top.rows,
            top1_agree=top.agree,
            flip_margin=top.flip_margin,
            worst_case=case,
            worst_index=index,
            worst_reference=r,
            worst_candidate=c,
            reference_nan=self._nans[0],
            candidate_nan=self._nans[1],
            reference_inf=self._infs[0],
            candidate_inf=self._infs[1],
            noise_floor=self._noise,
            rounding_floor=self._rounding,
            **measured,
        )


def _real(array: Array) -> Floats:
    """As float64; a complex number becomes two along a new last axis."""
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], axis=-1)
    return tensors.as_float64(array)


def _plain(value: Any) -> Value:
    return repr(value) if isinstance(value, bytes) else float(value)
