"""What float16 storage would do to weights: counted per weight before anything is converted.

float16 ends at 65504; what is not below 65520 would round to infinity. It also ends below: a number
up to 2^-25 rounds to zero (2^-25 itself lies halfway to the smallest subnormal, 2^-24, and rounds
to the even one of the two).

The upper end, NaN and Inf are a reason to refuse. The lower end is one only where it costs more
than rounding does anyway. A weight of magnitude m >= 2^-14, the smallest normal number, is off by
up to 2^-11 m after rounding, which is at least 2^-25; flushing is never off by more than 2^-25. So
in a channel whose largest weight is at least 2^-14 the flushed ones add no error that rounding the
largest one may not have added already. Below that the bound of 2^-11 does not hold, and what is
flushed may be all there is of a channel. A channel is a slice along the last axis (an output
channel of a dense layer or a convolution); of a vector it is all of it. Chance alone flushes
weights: of those drawn from a normal distribution of deviation s, one in about 2^25 s is that
small. An untrained ResNet50 has 13 of them, in 7 of its variables, and none is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context as eager_context

from mpexport.dtypes import FLOAT16
from mpexport.errors import ConversionError
from mpexport.findings import Change
from mpexport.tf import concrete, resources
from mpexport.tf.normalized import NormalizedModel

LARGEST = FLOAT16.max_finite or 0.0
OVERFLOWS = 65520.0  # halfway between 65504 and 65536, and rounded to even: infinity
FLUSHES = 2.0**-25
SMALLEST_NORMAL = 2.0**-14
# Elements looked at in one go: copies stay small beside the weight.
_BLOCK = 2**20
_SHOWN = 5


@dataclass(frozen=True)
class Damage:
    """What float16 would do to one weight.

    Attributes:
        name: Of the variable.
        elements: How many numbers it has.
        above: Finite numbers that would become infinite.
        infinite: Infinite numbers.
        nan: Numbers that are NaN.
        flushed: Numbers other than zero that would become zero.
        lost: Of those, the ones in channels whose largest number is below 2^-14.
        worst: The number farthest out, as text: of those beyond the range, else of the lost ones,
            else of the flushed ones.
        index: Where it stands.
    """

    name: str
    elements: int
    above: int
    infinite: int
    nan: int
    flushed: int
    lost: int
    worst: str
    index: tuple[int, ...]

    @property
    def is_fault(self) -> bool:
        """Whether this weight is refused."""
        return bool(self.above or self.infinite or self.nan or self.lost)

    def __str__(self) -> str:
        counts = (
            (self.nan, "NaN"),
            (self.infinite, "Inf"),
            (self.above, "above 65504"),
            (self.lost, "flushed to 0"),
            (0 if self.is_fault else self.flushed, f"of {self.elements} flushed to 0"),
        )
        shown = ", ".join(f"{n} {what}" for n, what in counts if n)
        return f"{self.name} ({shown}, worst {self.worst} at {list(self.index)})"


def examine(name: str, value: np.ndarray) -> Damage | None:
    """Looks at one float32 array; None when float16 rounds all of it as it rounds any number."""
    channels = value.shape[-1] if value.ndim >= 2 else 1
    rows = value.reshape(-1, channels) if channels == 1 or value.ndim >= 2 else value
    largest = np.zeros(channels, np.float32)
    flushed = np.zeros(channels, np.int64)
    above = infinite = nan = 0
    extreme, extreme_at = -1.0, -1  # NaN counts as farther out than Inf
    step = max(1, _BLOCK // max(1, channels))
    for start in range(0, len(rows), step):
        size = np.abs(rows[start : start + step])
        top = np.fmax.reduce(size, axis=0)
        largest = np.fmax(largest, top)
        tiny = size <= FLUSHES
        if tiny.any():
            flushed += (tiny & (size > 0)).sum(axis=0)
        if not bool((size < OVERFLOWS).all()):
            nans, infs = int(np.isnan(size).sum()), int(np.isinf(size).sum())
            nan, infinite = nan + nans, infinite + infs
            above += int((size >= OVERFLOWS).sum()) - infs
            size[np.isnan(size)] = np.inf
            if nans and nan == nans:  # the first NaN beats whatever came before
                extreme = -1.0
                size = np.where(np.isnan(rows[start : start + step]), np.inf, 0.0)
            if float(size.max()) > extreme:
                extreme, extreme_at = float(size.max()), start * channels + int(size.argmax())
    if not (above or infinite or nan or flushed.any()):
        return None
    # A channel of numbers beyond the range has no small ones to lose.
    doomed = largest < SMALLEST_NORMAL
    lost = int(flushed[doomed].sum())
    if extreme_at < 0:
        extreme_at = _worst_flushed(rows, doomed if lost else np.ones(channels, bool), channels)
    index = tuple(int(i) for i in np.unravel_index(extreme_at, value.shape))
    return Damage(
        name,
        value.size,
        above,
        infinite,
        nan,
        int(flushed.sum()),
        lost,
        f"{value[index]:.3g}",
        index,
    )


def _worst_flushed(rows: np.ndarray, columns: np.ndarray, channels: int) -> int:
    """Flat index of the largest number that becomes zero in the given channels."""
    best, at = -1.0, 0
    step = max(1, _BLOCK // max(1, channels))
    for start in range(0, len(rows), step):
        size = np.abs(rows[start : start + step])
        size[(size > FLUSHES) | ~columns] = 0
        if size.size and float(size.max()) > best:
            best, at = float(size.max()), start * channels + int(size.argmax())
    return at


def _float_weights(model: NormalizedModel, key: str) -> Iterator[tuple[str, Any]]:
    names = {id(v.handle): v.name for v in model.holder([key]).resources if hasattr(v, "handle")}
    for capture in model.captures([key]):
        if concrete.variable_dtype(capture) == tf.float32.as_datatype_enum:
            yield names.get(id(capture), "a weight"), capture


def float16_damage(model: NormalizedModel, key: str) -> list[Damage]:
    """What float16 storage would do to each weight of a signature; only those it damages."""
    found = (examine(n, resources.read_value(c)) for n, c in _float_weights(model, key))
    return [damage for damage in found if damage is not None]


def accept(damages: list[Damage], *, allow_clamp: bool) -> tuple[list[str], list[Change]]:
    """Refuses damaged weights, or says what becomes of them.

    Args:
        damages: As `float16_damage` found them.
        allow_clamp: Whether numbers beyond ±65504 may be clamped, and lost channels flushed.

    Returns:
        Notes for the user, and one change per damaged weight.

    Raises:
        ConversionError: Names weights, counts and the worst values.
    """
    refused = [d for d in damages if d.nan or (d.is_fault and not allow_clamp)]
    if refused:
        hint = "keep float32 weights for this model"
        if not any(d.nan for d in refused):
            hint += ", or store ±65504 and 0 in their place: --allow-clamp"
        raise ConversionError(
            f"weights that float16 cannot hold: {_listed(refused)}",
            hint=hint,
            where=refused[0].name,
            details={"weights": [asdict(d) for d in refused]},
        )
    notes, changes = [], []
    clamped = [d for d in damages if d.above or d.infinite]
    flushed = [d for d in damages if d.flushed]
    if clamped:
        notes.append(f"weights were clamped to ±65504: {_listed(clamped)}")
    lost = [d for d in flushed if d.lost]
    if lost:
        notes.append(f"channels lost weights to float16: {_listed(lost)}")
    elif flushed:
        total = sum(d.flushed for d in flushed)
        notes.append(
            f"{total} weights of {len(flushed)} variables are 0 in float16 (up to 2^-25, "
            "below what rounding their channels explains)"
        )
    changes += [Change("float16_weights", "weight-clamped", d.name, str(d)) for d in clamped]
    changes += [
        Change("float16_weights", "weight-flushed", d.name, f"{d.flushed} of {d.elements}")
        for d in flushed
    ]
    return notes, changes


def _listed(damages: list[Damage]) -> str:
    more = f" and {len(damages) - _SHOWN} more" if len(damages) > _SHOWN else ""
    return ", ".join(str(d) for d in damages[:_SHOWN]) + more


@contextmanager
def clamped(model: NormalizedModel, key: str, damages: list[Damage]) -> Iterator[bool]:
    """Within this context the weights beyond ±65504 are clamped where they are.

    It gives whether there are any.

    So a file holds clamped weights, and constants of the graph (a mask of -1e9) stay what they are.
    """
    wanted = {d.name for d in damages if d.above or d.infinite}
    before = []
    try:
        for name, capture in _float_weights(model, key) if wanted else ():
            if name in wanted:
                value = np.array(resources.read_value(capture))
                _assign(capture, np.clip(value, -LARGEST, LARGEST))
                before.append((capture, value))
        yield bool(before)
    finally:
        for capture, value in before:
            _assign(capture, value)


def _assign(capture: Any, value: np.ndarray) -> None:
    with eager_context.eager_mode():
        tf.raw_ops.AssignVariableOp(resource=capture, value=tf.constant(value))
