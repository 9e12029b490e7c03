"""How much accuracy a candidate loses on labeled samples, and how sure that is.

Both models see the same samples, so only those matter on which they differ: the reference is right
and the candidate wrong (lost), or the other way round (won). The drop in accuracy is
(lost - won) / n.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpexport.errors import UsageError
from mpexport.findings import Verdict
from mpexport.parity.metrics import Floats

CONFIDENCE = 0.95


@dataclass
class PairedAccuracy:
    """Counts of right answers, candidate against reference.

    Attributes:
        rows: Samples with a label.
        both: Right in both.
        lost: Right in the reference only.
        won: Right in the candidate only.
    """

    rows: int = 0
    both: int = 0
    lost: int = 0
    won: int = 0

    def add(self, reference: Floats, candidate: Floats, labels: NDArray[Any]) -> None:
        """Takes in two matrices (rows, classes) and the true classes (rows,).

        The answer of a row is the column of its maximum, the first of equal ones; a row with a NaN
        is wrong.

        Raises:
            UsageError: A label is no column.
        """
        classes = reference.shape[1]
        if labels.size and not (int(labels.min()) >= 0 and int(labels.max()) < classes):
            raise UsageError(
                f"labels from {labels.min()} to {labels.max()} for an output of {classes} classes",
                hint="labels are the numbers of the columns, from 0 on",
            )
        right = []
        for matrix in (reference, candidate):
            usable = ~np.isnan(matrix).any(axis=1)
            right.append(usable & (np.nan_to_num(matrix).argmax(axis=1) == labels))
        first, second = right
        self.rows += len(labels)
        self.both += int((first & second).sum())
        self.lost += int((first & ~second).sum())
        self.won += int((~first & second).sum())

    def merge(self, other: PairedAccuracy) -> None:
        """Takes in what another one has seen."""
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def reference(self) -> float:
        """Accuracy of the reference, in [0, 1]."""
        return (self.both + self.lost) / self.rows

    @property
    def candidate(self) -> float:
        """Accuracy of the candidate, in [0, 1]."""
        return (self.both + self.won) / self.rows

    @property
    def drop(self) -> float:
        """Accuracy lost, in [-1, 1]; negative when the candidate is better."""
        return (self.lost - self.won) / self.rows

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """An interval that holds the true drop with at least this probability.

        The shares of lost and of won samples each get their exact interval (Clopper & Pearson 1934)
        at half of the error probability, and the difference of the two runs over what both allow
        (Bonferroni). That assumes nothing about the samples but that they are drawn independently,
        and is a little wider than need be.
        """
        if not self.rows:
            return -1.0, 1.0
        tail = (1 - confidence) / 4
        lost, won = (binomial_interval(k, self.rows, tail) for k in (self.lost, self.won))
        return lost[0] - won[1], lost[1] - won[0]

    def judge(self, most: float, confidence: float = CONFIDENCE) -> tuple[Verdict, str]:
        """Whether the drop is shown to be at most ``most``, shown to be more, or neither.

        Args:
            most: The largest drop allowed, as a share: 0.002 for 0.2%.
            confidence: Of the interval.

        Returns:
            PASS, FAIL or INCONCLUSIVE, and a line that says why.
        """
        if not self.rows:
            return Verdict.INCONCLUSIVE, "there are no labeled samples"
        low, high = self.interval(confidence)
        drop = (
            f"accuracy {self.reference:.3%} -> {self.candidate:.3%}, a drop of {self.drop:.3%} "
            f"({confidence:.0%} interval {low:.3%} to {high:.3%}, {self.rows} samples)"
        )
        if high <= most:
            return Verdict.PASS, f"{drop}: at most {most:.3%} is shown"
        if low > most:
            return Verdict.FAIL, f"{drop}: more than {most:.3%}"
        if self.drop > most:
            return Verdict.INCONCLUSIVE, f"{drop}: more than {most:.3%} seen, but not shown"
        needed = f"about {_needed(self, most, confidence):,} samples would show it"
        return Verdict.INCONCLUSIVE, f"{drop}: at most {most:.3%} is not shown; {needed}"

    def to_json(self) -> dict[str, Any]:
        """As a JSON object: the counts, and what follows from them."""
        low, high = self.interval()
        derived = {"drop": self.drop, "drop_low": low, "drop_high": high} if self.rows else {}
        return {**asdict(self), **derived}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PairedAccuracy:
        """The inverse of `to_json`."""
        return cls(*(data[name] for name in ("rows", "both", "lost", "won")))


def _needed(seen: PairedAccuracy, most: float, confidence: float) -> int:
    """Samples after which the drop would be shown, if more of them go as those seen."""
    rows = seen.rows
    while rows < 10**9:
        rows *= 2
        share = rows / seen.rows
        more = PairedAccuracy(
            rows, round(seen.both * share), round(seen.lost * share), round(seen.won * share)
        )
        if more.interval(confidence)[1] <= most:
            break
    return rows


def binomial_interval(count: int, rows: int, tail: float) -> tuple[float, float]:
    """The exact interval of a share (Clopper & Pearson 1934).

    Args:
        count: Successes.
        rows: Trials, at least 1.
        tail: Probability left out on each side.
    """
    low = _beta_quantile(tail, count, rows - count + 1) if count else 0.0
    high = _beta_quantile(1 - tail, count + 1, rows - count) if count < rows else 1.0
    return low, high


def _beta_quantile(share: float, a: int, b: int) -> float:
    """The x with I_x(a, b) = share, by bisection to the last bit or two."""
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if beta_share(middle, a, b) < share:
            low = middle
        else:
            high = middle
    return high


def beta_share(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function I_x(a, b) for 0 < x < 1.

    By its continued fraction (DLMF 8.17.22), evaluated by Lentz' method.
    """
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side
        return 1.0 - beta_share(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
        + a * math.log(x) + b * math.log1p(-x)
    )  # fmt: skip
    tiny = 1e-300
    c, d, value = 1.0, 0.0, 1.0
    for i in range(10_000):
        m = i // 2
        if i == 0:
            step = 1.0
        elif i % 2 == 0:
            step = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            step = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 + step * d
        d = 1 / (d if abs(d) > tiny else tiny)
        c = 1 + step / c
        c = c if abs(c) > tiny else tiny
        value *= c * d
        if i and abs(c * d - 1) < 1e-15:
            break
    return front * (value - 1) / a
