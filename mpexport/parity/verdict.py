"""What the runs of a model say about one exported file: collected case by case, in parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Optional

import numpy as np

from mpexport.findings import Verdict
from mpexport.parity.compare import Comparison
from mpexport.parity.row import TensorComparison
from mpexport.parity.tolerance import Tolerance, Tolerances, default_for
from mpexport.tensors import Array, TensorSet

# How many times the emulated rounding a float16 file may be off in a runtime that rounds in other
# places: both errors are maxima of the same noise over as few as four numbers.
HALF_K = 4.0
# Bounds for a float16 file computed without and with all of its roundings.
_TWINS = (
    ("float16-weights", "computed in float32"),
    ("float16", "rounded to float16 at every step"),
)

# Output name → true classes of the samples, per case.
LabelList = list[Mapping[str, Array]]


class ModelRuns(NamedTuple):
    """Outputs of one model, per case.

    Attributes:
        expected: Of the reference.
        trained: Of the model as trained; None where it can't run.
        rounded: Of the reference with float16-rounded weights; None where nobody asked.
        clamped: Of the reference with weights clamped to what float16 holds; likewise.
        single: Of the reference computed in float32; None where it is in float32 anyway.
        constant: Outputs that depend on no input.
    """

    expected: list[TensorSet]
    trained: Optional[list[TensorSet]] = None
    rounded: Optional[list[TensorSet]] = None
    clamped: Optional[list[TensorSet]] = None
    single: Optional[list[TensorSet]] = None
    constant: tuple[str, ...] = ()


class FileVerdict:
    """One signature of an exported file against the model's runs.

    Cases may be spread over several of these, each with its own numbers of cases; what they have
    seen travels as JSON and merges to the same rows, to the last bit.

    Cases out of the ordinary come in groups of their own: what the model loses on inputs far from
    what it was trained on must not excuse a fault on usual ones.

    Args:
        precision: Of the file: ``float32``, ``float16-weights`` or ``float16``.
        tolerances: The bounds it is held to.
        is_emulated: Whether the runs of a float16 file come with those of its twins.
    """

    def __init__(
        self, precision: str, tolerances: Tolerances, *, is_emulated: bool = False
    ) -> None:
        self.precision, self.tolerances, self.is_emulated = precision, tolerances, is_emulated
        self._groups = {"": self._group()}

    def _group(self) -> _Group:
        return _Group(self.precision, self.tolerances, self.is_emulated)

    def add(
        self,
        numbers: list[int],
        runs: ModelRuns,
        outputs: list[TensorSet],
        twins: Optional[tuple[list[TensorSet], list[TensorSet]]] = None,
        labels: Optional[LabelList] = None,
        group: str = "",
    ) -> None:
        """Takes in cases.

        Args:
            numbers: One for each case, unique over everything that is ever merged.
            runs: What the model gives for them.
            outputs: What the file gives.
            twins: What a float16 file gives without and with all of its roundings.
            labels: True classes per case.
            group: What is out of the ordinary about them; empty for usual cases.
        """
        if group not in self._groups:
            self._groups[group] = self._group()
        self._groups[group].add(numbers, runs, outputs, twins, labels)

    def rows(self) -> tuple[TensorComparison, ...]:
        """One row per output over all usual cases; where these pass and others fail, of the others.

        Each other group is judged together with the usual cases, whose scale and noise are the
        model's own.
        """
        usual = self._groups[""]
        rows = {row.output: row for row in usual.rows()}
        for name in sorted(self._groups):
            if not name:
                continue
            both = self._group()
            for group in (usual, self._groups[name]):
                both.load_json(group.to_json())
            for row in both.rows():
                known = rows.get(row.output)
                if row.verdict is Verdict.FAIL and (
                    known is None or known.verdict is not row.verdict
                ):
                    rows[row.output] = replace(row, message=f"inputs {name}: {row.message}")
        return tuple(rows.values())

    def to_json(self) -> dict[str, Any]:
        """Options and what was seen, as a JSON object."""
        bounds = self.tolerances
        if isinstance(bounds, Tolerance):
            bounds = {"": bounds}
        return {
            "precision": self.precision,
            "is_emulated": self.is_emulated,
            "tolerances": {name: bound.to_json() for name, bound in bounds.items()},
            "groups": {name: group.to_json() for name, group in self._groups.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FileVerdict:
        """The inverse of `to_json`."""
        bounds = {name: Tolerance.from_json(b) for name, b in data["tolerances"].items()}
        made = cls(data["precision"], bounds, is_emulated=data["is_emulated"])
        made.load_json(data)
        return made

    def load_json(self, data: Mapping[str, Any]) -> None:
        """Takes in what `to_json` of another part, with the same options, gave."""
        for name, seen in data["groups"].items():
            if name not in self._groups:
                self._groups[name] = self._group()
            self._groups[name].load_json(seen)


class _Group:
    """Cases that are judged together."""

    def __init__(self, precision: str, tolerances: Tolerances, is_emulated: bool) -> None:
        self._precision = precision
        self._main = Comparison(tolerances, HALF_K if is_emulated else 2.0, precision)
        self._twins = [
            (Comparison(default_for(bound), precision=bound), text)
            for bound, text in _TWINS
            if is_emulated
        ]

    def add(
        self,
        numbers: list[int],
        runs: ModelRuns,
        outputs: list[TensorSet],
        twins: Optional[tuple[list[TensorSet], list[TensorSet]]],
        labels: Optional[LabelList],
    ) -> None:
        """See `FileVerdict.add`."""
        self._main.note_constants(runs.constant)
        floors = runs.rounded if self._precision == "float16-weights" else None
        if twins is not None:
            asides: tuple[Any, Any] = (runs.rounded, None)
            for (comparison, _), made, aside in zip(self._twins, twins, asides):
                _add_all(comparison, numbers, runs, made, aside, None)
            floors = _farther(runs.expected, *twins)
        _add_all(self._main, numbers, runs, outputs, floors, labels)

    def rows(self) -> tuple[TensorComparison, ...]:
        """One row per output over all cases so far.

        The emulated rounding of a float16 file is taken from the file, so a wrong graph would
        excuse itself: without the rounding of activations, a file is held to what rounding its
        weights and constants explains. And a runtime may round less than the device will: with all
        of the rounding, it is held to the bound of float16, or to the noise of the trained model.
        """
        for comparison, text in self._twins:
            faults = [
                replace(row, message=f"{text}: {row.message}")
                for row in comparison.rows()
                if row.verdict is Verdict.FAIL
            ]
            if faults:
                return tuple(faults)
        return self._main.rows()

    def to_json(self) -> dict[str, Any]:
        """What was seen, as a JSON object."""
        return {
            "main": self._main.to_json(),
            "twins": [comparison.to_json() for comparison, _ in self._twins],
        }

    def load_json(self, data: Mapping[str, Any]) -> None:
        """Takes in what `to_json` of another part, with the same options, gave."""
        self._main.load_json(data["main"])
        for (comparison, _), part in zip(self._twins, data["twins"]):
            comparison.load_json(part)


def _add_all(
    comparison: Comparison,
    numbers: list[int],
    runs: ModelRuns,
    outputs: list[TensorSet],
    floors: Optional[list[TensorSet]],
    labels: Optional[LabelList],
) -> None:
    for i, number in enumerate(numbers):
        comparison.add(
            number,
            runs.expected[i],
            outputs[i],
            None if runs.trained is None else runs.trained[i],
            None if floors is None else floors[i],
            None if labels is None else labels[i],
            None if runs.single is None else runs.single[i],
        )


def _farther(
    expected: list[TensorSet], first: list[TensorSet], second: list[TensorSet]
) -> list[TensorSet]:
    """Of two runs, each number that is farther from the reference.

    A runtime that leaves out some roundings lies between the two twins, and they may cancel.
    """
    return [
        {
            name: np.where(abs(b[name] - r[name]) > abs(a[name] - r[name]), b[name], a[name])
            if name in r and a[name].dtype.kind == "f" and a[name].shape == r[name].shape
            else b[name]
            for name in b
        }
        for r, a, b in zip(expected, first, second)
    ]
