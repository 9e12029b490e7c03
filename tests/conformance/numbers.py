"""Whether a file's outputs are the twin's, by arithmetic that shares nothing with the product."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Outputs = Mapping[str, npt.NDArray]

# The bound for float32 files, |c - t| <= atol + rtol·|t| with rtol = 1e-5 and atol = 1e-5·max|t|.
# The twin itself computes in float32 and may be as far from the truth as the file is: twice that.
BOUND = 2 * 1e-5


def difference(twin: Outputs, found: Outputs, allowed: Outputs | None = None) -> tuple[float, str]:
    """The largest error in units of the bound, and what is wrong where there is no number for it.

    Args:
        twin: What is right, by output name.
        found: What the file gave.
        allowed: Further absolute error to allow, one number per output: what rounding literals or
            weights makes in the twin itself.
    """
    if set(twin) != set(found):
        return np.inf, f"outputs {sorted(found)} instead of {sorted(twin)}"
    worst = 0.0
    for name, t in twin.items():
        c = found[name]
        if t.shape != c.shape:
            return np.inf, f"{name}: shape {c.shape} instead of {t.shape}"
        if t.dtype.kind not in "fc":
            if c.dtype.kind in "fc" or not np.array_equal(t, c):
                return np.inf, f"{name}: {_count(t, c)} of {t.size} values differ"
            continue
        if c.dtype.kind not in "fc":
            return np.inf, f"{name}: is {c.dtype.name}"
        t, c = t.astype(_WIDE[t.dtype.kind]), c.astype(_WIDE[c.dtype.kind])
        if not np.array_equal(np.isfinite(t), np.isfinite(c)):
            return np.inf, f"{name}: NaN or Inf in other places"
        finite = np.isfinite(t)
        if not np.array_equal(t[~finite], c[~finite], equal_nan=True):
            return np.inf, f"{name}: other infinities"
        t, c = t[finite], c[finite]
        if t.size:
            extra = 0.0 if allowed is None else float(allowed[name])
            bound = BOUND * (np.abs(t) + np.abs(t).max()) + extra
            error = np.abs(c - t)
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.where(error == 0, 0.0, error / bound)
            worst = max(worst, float(ratio.max()))
    return worst, ""


_WIDE = {"f": np.float64, "c": np.complex128}


def _count(t: npt.NDArray, c: npt.NDArray) -> int:
    return int((t != c).sum()) if t.dtype.kind == c.dtype.kind else t.size


def spread(one: list[Outputs], other: list[Outputs]) -> dict[str, float]:
    """The largest absolute difference per output between two runs of the same cases."""
    most: dict[str, float] = {}
    for a, b in zip(one, other, strict=True):
        for name, x in a.items():
            gap = 0.0
            if x.dtype.kind == "f" and x.size:
                gaps = np.abs(x.astype(np.float64) - b[name].astype(np.float64))
                gap = float(np.max(gaps, where=np.isfinite(gaps), initial=0.0))
            most[name] = max(most.get(name, 0.0), gap)
    return most


def is_evidence(outputs: list[Outputs]) -> bool:
    """Whether a wrong computation could be told by these: something finite that isn't constant."""
    for case in outputs:
        for x in case.values():
            if (
                x.size > 1
                and x.dtype.kind != "O"
                and np.ptp(x[np.isfinite(x)] if x.dtype.kind == "f" else x.astype(np.float64)) > 0
            ):
                return True
    return False
