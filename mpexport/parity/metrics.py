"""Numbers that describe a difference; all in float64, all streaming over cases."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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


@dataclass
class Differences:
    """Sums over pairs (r, c) of finite numbers. `add` may be called any number of times.

    Attributes:
        count: Pairs.
        max_abs: max |c - r|.
        max_rel: max |c - r| / |r| over r that are not 0.
        required_rtol: The same over all r; infinite where r is 0 and c is not.
        max_ulp: max `ulp_distance`.
        sum_abs: sum |c - r|.
        error_energy: sum (c - r)^2.
        reference_energy: sum r^2.
        candidate_energy: sum c^2.
        dot: sum r·c.
        low: min r.
        high: max r.
    """

    count: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    required_rtol: float = 0.0
    max_ulp: int = 0
    sum_abs: float = 0.0
    error_energy: float = 0.0
    reference_energy: float = 0.0
    candidate_energy: float = 0.0
    dot: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, reference: Floats, candidate: Floats) -> None:
        """Takes in two equally long vectors of finite numbers."""
        if not reference.size:
            return
        difference = candidate - reference
        rel = relative(difference, reference)
        nonzero = rel[reference != 0]
        self.count += reference.size
        self.max_abs = max(self.max_abs, float(np.abs(difference).max()))
        self.max_rel = max(self.max_rel, float(nonzero.max()) if nonzero.size else 0.0)
        self.required_rtol = max(self.required_rtol, float(rel.max()))
        self.max_ulp = max(self.max_ulp, int(ulp_distance(reference, candidate).max()))
        self.sum_abs += float(np.abs(difference).sum())
        self.error_energy += float(difference @ difference)
        self.reference_energy += float(reference @ reference)
        self.candidate_energy += float(candidate @ candidate)
        self.dot += float(reference @ candidate)
        self.low = min(self.low, float(reference.min()))
        self.high = max(self.high, float(reference.max()))

    @property
    def mean_abs(self) -> float:
        """Mean |c - r|; only with a count above 0."""
        return self.sum_abs / self.count

    @property
    def rmse(self) -> float:
        """Root mean square of c - r; only with a count above 0."""
        return math.sqrt(self.error_energy / self.count)

    @property
    def cosine(self) -> float | None:
        """The quotient dot / (|r|·|c|) in [-1, 1]; None when one of them is all zero."""
        norms = math.sqrt(self.reference_energy) * math.sqrt(self.candidate_energy)
        return max(-1.0, min(1.0, self.dot / norms)) if norms > 0 else None

    @property
    def snr_db(self) -> float:
        """10 log10(sum r^2 / sum (c - r)^2) in dB; infinite without any difference."""
        if self.error_energy == 0:
            return math.inf
        if self.reference_energy == 0:
            return -math.inf
        return 10 * (math.log10(self.reference_energy) - math.log10(self.error_energy))


@dataclass
class TopOne:
    """Agreement of the column of the maximum, per row; the first of equal ones counts.

    Attributes:
        rows: Rows seen.
        agree: Rows with the same column.
        flip_margin: Largest gap between the reference's two highest values among rows that differ;
            None when none differs. A small one means that the reference itself was undecided.
    """

    rows: int = 0
    agree: int = 0
    flip_margin: float | None = None

    def add(self, reference: Floats, candidate: Floats) -> None:
        """Takes in two matrices (rows, at least 2 columns) of finite numbers."""
        flipped = reference.argmax(axis=1) != candidate.argmax(axis=1)
        self.rows += len(flipped)
        self.agree += int((~flipped).sum())
        if flipped.any():
            top = np.partition(reference[flipped], -2, axis=1)[:, -2:]
            margin = float((top[:, 1] - top[:, 0]).max())
            self.flip_margin = max(margin, self.flip_margin or 0.0)
