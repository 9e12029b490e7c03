"""Made-up inputs that try a model's corners: for a comparison to which nobody gives data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Callable, NamedTuple, Optional

import numpy as np

from mpexport import dtypes
from mpexport.parity.inputs import case_digest, make_inputs
from mpexport.signature import Signature, TensorSpec
from mpexport.tensors import Array, TensorSet

# Samples per case: one, an even and an odd number, and the largest batch.
_BATCHES = (1, 2, 3)
_LARGEST, _LARGEST_ELEMENTS = 16, 2**20
# Sizes of all open axes but the leading one: they often must agree, as those of ids and mask do.
_SIZES = (1, 2, 3, 33)

Bounds = Optional[tuple[float, float]]
Fill = Callable[[TensorSpec, Array, Bounds], Optional[Array]]


class Case(NamedTuple):
    """One set of inputs.

    Attributes:
        inputs: By name.
        name: What it tries, for people; empty for data.
        may_skip: Whether it is left out where the reference gives nothing to compare with.
        group: See `mpexport.parity.verdict.FileVerdict.add`.
    """

    inputs: TensorSet
    name: str = ""
    may_skip: bool = False
    group: str = ""


def stress_cases(
    signature: Signature, unit: int, seed: int, ranges: Mapping[str, tuple[float, float]]
) -> Iterator[Case]:
    """Inputs in the order of what is usual: values, then batches, then sizes of other axes.

    The first case is one that every model can run.

    Args:
        signature: The inputs wanted.
        unit: Every batch is a multiple of this; sizes of a leading axis that is open only.
        seed: See `make_inputs`.
        ranges: (LO, HI) by input name.

    Raises:
        UsageError: An input cannot be made up; see `make_inputs`.
    """
    seen: set[str] = set()
    for case in _all(signature, unit, seed, ranges):
        sha = case_digest(case.inputs)
        if sha not in seen:
            seen.add(sha)
            yield case


def _all(
    signature: Signature, unit: int, seed: int, ranges: Mapping[str, tuple[float, float]]
) -> Iterator[Case]:
    first = make_inputs(signature, unit, seed, ranges)
    yield Case(first, "normal")
    for name, fill in _FILLS.items():
        made = {
            spec.name: fill(spec, first[spec.name], ranges.get(spec.name))
            for spec in signature.inputs
        }
        if any(array is not None for array in made.values()):
            filled = {n: first[n] if array is None else array for n, array in made.items()}
            yield Case(filled, name, may_skip=True, group=name)
    open_batch = any(s.shape and s.shape[0] is None for s in signature.inputs)
    if not open_batch:
        yield Case(make_inputs(signature, unit, seed + 1, ranges), "normal, other numbers")
    else:
        elements = max(array.size for array in first.values()) // unit
        largest = min(_LARGEST, max(4, _LARGEST_ELEMENTS // max(elements, 1)))
        for i, size in enumerate([*_BATCHES[1:], math.ceil(largest / unit)], start=1):
            batch = size * unit
            yield Case(
                make_inputs(signature, batch, seed + i, ranges), f"batch {batch}", may_skip=True
            )
    opened = {
        s.name: sum(size is None for size in s.shape[1:])
        for s in signature.inputs
        if s.shape and None in s.shape[1:]
    }
    for size in _SIZES if opened else ():
        dims = {name: [size] * count for name, count in opened.items()}
        yield Case(
            make_inputs(signature, unit, seed, ranges, dims), f"open axes of {size}", may_skip=True
        )


def _kind(spec: TensorSpec) -> str:
    return dtypes.get(spec.dtype).kind


def _constant(value: float) -> Fill:
    def fill(spec: TensorSpec, like: Array, bounds: Bounds) -> Optional[Array]:
        low, high = bounds or (-math.inf, math.inf)
        if _kind(spec) != "float" or not low <= value <= high:
            return None
        return np.full_like(like, value)

    return fill


def _bound(which: int) -> Fill:
    def fill(spec: TensorSpec, like: Array, bounds: Bounds) -> Optional[Array]:
        return None if bounds is None else np.full_like(like, bounds[which])

    return fill


def _one_hot(spec: TensorSpec, like: Array, bounds: Bounds) -> Optional[Array]:
    if _kind(spec) != "float" or like.ndim < 2 or like.shape[-1] < 2:
        return None
    low, high = bounds or (0.0, 1.0)
    rows = math.prod(like.shape[:-1])
    made = np.full((rows, like.shape[-1]), low, like.dtype)
    made[np.arange(rows), np.arange(rows) % like.shape[-1]] = high
    return made.reshape(like.shape)


def _mask(value: bool) -> Fill:
    def fill(spec: TensorSpec, like: Array, bounds: Bounds) -> Optional[Array]:
        return np.full_like(like, value) if _kind(spec) == "bool" else None

    return fill


_FILLS: Mapping[str, Fill] = {
    "zeros": _constant(0.0),
    "ones": _constant(1.0),
    "minus ones": _constant(-1.0),
    "one-hot": _one_hot,
    "lowest of the range": _bound(0),
    "highest of the range": _bound(1),
    "masks all false": _mask(False),
    "masks all true": _mask(True),
}
