"""Sample inputs made from a seed, and the digest that says which inputs were used."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mpexport import dtypes, plugins, tensors
from mpexport.errors import UsageError
from mpexport.signature import Signature, TensorSpec
from mpexport.tensors import Array, TensorSet

# For every unknown size that is not the batch. One number for all, so that inputs that share an
# axis (ids and mask, query and key) agree; 8 is within any model's longest sequence.
DEFAULT_SIZE = 8

_RANGE = re.compile(r"(?P<name>.+):(?P<low>[^:]+?)\.\.(?P<high>[^:]+)")


def parse_range(text: str) -> tuple[str, float, float]:
    """Reads ``NAME:LO..HI``; the name itself may hold colons.

    >>> parse_range("ids:0..30521")
    ('ids', 0, 30521)

    Raises:
        UsageError: Not of that form, not finite, or LO above HI.
    """
    match = _RANGE.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError("no NAME:LO..HI")
        low, high = _number(match["low"]), _number(match["high"])
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError("not finite")
    except ValueError as e:
        raise UsageError(
            f"{text!r} is no range: {e}", hint="write NAME:LO..HI, for example ids:0..30521"
        ) from e
    if low > high:
        raise UsageError(f"{text!r} is no range: {low} is above {high}")
    return match["name"], low, high


def _number(text: str) -> float:
    # Whole numbers stay int: a float would lose digits above 2^53.
    try:
        return int(text)
    except ValueError:
        return float(text)


def make_inputs(
    signature: Signature,
    batch: int = 1,
    seed: int = 0,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    dims: Mapping[str, Sequence[int]] | None = None,
) -> TensorSet:
    """One case of inputs, the same on every machine for the same arguments.

    Each tensor has a generator of its own, PCG64 seeded by (seed, SHA-256 of the name), so neither
    the order nor the number of inputs matters. Floats are standard normal, or uniform in [LO, HI]
    with a range; they are float32 rounded to what the declared type holds. Integers are uniform in
    LO..HI inclusive; booleans are fair coins.

    Args:
        signature: The inputs wanted.
        batch: Size of an unknown leading axis.
        seed: At least 0.
        ranges: (LO, HI) by input name. An integer input must have one.
        dims: By input name, sizes of its unknown axes other than the leading one, in order;
            `DEFAULT_SIZE` for inputs not named.

    Raises:
        UsageError: Something cannot be made up: an integer without a range, a string, an unknown
            rank; or an argument names no input or does not fit it.
    """
    ranges, dims = ranges or {}, dims or {}
    names = [s.name for s in signature.inputs]
    for name in [*ranges, *dims]:
        if name not in names:
            raise UsageError(
                f"the model has no input {name!r}; {plugins.did_you_mean(name, names)}"
            )
    if seed < 0 or batch < 1:
        raise UsageError(f"seed {seed} and batch {batch}: need seed >= 0 and batch >= 1")
    made: TensorSet = {}
    for spec in signature.inputs:
        shape = _shape(spec, batch, dims.get(spec.name))
        name_hash = int.from_bytes(hashlib.sha256(spec.name.encode()).digest(), "big")
        rng = np.random.Generator(np.random.PCG64([seed, name_hash]))
        made[spec.name] = _values(spec, shape, rng, ranges.get(spec.name))
    return made


def _ask_for_data(spec: TensorSpec, why: str) -> UsageError:
    return UsageError(
        f"input {spec}: {why}", hint="give your own with --inputs data.npz", where=spec.name
    )


def _shape(spec: TensorSpec, batch: int, sizes: Sequence[int] | None) -> tuple[int, ...]:
    if spec.shape is None:
        raise _ask_for_data(spec, "its rank is unknown")
    unknown = [axis for axis, size in enumerate(spec.shape) if size is None and axis > 0]
    if sizes is None:
        sizes = [DEFAULT_SIZE] * len(unknown)
    if len(sizes) != len(unknown) or any(size < 1 for size in sizes):
        raise UsageError(
            f"input {spec}: sizes {list(sizes)} for {len(unknown)} unknown axes after the first",
            where=spec.name,
        )
    rest = dict(zip(unknown, sizes))
    return tuple(
        size if size is not None else batch if axis == 0 else rest[axis]
        for axis, size in enumerate(spec.shape)
    )


def _values(
    spec: TensorSpec,
    shape: tuple[int, ...],
    rng: np.random.Generator,
    bounds: tuple[float, float] | None,
) -> Array:
    kind = dtypes.get(spec.dtype).kind
    if kind == "float":
        limit = dtypes.get(spec.dtype).max_finite
        if bounds is not None and limit is not None and max(map(abs, bounds)) > limit:
            raise UsageError(f"input {spec}: {bounds[0]}..{bounds[1]} is beyond {spec.dtype}")
        if bounds is None:
            values = rng.standard_normal(shape, dtype=np.float32)
        else:
            values = rng.uniform(bounds[0], bounds[1], shape).astype(np.float32)
        return tensors.representable(np.asarray(values), spec.dtype)
    if kind == "int":
        return _integers(spec, shape, rng, bounds)
    if bounds is not None:
        raise UsageError(f"input {spec}: only numbers have a range", where=spec.name)
    if kind == "bool":
        return np.asarray(rng.integers(0, 2, shape)).astype(np.bool_)
    raise _ask_for_data(spec, f"values of type {spec.dtype} cannot be made up")


def _integers(
    spec: TensorSpec,
    shape: tuple[int, ...],
    rng: np.random.Generator,
    bounds: tuple[float, float] | None,
) -> Array:
    if bounds is None:
        raise UsageError(
            f"input {spec}: the range of an integer input is asked for, never guessed",
            hint=f"--input-range {spec.name}:LO..HI",
            where=spec.name,
        )
    low, high = int(bounds[0]), int(bounds[1])
    limits = np.iinfo(spec.dtype)
    if (low, high) != tuple(bounds) or low > high or low < limits.min or high > limits.max:
        raise UsageError(
            f"input {spec}: {bounds[0]}..{bounds[1]} is no range of {spec.dtype}", where=spec.name
        )
    return np.asarray(rng.integers(low, high, shape, dtype=np.dtype(spec.dtype), endpoint=True))


def case_digest(case: TensorSet) -> str:
    """SHA-256 over names, types, shapes and values of one case; names are sorted."""
    sha = hashlib.sha256()
    for name in sorted(case):
        array = np.asarray(case[name])
        if array.dtype.kind in "SUO":
            items = tensors.as_bytes(array).ravel().tolist()
            values = b"".join(b"%d:%s" % (len(i), i) for i in items)
        else:
            values = np.asarray(array, order="C").tobytes()
        head = f"{name!r} {tensors.dtype_name(array.dtype)} {array.shape}\n"
        sha.update(head.encode() + values)
    return sha.hexdigest()


def digest(cases: Iterable[str]) -> str:
    """One SHA-256 for all cases, of their `case_digest`s in order."""
    return hashlib.sha256("\n".join(cases).encode()).hexdigest()
