"""Drop functions that no entry point reaches, for example the gradients a SavedModel carries."""

from __future__ import annotations

from mpexport.findings import Change
from mpexport.tf.graph import Program, called_functions
from mpexport.tf.pipeline import GraphPass, PassContext


def _apply(program: Program, context: PassContext) -> list[Change]:
    alive: set[str] = set()
    todo = [e.function for e in program.entries.values()]
    while todo:
        name = todo.pop()
        if name in alive or name not in program.library:
            continue
        alive.add(name)
        for node in program.library[name].node_def:
            todo.extend(called_functions(node))
            todo.append(node.op)
    dead = [name for name in program.library if name not in alive]
    for name in dead:
        del program.library[name]
    return [Change(PASS.name, "function-removed", name) for name in dead]


PASS = GraphPass(name="drop_dead_functions", stage="normalize", apply=_apply)
