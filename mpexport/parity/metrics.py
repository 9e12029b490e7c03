"""Numbers that describe a difference; all in float64, all streaming and merging exactly.

Sums are taken per case by numpy and added up exactly, so that the cases may come in any order and
in any number of parts: `Differences.merge` of two halves gives the bits of one run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpexport.parity.exact import ExactSum, LogHistogram

Floats = NDArray[np.float64]


def ulp_distance(reference: Floats, candidate: Floats) -> NDArray[np.int64]:
    """How many float32 numbers lie between two values, after rounding each to float32.

    The bits of a float32, read as sign and magnitude, count the floats up from zero; so the
    distance is the difference of these counts. It is 0 for +0 and -0, and 1 for neighbors.
    """

    def rank(values: Floats) -> NDArray[np.int64]:
        with np.errstate(over="ignore"):
            bits: NDArray[np.int32] = values.astype(np.float32, order="C").view(np.int32)
        magnitude = (bits & np.int32(0x7FFFFFFF)).astype(np.int64)
        signed: NDArray[np.int64] = np.where(bits < 0, -magnitude, magnitude)
        return signed

    distance: NDArray[np.int64] = np.abs(rank(candidate) - rank(reference))
    return distance


def relative(difference: Floats, reference: Floats) -> Floats:
    """|d| / |r|; where r is 0, 0 when d is 0 and infinite otherwise."""
    size, scale = np.abs(difference), np.abs(reference)
    out = np.where(size > 0, np.inf, 0.0)
    with np.errstate(over="ignore"):
        np.divide(size, scale, out=out, where=scale > 0)
    return out


def _sum(values: Floats) -> float:
    # Not `@`: BLAS adds in an order that depends on the number of threads.
    return float(values.sum())


@dataclass
class Differences:
    """Sums over pairs (r, c) of finite numbers. `add` may be called any number of times.

    Attributes:
        count: Pairs.
        max_abs: max |c - r|.
        max_rel: max |c - r| / |r| over r that are not 0.
        required_rtol: The same over all r; infinite where r is 0 and c is not.
        max_ulp: max `ulp_distance`.
        low: min r.
        high: max r.
        sum_abs: sum |c - r|.
        error_energy: sum (c - r)^2.
        reference_energy: sum r^2.
        candidate_energy: sum c^2.
        dot: sum r·c.
        errors: Histogram of |c - r|.
    """

    count: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    required_rtol: float = 0.0
    max_ulp: int = 0
    low: float = math.inf
    high: float = -math.inf
    sum_abs: ExactSum = field(default_factory=ExactSum)
    error_energy: ExactSum = field(default_factory=ExactSum)
    reference_energy: ExactSum = field(default_factory=ExactSum)
    candidate_energy: ExactSum = field(default_factory=ExactSum)
    dot: ExactSum = field(default_factory=ExactSum)
    errors: LogHistogram = field(default_factory=LogHistogram)

    def add(self, reference: Floats, candidate: Floats) -> None:
        """Takes in two equally long vectors of finite numbers."""
        if not reference.size:
            return
        difference = candidate - reference
        size = np.abs(difference)
        rel = relative(difference, reference)
        nonzero = rel[reference != 0]
        self.count += reference.size
        self.max_abs = max(self.max_abs, float(size.max()))
        self.max_rel = max(self.max_rel, float(nonzero.max()) if nonzero.size else 0.0)
        self.required_rtol = max(self.required_rtol, float(rel.max()))
        self.max_ulp = max(self.max_ulp, int(ulp_distance(reference, candidate).max()))
        self.low = min(self.low, float(reference.min()))
        self.high = max(self.high, float(reference.max()))
        self.sum_abs.add(_sum(size))
        self.error_energy.add(_sum(difference * difference))
        self.reference_energy.add(_sum(reference * reference))
        self.candidate_energy.add(_sum(candidate * candidate))
        self.dot.add(_sum(reference * candidate))
        self.errors.add(size)

    def merge(self, other: Differences) -> None:
        """Takes in what another one has seen."""
        self.count += other.count
        for name in ("max_abs", "max_rel", "required_rtol", "max_ulp", "high"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        self.low = min(self.low, other.low)
        for name in _SUMS:
            getattr(self, name).merge(getattr(other, name))

    @property
    def mean_abs(self) -> float:
        """Mean |c - r|; only with a count above 0."""
        return self.sum_abs.value() / self.count

    @property
    def rmse(self) -> float:
        """Root mean square of c - r; only with a count above 0."""
        return math.sqrt(self.error_energy.value() / self.count)

    @property
    def cosine(self) -> float | None:
        """The quotient dot / (|r|·|c|) in [-1, 1]; None when one of them is all zero."""
        norms = math.sqrt(self.reference_energy.value()) * math.sqrt(self.candidate_energy.value())
        return max(-1.0, min(1.0, self.dot.value() / norms)) if norms > 0 else None

    @property
    def snr_db(self) -> float:
        """10 log10(sum r^2 / sum (c - r)^2) in dB; infinite without any difference."""
        signal, noise = self.reference_energy.value(), self.error_energy.value()
        if noise == 0:
            return math.inf
        if signal == 0:
            return -math.inf
        return 10 * (math.log10(signal) - math.log10(noise))

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; infinities stay Python floats."""
        return {
            f.name: value.to_json() if hasattr(value, "to_json") else value
            for f in fields(self)
            for value in [getattr(self, f.name)]
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Differences:
        """The inverse of `to_json`."""
        kinds: dict[str, Any] = {**dict.fromkeys(_SUMS[:-1], ExactSum), "errors": LogHistogram}
        return cls(**{n: kinds[n].from_json(v) if n in kinds else v for n, v in data.items()})


_SUMS = ("sum_abs", "error_energy", "reference_energy", "candidate_energy", "dot", "errors")


@dataclass
class TopK:
    """Agreement of the columns of the k largest values, per row.

    Attributes:
        rows: Rows seen.
        agree: Rows with the same column on top; the first of equal ones counts.
        agree_5: Rows whose five top columns are the same set; those of at most five columns count
            as the same.
        margins: Gap between the reference's two highest values in each row whose top column
            differs. A small one means that the reference itself was undecided.
        flip_margin: The largest of them; None when none differs.
    """

    rows: int = 0
    agree: int = 0
    agree_5: int = 0
    margins: LogHistogram = field(default_factory=LogHistogram)
    flip_margin: float | None = None

    def add(self, reference: Floats, candidate: Floats) -> None:
        """Takes in two matrices (rows, at least 2 columns) of finite numbers."""
        flipped = reference.argmax(axis=1) != candidate.argmax(axis=1)
        self.rows += len(flipped)
        self.agree += int((~flipped).sum())
        if reference.shape[1] <= 5:
            self.agree_5 += len(flipped)
        else:
            first, second = (_top_five(m) for m in (reference, candidate))
            self.agree_5 += int((first == second).all(axis=1).sum())
        if flipped.any():
            top = np.partition(reference[flipped], -2, axis=1)[:, -2:]
            gaps = top[:, 1] - top[:, 0]
            self.margins.add(gaps)
            self.flip_margin = max(float(gaps.max()), self.flip_margin or 0.0)

    def merge(self, other: TopK) -> None:
        """Takes in what another one has seen."""
        self.rows += other.rows
        self.agree += other.agree
        self.agree_5 += other.agree_5
        self.margins.merge(other.margins)
        known = [m for m in (self.flip_margin, other.flip_margin) if m is not None]
        self.flip_margin = max(known) if known else None

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**vars(self), "margins": self.margins.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TopK:
        """The inverse of `to_json`."""
        return cls(**{**data, "margins": LogHistogram.from_json(data["margins"])})


def _top_five(matrix: Floats) -> NDArray[np.int64]:
    """The five top columns of each row, ascending; of equal values the first columns."""
    order = np.argsort(-matrix, axis=1, kind="stable")[:, :5]
    return np.sort(order, axis=1)


# How far the sum of a row of probabilities may be from 1 for rows that half precision has rounded.
_UNITY = 1e-2


@dataclass
class Divergence:
    """Kullback-Leibler divergence sum r·ln(r/c) over rows that are distributions, in nats.

    A row is one when all its numbers are at least 0 and their sum is 1 within 1%. Both rows are
    then scaled to sum 1. Where c is 0 and r isn't, the divergence is infinite.

    Attributes:
        rows: Rows that are distributions in both.
        others: Rows that aren't.
        largest: Largest divergence.
        infinite: Rows of infinite divergence, which `total` leaves out.
        total: Sum of the divergences.
    """

    rows: int = 0
    others: int = 0
    largest: float = 0.0
    infinite: int = 0
    total: ExactSum = field(default_factory=ExactSum)

    def add(self, reference: Floats, candidate: Floats) -> None:
        """Takes in two matrices (rows, columns) of finite numbers."""
        good = np.ones(len(reference), bool)
        for m in (reference, candidate):
            good &= (m >= 0).all(axis=1) & (np.abs(m.sum(axis=1) - 1) <= _UNITY)
        self.rows += int(good.sum())
        self.others += int((~good).sum())
        if not good.any():
            return
        r, c = (m[good] / m[good].sum(axis=1, keepdims=True) for m in (reference, candidate))
        terms = np.zeros_like(r)
        with np.errstate(divide="ignore"):
            np.multiply(r, np.log(np.divide(r, c, where=r > 0, out=np.ones_like(r))), out=terms)
        # Rounding can make the sum of a tiny divergence negative.
        rows = np.maximum(terms.sum(axis=1), 0.0)
        self.infinite += int(np.isinf(rows).sum())
        self.largest = max(self.largest, float(rows.max()))
        self.total.add(_sum(rows[np.isfinite(rows)]))

    def merge(self, other: Divergence) -> None:
        """Takes in what another one has seen."""
        self.rows += other.rows
        self.others += other.others
        self.infinite += other.infinite
        self.largest = max(self.largest, other.largest)
        self.total.merge(other.total)

    @property
    def mean(self) -> float | None:
        """Mean over rows; None where any row isn't a distribution, or there is none."""
        if self.others or not self.rows:
            return None
        return math.inf if self.infinite else self.total.value() / self.rows

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**vars(self), "total": self.total.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Divergence:
        """The inverse of `to_json`."""
        return cls(**{**data, "total": ExactSum.from_json(data["total"])})
