"""Drop functions that no entry point reaches, for example the gradients a SavedModel carries."""

from __future__ import annotations

from mpexport.findings import Change
from mpexport.tf.graph import Program, reachable_functions
from mpexport.tf.pipeline import GraphPass, PassContext


def _apply(program: Program, context: PassContext) -> list[Change]:
    starts = [e.function for e in program.entries.values()]
    alive = {f.signature.name for f in reachable_functions(program.library, starts)}
    dead = [name for name in program.library if name not in alive]
    for name in dead:
        del program.library[name]
    return [Change(PASS.name, "function-removed", name) for name in dead]


PASS = GraphPass(
    name="drop_dead_functions", stage="normalize", apply=_apply, after=("choose_branches",)
)
