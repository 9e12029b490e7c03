"""How far a number may be from its reference.

|c - r| <= atol + atol_scale·max|r| + rtol·|r|
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Union

import numpy as np
from numpy.typing import NDArray

from mpexport import dtypes, plugins
from mpexport.errors import UsageError


@dataclass(frozen=True)
class Tolerance:
    """One bound; every part is a finite number of at least 0.

    Attributes:
        rtol: Times |r| of the element.
        atol: In the unit of the output.
        atol_scale: Times the largest |r| of the whole output, over all cases.
    """

    rtol: float = 0.0
    atol: float = 0.0
    atol_scale: float = 0.0

    def __post_init__(self) -> None:
        """Raises `UsageError` for anything but finite numbers of at least 0."""
        for name, value in asdict(self).items():
            # A NaN would make every comparison false, and so disarm the check.
            if not (isinstance(value, (int, float)) and 0 <= value < float("inf")):
                raise UsageError(f"tolerance {name} = {value!r}: need a finite number >= 0")

    def limit(self, reference: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
        """The largest allowed |c - r| per element.

        Args:
            reference: r, finite.
            scale: max|r| of the output.
        """
        limit: NDArray[np.float64] = (
            self.atol + self.atol_scale * scale + self.rtol * np.abs(reference)
        )
        return limit

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Tolerance:
        """The inverse of `to_json`."""
        return cls(**data)

    def __str__(self) -> str:
        """For people: the parts that are not 0."""
        parts = [f"rtol {self.rtol:.3g}"]
        if self.atol or not self.atol_scale:
            parts.append(f"atol {self.atol:.3g}")
        if self.atol_scale:
            parts.append(f"atol {self.atol_scale:.3g}·max|r|")
        return ", ".join(parts)


# Per output name; the name "" stands for every output not named.
Tolerances = Union[Tolerance, Mapping[str, Tolerance]]

_U16 = dtypes.get("float16").unit_roundoff or 0.0
_DEFAULTS = {
    "float32": 1e-5,
    "float16-weights": 4 * _U16,
    "float16": 16 * _U16,
}


def default_for(precision: str) -> Tolerance:
    """The default bound of a file's precision; rtol and atol_scale are the same number t.

    A sum of n products has a relative error of about sqrt(n)·u when the roundings are independent
    (Higham & Mary 2019, "A New Approach to Probabilistic Rounding Error Analysis"); a chain of n
    roundings of equal size grows alike. u is the unit roundoff.

    - ``float32``: t = 1e-5 = 168 u with u = 2^-24, so n = 28,000: the longest dot products of
      common layers, or shorter ones in a chain of layers. Both files compute in float32, only in
      another order.
    - ``float16-weights``: t = 4 u = 2^-9 = 1.95e-3 with u = 2^-11. Each weight is rounded once, by
      at most u. Inside one layer these errors average out to about u of the output; 4 = sqrt(16)
      allows for 16 such layers in a row. For use only when the outputs with rounded weights are
      not known: `compare_outputs` takes them as ``floor``, and is far sharper then.
    - ``float16``: t = 16 u = 2^-7 = 7.8e-3. Every activation is rounded too: 16 = sqrt(256) allows
      for 256 half-precision operations in a row. For use only between two exported files: where
      the model is at hand, the rounding of the very file is emulated and is the ``floor``.

    Raises:
        UsageError: No such precision.
    """
    if precision not in _DEFAULTS:
        raise UsageError(
            f"no tolerance for {precision!r}; {plugins.did_you_mean(precision, _DEFAULTS)}"
        )
    return Tolerance(rtol=_DEFAULTS[precision], atol_scale=_DEFAULTS[precision])


def for_output(tolerances: Tolerances, output: str) -> Tolerance:
    """The bound of one output.

    Raises:
        UsageError: A mapping has neither this output nor the default ``""``.
    """
    if isinstance(tolerances, Tolerance):
        return tolerances
    found = tolerances.get(output, tolerances.get(""))
    if found is None:
        raise UsageError(f"no tolerance for output {output!r}")
    return found


def check_names(tolerances: Tolerances, outputs: Mapping[str, object]) -> None:
    """Raises `UsageError` when a tolerance names an output that is not there."""
    if not isinstance(tolerances, Tolerance):
        for name in tolerances:
            if name and name not in outputs:
                raise UsageError(
                    f"a tolerance names no output: {name!r}; {plugins.did_you_mean(name, outputs)}"
                )
