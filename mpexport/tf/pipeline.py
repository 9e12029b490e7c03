"""The pass pipeline: small functions over a `Program`, in a declared order, with a change log.

A pass is one file in ``mpexport/tf/passes`` that holds ``PASS = GraphPass(...)``. Its place in the
order is declared by the pass itself (``after``); which passes run is the caller's choice: stage
``normalize`` always, others when a format asks for them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from graphlib import TopologicalSorter

from mpexport.errors import MpExportError
from mpexport.findings import Change
from mpexport.plugins import discover
from mpexport.tf.graph import Program


@dataclass
class PassContext:
    """What a pass may know and where it notes what it did.

    Attributes:
        io_dtype: ``float32`` or ``keep``: the element type of 16-bit inputs and outputs.
        changes: Everything changed so far, in order.
    """

    io_dtype: str = "float32"
    changes: list[Change] = field(default_factory=list)


@dataclass(frozen=True)
class GraphPass:
    """One change to a program.

    Attributes:
        name: Stable name; the module has the same.
        stage: ``normalize`` (every export), ``reference`` (the float64 reference) or ``format``.
        apply: Edits the program in place and returns what it changed.
        after: Names of passes that must have run before, when they run at all.
        is_needed: Whether a program has anything that the pass may change; cheap, may err towards
            yes. A caller asks it who would have to prepare a program for the pass.
    """

    name: str
    stage: str
    apply: Callable[[Program, PassContext], list[Change]]
    after: tuple[str, ...] = ()
    is_needed: Callable[[Program], bool] = lambda program: True


@lru_cache(maxsize=1)
def all_passes() -> dict[str, GraphPass]:
    """All passes by name, in an order that honors every ``after``."""
    found = discover("mpexport.tf.passes", "PASS")
    sorter = TopologicalSorter({name: p.after for name, p in sorted(found.items())})
    order = list(sorter.static_order())
    for name in order:
        if name not in found:
            raise MpExportError(f"a pass wants to run after {name!r}, which does not exist")
    return {name: found[name] for name in order}


def run(
    program: Program, stage: str, context: PassContext, extra: Iterable[str] = ()
) -> list[Change]:
    """Runs all passes of a stage, and the named extra ones, over ``program`` in place.

    Returns:
        What these passes changed; also appended to ``context.changes``.
    """
    wanted = set(extra)
    changes: list[Change] = []
    for name, graph_pass in all_passes().items():
        if graph_pass.stage == stage or name in wanted:
            changes.extend(graph_pass.apply(program, context))
    context.changes.extend(changes)
    return changes
