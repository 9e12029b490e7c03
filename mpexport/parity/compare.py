"""Comparing a candidate's outputs with the reference's: one verdict per output, by name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from mpexport import tensors
from mpexport.errors import UsageError
from mpexport.findings import Verdict
from mpexport.parity import row, tolerance
from mpexport.parity._output import OutputState
from mpexport.parity.row import TensorComparison
from mpexport.parity.tolerance import Tolerances
from mpexport.tensors import TensorSet

Cases = Sequence[TensorSet]


def compare_outputs(
    reference: TensorSet,
    candidate: TensorSet,
    tolerances: Tolerances,
    trained: TensorSet | None = None,
    floor: TensorSet | None = None,
    k: float = 2.0,
    precision: str = "float32",
) -> tuple[TensorComparison, ...]:
    """`compare_cases` with a single case."""
    return compare_cases(
        [reference],
        [candidate],
        tolerances,
        None if trained is None else [trained],
        None if floor is None else [floor],
        k,
        precision,
    )


def compare_cases(
    references: Cases,
    candidates: Cases,
    tolerances: Tolerances,
    trained: Cases | None = None,
    floor: Cases | None = None,
    k: float = 2.0,
    precision: str = "float32",
    constant: Collection[str] = (),
) -> tuple[TensorComparison, ...]:
    """Compares the outputs of several cases; one row per output over all of them.

    An output fails when it is missing or extra, has another shape or kind of element, a NaN or
    infinity that the reference does not have there (or lacks one), or a number beyond the bound
    that nothing explains (max|r| counts as up to 2.2% more, see `OutputState`). Beyond the bound it
    still passes when max|c - r| <= K·max|t - r| (not farther from the reference than the trained
    model t, K depending on the precision: `mpexport.parity._output.TRAINED_K`), when a float32 file
    has max|c - r| <= 4·max|s - r| (the reference s in float32), or when |c - r| <= k·max|f - r| +
    the float32 bound (no further than rounding to float16 moves the reference: that of the weights,
    or of everything a float16 file rounds). It is
    inconclusive when nothing was compared, the reference has a NaN, or all of the reference is one
    number though it depends on the inputs. Integers, booleans and strings must be equal.

    Args:
        references: Outputs by name, one set per case.
        candidates: The same of the candidate.
        tolerances: One bound, or one per output name (``""`` for the rest).
        trained: Outputs of the model as trained.
        floor: Outputs of the reference with float16-rounded weights, or of a float16 file whose
            rounding is emulated. Give the float32 bound with it.
        k: How many times the rounding error is still no fault.
        precision: The candidate's, for telling a ``precision`` failure from a ``conversion`` one.
        constant: Outputs that depend on no input.

    Returns:
        Rows in the order of the reference's outputs, extra ones of the candidate last.

    Raises:
        UsageError: The lists differ in length, ``trained`` or ``floor`` lacks an output, or the
            tolerances fit no output.
    """
    for other in (candidates, trained, floor):
        if other is not None and len(other) != len(references):
            raise UsageError(f"{len(references)} reference cases, but {len(other)} to compare")
    comparison = Comparison(tolerances, k, precision)
    comparison.note_constants(constant)
    for i, (reference, candidate) in enumerate(zip(references, candidates)):
        comparison.add(
            i,
            reference,
            candidate,
            None if trained is None else trained[i],
            None if floor is None else floor[i],
        )
    return comparison.rows()


class Comparison:
    """`compare_cases` one case at a time, in memory that doesn't grow with the cases.

    Cases may be spread over several comparisons with the same options, each with its own numbers of
    cases; merged in any order they give the same rows, to the last bit, as one.
    """

    def __init__(self, tolerances: Tolerances, k: float = 2.0, precision: str = "float32") -> None:
        """Starts without cases; the arguments are those of `compare_cases`."""
        self._tolerances, self._k, self._precision = tolerances, k, precision
        self._states: dict[str, OutputState] = {}
        # Output → number of the first case, and its place there: the order of the rows.
        self._first: dict[str, tuple[int, int]] = {}
        self._extra: dict[str, tuple[int, int]] = {}
        self._cases: dict[str, int] = {}
        self._total = 0
        self._constants: set[str] = set()

    def note_constants(self, names: Iterable[str]) -> None:
        """Notes outputs that depend on no input: for them one number is evidence enough."""
        self._constants.update(names)

    def add(
        self,
        number: int,
        reference: TensorSet,
        candidate: TensorSet,
        trained: TensorSet | None = None,
        floor: TensorSet | None = None,
        labels: Mapping[str, tensors.Array] | None = None,
        single: TensorSet | None = None,
    ) -> None:
        """Takes in one case.

        Args:
            number: Of the case, unique over everything that is ever merged.
            reference: Outputs by name.
            candidate: The same of the candidate.
            trained: Outputs of the model as trained.
            floor: Outputs of the reference with rounding.
            labels: Output name → true classes of the samples.
            single: Outputs of the reference computed in float32. An element that agrees with them
                passes: where float32 loses what float64 keeps, no float32 file has it.

        Raises:
            UsageError: ``trained``, ``floor`` or ``single`` lacks an output.
        """
        self._total += 1
        for place, name in enumerate(reference):
            self._first[name] = min(self._first.get(name, (number, place)), (number, place))
            self._cases[name] = self._cases.get(name, 0) + 1
            state = self._state(name)
            if name not in candidate:
                state.reject(number, "the candidate has no such output")
            else:
                noise = _aside("trained model", trained, name)
                rounded = _aside("rounded reference", floor, name)
                true = None if labels is None else labels.get(name)
                plain = _aside("reference in float32", single, name)
                state.add(number, reference[name], candidate[name], noise, rounded, true, plain)
        for place, name in enumerate(candidate):
            if name not in reference:
                self._extra[name] = min(self._extra.get(name, (number, place)), (number, place))

    def _state(self, name: str) -> OutputState:
        if name not in self._states:
            self._states[name] = OutputState(
                name,
                tolerance.for_output(self._tolerances, name),
                self._k,
                self._precision,
            )
        return self._states[name]

    def merge(self, other: Comparison) -> None:
        """Takes in another part."""
        self.load_json(other.to_json())

    def rows(self) -> tuple[TensorComparison, ...]:
        """One row per output, in the order of the reference's; extra ones of the candidate last.

        Raises:
            UsageError: The tolerances fit no output.
        """
        tolerance.check_names(self._tolerances, dict.fromkeys(self._first))
        rows = []
        for name in sorted(self._first, key=self._first.__getitem__):
            state = self._states[name]
            if self._cases[name] < self._total:
                missing = self._total - self._cases[name]
                state.reject(-1, f"not in the reference in {missing} of {self._total} cases")
            rows.append(state.finish(is_constant=name in self._constants))
        for name in sorted(set(self._extra) - set(self._first), key=self._extra.__getitem__):
            message = "the reference has no such output"
            bound = tolerance.Tolerance()
            rows.append(TensorComparison(name, Verdict.FAIL, row.CONVERSION, message, bound))
        return tuple(rows)

    def to_json(self) -> dict[str, Any]:
        """What was seen, as a JSON object: what a shard hands over."""
        return {
            "total": self._total,
            "outputs": {
                name: {
                    "first": list(self._first[name]),
                    "cases": self._cases[name],
                    "seen": state.to_json(),
                }
                for name, state in self._states.items()
            },
            "extra": {name: list(first) for name, first in self._extra.items()},
            "constants": sorted(self._constants),
        }

    def load_json(self, data: Mapping[str, Any]) -> None:
        """Takes in what `to_json` of another part gave."""
        self._total += data["total"]
        self.note_constants(data["constants"])
        for name, part in data["outputs"].items():
            self._state(name).load_json(part["seen"])
            first = tuple(part["first"])
            self._first[name] = min(self._first.get(name, first), first)
            self._cases[name] = self._cases.get(name, 0) + part["cases"]
        for name, place in data["extra"].items():
            first = tuple(place)
            self._extra[name] = min(self._extra.get(name, first), first)


def _aside(what: str, outputs: TensorSet | None, name: str) -> tensors.Array | None:
    if outputs is None:
        return None
    if name not in outputs:
        raise UsageError(f"the {what} has no output {name!r}")
    return outputs[name]
