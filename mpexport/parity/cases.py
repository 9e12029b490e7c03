"""The cases a comparison runs: cut from the user's data, or made up to fit the model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

from mpexport import plugins, tensors
from mpexport.errors import UsageError
from mpexport.parity.data import read_batches
from mpexport.parity.inputs import make_inputs
from mpexport.parity.labels import Labels
from mpexport.parity.streams import Stream, rebatch
from mpexport.parity.stress import Case, stress_cases
from mpexport.signature import Signature, TensorSpec
from mpexport.tensors import TensorSet

# Batches of made-up inputs.
BATCHES = (1, 3)
# Samples per case of the user's data when the model takes any batch.
DEFAULT_BATCH = 32
_FLOATS = ("float16", "bfloat16", "float32")


@dataclass(frozen=True)
class InputOptions:
    """Where sample inputs come from.

    Attributes:
        data: An ``.npz`` file with one array per input, samples along the leading axis; a directory
            of such files, or of one ``.npy`` for each input; or a function that gives an iterable
            of batches of any size, each a mapping from input names to arrays or, for the only
            input, an array.
        ranges: Input name → (lowest, highest) for made-up inputs.
        seed: Seed of made-up inputs.
        batch: Samples per case of the data; None means the model's fixed batch, or else
            `DEFAULT_BATCH`.
        labels: An ``.npy`` with the true class of each sample of the data.
        labeled: The output that ``labels`` belong to; None means the only one they fit.
    """

    data: Optional[Union[str, Stream]] = None
    ranges: Optional[Mapping[str, tuple[float, float]]] = None
    seed: int = 0
    batch: Optional[int] = None
    labels: Optional[str] = None
    labeled: Optional[str] = None

    def open_labels(self) -> Optional[Labels]:
        """The labels, if there are any.

        Raises:
            UsageError: Labels for made-up inputs; see also `Labels`.
        """
        if self.labels is None:
            return None
        if self.data is None:
            raise UsageError("labels need data: made-up inputs have no true class")
        return Labels(Path(self.labels), self.labeled)


def iterate(
    signature: Signature,
    files: list[Signature],
    inputs: InputOptions,
    inferred: Mapping[str, Any],
    batches: Sequence[int] = BATCHES,
) -> Iterator[TensorSet]:
    """Sample inputs for one signature, one case at a time.

    Args:
        signature: Of the source.
        files: Of the files to be verified; their fixed sizes are honored.
        inputs: What the user gave.
        inferred: Input name → [lowest, highest] index that its tables allow.
        batches: Samples per made-up case, in units of the batch that the files have fixed.

    Raises:
        UsageError: An input cannot be made up, or the data does not fit.
    """
    if inputs.data is not None:
        yield from from_data(inputs.data, signature, inputs.batch)
        return
    batch = fixed_batch(files)
    ranges = _ranges(signature, inputs, inferred)
    wanted = _with_fixed_sizes(signature, files)
    own = {s.shape[0] for s in wanted.inputs if s.shape}
    # A model whose own batch is fixed gets as many cases, each of that batch.
    sizes = [batch * n for n in batches] if None in own or not own else [1 for _ in batches]
    for i, size in enumerate(sizes):
        yield make_inputs(wanted, size, inputs.seed + i, ranges)


def iterate_thoroughly(
    signature: Signature, files: list[Signature], inputs: InputOptions, inferred: Mapping[str, Any]
) -> Iterator[Case]:
    """Like `iterate`, but where nobody gave data, with the inputs of `mpexport.parity.stress`."""
    if inputs.data is not None:
        yield from map(Case, iterate(signature, files, inputs, inferred))
        return
    yield from stress_cases(
        _with_fixed_sizes(signature, files),
        fixed_batch(files),
        inputs.seed,
        _ranges(signature, inputs, inferred),
    )


def _ranges(
    signature: Signature, inputs: InputOptions, inferred: Mapping[str, Any]
) -> dict[str, tuple[float, float]]:
    names = {s.name for s in signature.inputs}
    ranges = {k: (v[0], v[1]) for k, v in inferred.items()}
    ranges.update({k: v for k, v in (inputs.ranges or {}).items() if k in names})
    return ranges


def from_data(
    data: Union[str, Path, Stream], signature: Signature, batch: int | None = None
) -> Iterator[TensorSet]:
    """Cuts data into cases along the leading axis, which counts samples.

    Float values are rounded to the declared element type, as the model itself would see them.

    Args:
        data: See `InputOptions`. An input of rank 0 is the same in every case.
        signature: The inputs wanted.
        batch: See `InputOptions`.

    Yields:
        Cases in order. The last of a file is smaller when the model takes any batch and the rows
        are no multiple.

    Raises:
        UsageError: Names, shapes, kinds or sample counts do not fit the model.
        InconclusiveError: There are no samples.
    """
    specs = {s.name: s for s in signature.inputs}
    size, is_fixed = _rows_per_case(signature, batch)
    if callable(data):
        name, only = "inputs", next(iter(specs)) if len(specs) == 1 else None
        batches = rebatch(data, only, size, exact=is_fixed)
    else:
        name, batches = str(data), read_batches(Path(data), size, exact=is_fixed)
    for case in batches:
        for given in case:
            if given not in specs:
                raise UsageError(
                    f"{name}: the model has no input {given!r}; "
                    + plugins.did_you_mean(given, specs)
                )
        missing = [wanted for wanted in specs if wanted not in case]
        if missing:
            raise UsageError(f"{name}: missing inputs: " + ", ".join(missing))
        for wanted, spec in specs.items():
            # The leading size is checked apart, by `_rows_per_case`: here only the rest.
            shape = (None, *spec.shape[1:]) if spec.shape else spec.shape
            tensors.check(TensorSpec(wanted, shape, spec.dtype), case[wanted])
        yield {
            given: tensors.representable(array, specs[given].dtype)
            if specs[given].dtype in _FLOATS
            else array
            for given, array in case.items()
        }


def _rows_per_case(signature: Signature, batch: int | None) -> tuple[int, bool]:
    """Samples per case, and whether every case must have as many."""
    fixed = {s.shape[0] for s in signature.inputs if s.shape and s.shape[0] is not None}
    if len(fixed) > 1:
        raise UsageError(f"the inputs have different fixed batches: {sorted(fixed)}")
    if fixed:
        size = fixed.pop()
        if batch not in (None, size):
            raise UsageError(f"the model's batch is fixed to {size}, not {batch}")
        return size, True
    if batch is not None and batch < 1:
        raise UsageError(f"batch {batch}: need at least 1")
    return batch or DEFAULT_BATCH, False


def fixed_batch(signatures: list[Signature]) -> int:
    """The smallest batch that all files can run: the least common multiple of fixed batches."""
    sizes = [s.shape[0] for sig in signatures for s in sig.inputs if s.shape]
    return math.lcm(*[size for size in sizes if size])


def _with_fixed_sizes(signature: Signature, files: list[Signature]) -> Signature:
    """The signature with the sizes (but the leading one) that a file has fixed."""
    specs = []
    for spec in signature.inputs:
        shape = spec.shape
        for other in files:
            match = next((s for s in other.inputs if s.name == spec.name), None)
            if match is None or match.shape is None or shape is None:
                continue
            rest = [a if a is not None else b for a, b in zip(shape, match.shape)]
            shape = (shape[0], *rest[1:]) if rest else ()
        specs.append(TensorSpec(spec.name, shape, spec.dtype))
    return Signature(signature.key, tuple(specs), signature.outputs)


def count_samples(case: TensorSet) -> int:
    """Samples in a case: its leading size."""
    return max((a.shape[0] if a.ndim else 1 for a in case.values()), default=0)
