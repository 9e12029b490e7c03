"""Sample inputs: made from a seed, or cut from the user's data."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from mpexport import dtypes, plugins, tensors
from mpexport.errors import InconclusiveError, UsageError
from mpexport.signature import Signature, TensorSpec
from mpexport.tensors import Array, TensorSet

# For every unknown size that is not the batch. One number for all, so that inputs that share an
# axis (ids and mask, query and key) agree; 8 is within any model's longest sequence.
DEFAULT_SIZE = 8
# Rows per case of a data file when the model takes any batch.
DEFAULT_BATCH = 32

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


def cases_from_npz(path: Path, signature: Signature, batch: int | None = None) -> list[TensorSet]:
    """Cuts a data file into cases along its leading axis, which counts samples.

    Float values are rounded to the declared element type, as the model itself would see them.

    Args:
        path: An ``.npz`` with one array per input; an input of rank 0 is the same in every case.
        signature: The inputs wanted.
        batch: Rows per case; None means the model's fixed batch, or else `DEFAULT_BATCH`.

    Returns:
        Cases in file order. The last is smaller when the model takes any batch and the rows are no
        multiple.

    Raises:
        UsageError: Names, shapes, kinds or sample counts do not fit the model.
        InconclusiveError: There are no samples.
    """
    data = tensors.load_npz(path)
    specs = {s.name: s for s in signature.inputs}
    for name in data:
        if name not in specs:
            raise UsageError(
                f"{path}: the model has no input {name!r}; {plugins.did_you_mean(name, specs)}"
            )
    missing = [name for name in specs if name not in data]
    if missing:
        raise UsageError(f"{path}: missing inputs: " + ", ".join(missing))
    per_sample = {n: a for n, a in data.items() if specs[n].shape != () and a.ndim > 0}
    counts = {name: len(array) for name, array in per_sample.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{n}: {c}" for n, c in sorted(counts.items()))
        raise UsageError(f"{path}: the inputs have different numbers of samples: {listed}")
    total = next(iter(counts.values()), 1)
    if total == 0:
        raise InconclusiveError(f"{path}: no samples, so nothing to compare")
    size, is_fixed = _rows_per_case(path, signature, batch, total)
    for name, spec in specs.items():
        head = data[name][:size] if name in per_sample else data[name]
        # The leading size is checked apart, by `_rows_per_case`: here only the rest.
        shape = (None, *spec.shape[1:]) if spec.shape else spec.shape
        tensors.check(TensorSpec(name, shape, spec.dtype), head)
    if is_fixed and total % size:
        raise UsageError(f"{path}: {total} samples are no multiple of the fixed batch {size}")
    ready = {
        name: tensors.representable(array, specs[name].dtype)
        if specs[name].dtype in ("float16", "bfloat16", "float32")
        else array
        for name, array in data.items()
    }
    return [
        {n: a[start : start + size] if n in per_sample else a for n, a in ready.items()}
        for start in range(0, total, size)
    ]


def _rows_per_case(
    path: Path, signature: Signature, batch: int | None, total: int
) -> tuple[int, bool]:
    fixed = {s.shape[0] for s in signature.inputs if s.shape and s.shape[0] is not None}
    if len(fixed) > 1:
        raise UsageError(f"{path}: the inputs have different fixed batches: {sorted(fixed)}")
    if fixed:
        size = fixed.pop()
        if batch not in (None, size):
            raise UsageError(f"the model's batch is fixed to {size}, not {batch}")
        return size, True
    if batch is not None and batch < 1:
        raise UsageError(f"batch {batch}: need at least 1")
    return min(batch or DEFAULT_BATCH, total), False


def digest(cases: Iterable[TensorSet]) -> str:
    """SHA-256 over names, types, shapes and values of all cases, in order; names are sorted."""
    sha = hashlib.sha256()
    for case in cases:
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
