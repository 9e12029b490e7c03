"""Sums and histograms that don't depend on the order of what goes in, so that parts merge exactly.

Floating-point addition isn't associative: two shards added up would give other last bits than one
run. A sum of float64 numbers held as one whole number is exact, and a count is one anyway.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Every finite float64 is a whole number of these.
_UNITS = 1074


class ExactSum:
    """A sum of float64 numbers without rounding; merging is addition."""

    def __init__(self, units: int = 0) -> None:
        """Starts with a number of 2^-1074."""
        self._units = units

    def add(self, value: float) -> None:
        """Adds one finite number."""
        above, below = value.as_integer_ratio()  # below is a power of two
        self._units += above << (_UNITS - below.bit_length() + 1)

    def merge(self, other: ExactSum) -> None:
        """Adds another sum."""
        self._units += other._units

    def value(self) -> float:
        """The sum, rounded once, to nearest; infinite when float64 can't hold it."""
        try:
            return self._units / (1 << _UNITS)
        except OverflowError:
            return math.inf if self._units > 0 else -math.inf

    def to_json(self) -> str:
        """As a hexadecimal number."""
        return format(self._units, "x")

    @classmethod
    def from_json(cls, data: str) -> ExactSum:
        """The inverse of `to_json`."""
        return cls(int(data, 16))


def _edges(count: int) -> NDArray[np.float64]:
    """The mantissas 2^(i/count - 1) for i from 0 on; count is a power of two.

    Square roots and products are rounded alike on every machine; logarithms and powers aren't.
    """
    step = 2.0
    for _ in range(count.bit_length() - 1):
        step = math.sqrt(step)
    edges = np.full(count, step)
    edges[0] = 0.5
    return np.multiply.accumulate(edges)


@dataclass(frozen=True)
class Octaves:
    """How sizes of errors are spread: a `LogHistogram` with one bin per power of two.

    Attributes:
        zeros: Numbers that are 0.
        counts: For each bin that holds something, ascending: its exponent e and its count, the
            numbers v with 2^(e-1) < v <= 2^e.
    """

    zeros: int
    counts: tuple[tuple[int, int], ...]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"zeros": self.zeros, "counts": [list(pair) for pair in self.counts]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Octaves:
        """The inverse of `to_json`."""
        return cls(data["zeros"], tuple((e, count) for e, count in data["counts"]))


class LogHistogram:
    """Counts of positive numbers in bins whose edges are 2^(k/32): 2.2% wide.

    Zeros are counted apart. The idea is that of HDR histograms and of DDSketch (Masson, Rim & Lee
    2019): relative error bounded, counts only, so that merging is exact.
    """

    PER_OCTAVE = 32
    _EDGES = _edges(PER_OCTAVE)

    def __init__(self, zeros: int = 0, counts: Mapping[int, int] | None = None) -> None:
        """Starts with the given counts."""
        self.zeros = zeros
        self._counts = dict(counts or {})

    @classmethod
    def bins(cls, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """The bin k of each positive number v: 2^((k-1)/32) < v <= 2^(k/32), up to rounding."""
        mantissa, exponent = np.frexp(values)
        within: NDArray[np.int64] = np.searchsorted(cls._EDGES, mantissa, side="left")
        result: NDArray[np.int64] = (exponent.astype(np.int64) - 1) * cls.PER_OCTAVE + within
        return result

    @classmethod
    def edge(cls, k: int) -> float:
        """The upper end of bin k."""
        whole, rest = divmod(k, cls.PER_OCTAVE)
        return math.ldexp(float(cls._EDGES[rest]), whole + 1)

    def add(self, values: NDArray[np.float64]) -> None:
        """Takes in a vector of finite numbers of at least 0."""
        positive = values[values > 0]
        self.zeros += values.size - positive.size
        if not positive.size:
            return
        bins = self.bins(positive)
        first = int(bins.min())
        # Float64 has 67,000 bins at most: counting in place is faster than sorting.
        counts = np.bincount(bins - first)
        for k in np.flatnonzero(counts).tolist():
            self._counts[first + k] = self._counts.get(first + k, 0) + int(counts[k])

    def merge(self, other: LogHistogram) -> None:
        """Adds another histogram."""
        self.zeros += other.zeros
        for k, count in other._counts.items():
            self._counts[k] = self._counts.get(k, 0) + count

    @property
    def count(self) -> int:
        """All numbers seen."""
        return self.zeros + sum(self._counts.values())

    def above(self, value: float) -> int:
        """How many numbers are in bins above that of ``value``, which is at least 0."""
        if value <= 0:
            return sum(self._counts.values())
        limit = int(self.bins(np.array([value]))[0])
        return sum(count for k, count in self._counts.items() if k > limit)

    def quantile(self, share: float) -> float:
        """The upper end of the bin in which the quantile lies, by the nearest-rank definition.

        Args:
            share: In (0, 1].
        """
        left = max(1, math.ceil(share * self.count)) - self.zeros
        if left <= 0:
            return 0.0
        for k in sorted(self._counts):
            left -= self._counts[k]
            if left <= 0:
                return self.edge(k)
        raise ValueError("a quantile of no numbers")

    def rows(self) -> list[tuple[float, int]]:
        """Upper end and count of each bin that holds something, ascending; zeros left out."""
        return [(self.edge(k), self._counts[k]) for k in sorted(self._counts)]

    def octaves(self) -> Octaves:
        """The same with one bin per power of two: coarse enough for a plot."""
        counts: dict[int, int] = {}
        for k in sorted(self._counts):
            exponent = -(-k // self.PER_OCTAVE)  # rounded up: the bins' upper ends are inclusive
            counts[exponent] = counts.get(exponent, 0) + self._counts[k]
        return Octaves(self.zeros, tuple(counts.items()))

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"zeros": self.zeros, "counts": [[k, self._counts[k]] for k in sorted(self._counts)]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LogHistogram:
        """The inverse of `to_json`."""
        return cls(data["zeros"], dict(data["counts"]))
