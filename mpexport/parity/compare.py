"""Comparing a candidate's outputs with the reference's: one verdict per output, by name."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

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
    that nothing explains. Beyond the bound it still passes when
    max|c - r| <= k·max|t - r| (no further from the reference than the trained model t), or when
    |c - r| <= k·max|f - r| + the float32 bound (no further than rounding to float16 moves the
    reference: that of the weights, or of everything a float16 file rounds). It is inconclusive when
    nothing was compared, the reference has a NaN, or all of the reference is one number though it
    depends on the inputs. Integers, booleans and strings must be equal.

    Args:
        references: Outputs by name, one set per case.
        candidates: The same of the candidate.
        tolerances: One bound, or one per output name (``""`` for the rest).
        trained: Outputs of the model as trained.
        floor: Outputs of the reference with float16-rounded weights, or of a float16 file whose
            rounding is emulated. Give the float32 bound with it.
        k: How many times the trained error or the rounding error is still no fault.
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
    names = list(dict.fromkeys(n for case in references for n in case))
    tolerance.check_names(tolerances, dict.fromkeys(names))
    explained = tolerance.default_for(precision)
    rows = []
    for name in names:
        bound = tolerance.for_output(tolerances, name)
        state = OutputState(
            name,
            bound,
            explained,
            _scale(name, references),
            k,
            computes_half=precision == "float16",
            is_constant=name in constant,
        )
        for i, (r, c) in enumerate(zip(references, candidates)):
            if name not in r:
                state.reject(f"case {i}: not in the reference")
            elif name not in c:
                state.reject("the candidate has no such output")
            else:
                noise = _aside("trained model", trained, i, name)
                rounded = _aside("rounded reference", floor, i, name)
                state.add(i, r[name], c[name], noise, rounded)
        rows.append(state.finish())
    extra = list(dict.fromkeys(n for case in candidates for n in case if n not in names))
    for name in extra:
        rows.append(
            TensorComparison(
                name,
                Verdict.FAIL,
                row.CONVERSION,
                "the reference has no such output",
                tolerance.Tolerance(),
            )
        )
    return tuple(rows)


def _aside(what: str, cases: Cases | None, i: int, name: str) -> tensors.Array | None:
    if cases is None:
        return None
    if name not in cases[i]:
        raise UsageError(f"the {what} has no output {name!r}")
    return cases[i][name]


def _scale(name: str, references: Cases) -> float:
    """max|r| over all cases, of finite numbers; 0 where there are none."""
    largest = 0.0
    for case in references:
        if name in case and tensors.kind_of(case[name]) in ("float", "complex"):
            values = np.abs(
                case[name] if case[name].dtype.kind == "c" else tensors.as_float64(case[name])
            )
            finite = values[np.isfinite(values)]
            largest = max(largest, float(finite.max()) if finite.size else 0.0)
    return largest
