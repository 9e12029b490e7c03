"""Drop updates of variables whose values no output depends on.

Given (``seed`` counts the calls of a dropout that inference leaves out)::

    s = ReadVariableOp(seed)          AssignVariableOp(seed, s + 1)          m = RandomUniform(s)

Result::

    s = ReadVariableOp(seed)                                                 m = RandomUniform(s)

Fires when, in all functions that get the variable, its values lead neither to an output nor to an
op with an effect (a call, a loop, another variable): then no call can tell whether it was updated.
"""

from __future__ import annotations

from tensorflow.core.framework import types_pb2

from mpexport.findings import Change
from mpexport.tf.graph import FunctionDef, NodeDef, Program, is_call, op_def, tensor_node, where
from mpexport.tf.pipeline import GraphPass, PassContext

_UPDATES = frozenset({"AssignAddVariableOp", "AssignSubVariableOp", "AssignVariableOp"})
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
# A function and the argument that is the variable's handle.
_Place = tuple[str, str]


def _places(program: Program, starts: set[_Place]) -> set[_Place] | None:
    """Everywhere a handle gets by calls; None when a loop or a branch takes it."""
    found: set[_Place] = set()
    todo = list(starts)
    while todo:
        place = todo.pop()
        if place in found:
            continue
        found.add(place)
        for node in program.library[place[0]].node_def:
            for i, ref in enumerate(node.input):
                if ref != place[1] or not is_call(node):
                    continue
                callee = program.library.get(node.attr["f"].func.name if "f" in node.attr else "")
                if node.op not in _CALLS or callee is None:
                    return None
                todo.append((callee.signature.name, callee.signature.input_arg[i].name))
    return found


def _is_unused(fdef: FunctionDef, handle: str) -> bool:
    """Whether nothing but its own updates comes of a variable in one function."""
    tainted: set[str] = set()
    grown = True
    while grown:
        grown = False
        for node in fdef.node_def:
            reads = [r for r in node.input if not r.startswith("^")]
            if node.name in tainted or not (
                handle in reads or any(tensor_node(r) in tainted for r in reads)
            ):
                continue
            if is_call(node) and not any(tensor_node(r) in tainted for r in reads):
                continue  # what the callee does with the handle is judged there
            if not _is_harmless(node, handle):
                return False
            tainted.add(node.name)
            grown = True
    return not any(tensor_node(r) in tainted for r in fdef.ret.values())


def _is_harmless(node: NodeDef, handle: str) -> bool:
    if node.op == "ReadVariableOp" or node.op in _UPDATES:
        return bool(node.input[0] == handle)
    definition = op_def(node)
    return definition is not None and not (definition.is_stateful or handle in node.input)


def _remove_updates(fdef: FunctionDef, handle: str) -> list[Change]:
    updates = [n for n in fdef.node_def if n.op in _UPDATES and n.input[0] == handle]
    names = {n.name for n in updates}
    changes = [Change(PASS.name, "update-removed", where(fdef, n)) for n in updates]
    kept = [n for n in fdef.node_def if n.name not in names]
    for node in kept:
        inputs = [r for r in node.input if r.removeprefix("^") not in names]
        del node.input[:]
        node.input.extend(inputs)
    for key in [k for k, ref in fdef.control_ret.items() if ref in names]:
        del fdef.control_ret[key]
        fdef.signature.control_output.remove(key)
    del fdef.node_def[:]
    fdef.node_def.extend(kept)
    return changes


def _apply(program: Program, context: PassContext) -> list[Change]:
    if not _is_needed(program):
        return []
    starts: dict[int, set[_Place]] = {}
    for entry in program.entries.values():
        arguments = program.library[entry.function].signature.input_arg
        for capture, arg in zip(entry.captures, list(arguments)[len(entry.inputs) :]):
            if arg.type == types_pb2.DT_RESOURCE:
                starts.setdefault(id(capture), set()).add((entry.function, arg.name))
    changes = []
    for start in starts.values():
        places = _places(program, start)
        if places and all(_is_unused(program.library[f], handle) for f, handle in places):
            for function, handle in sorted(places):
                changes += _remove_updates(program.library[function], handle)
    return changes


def _is_needed(program: Program) -> bool:
    return any(node.op in _UPDATES for _, node in program.nodes())


PASS = GraphPass(name="drop_unused_state", stage="format", apply=_apply, is_needed=_is_needed)
