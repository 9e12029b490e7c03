"""Which outputs of a model are the same whatever goes in: those need no evidence but equality."""

from __future__ import annotations

from mpexport.tf.graph import FunctionDef, NodeDef, Program, is_call, op_def, tensor_node

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
# Of the argument that stands for chance, and for state that changes.
_VARIES = -1
# Ops that TensorFlow calls stateful, though they give the same as long as nothing is assigned.
_READS = frozenset({"LookupTableFindV2", "LookupTableSizeV2", "ReadVariableOp", "ResourceGather"})


def constant_outputs(program: Program, key: str) -> list[str]:
    """Names of the outputs of a signature that depend on no input, no chance and no state."""
    entry = program.entries[key]
    search = _Search(program)
    found = search.of(program.library[entry.function])
    names = [arg.name for arg in program.library[entry.function].signature.output_arg]
    inputs = {_VARIES, *range(len(entry.inputs))}
    return [s.name for s, name in zip(entry.outputs, names) if not found[name] & inputs]


class _Search:
    def __init__(self, program: Program) -> None:
        self._library = program.library
        self._known: dict[str, dict[str, set[int]]] = {}
        self._assigns = any(node.op.startswith("Assign") for _, node in program.nodes())

    def of(self, fdef: FunctionDef) -> dict[str, set[int]]:
        """Output argument → numbers of the arguments that it depends on."""
        name = fdef.signature.name
        if name not in self._known:
            self._known[name] = {
                out: self._arguments(fdef, fdef.ret[out])
                for out in (arg.name for arg in fdef.signature.output_arg)
            }
        return self._known[name]

    def _arguments(self, fdef: FunctionDef, start: str) -> set[int]:
        numbers = {arg.name: i for i, arg in enumerate(fdef.signature.input_arg)}
        nodes = {node.name: node for node in fdef.node_def}
        found: set[int] = set()
        seen: set[str] = set()
        todo = [start]
        while todo:
            ref = todo.pop()
            node = nodes.get(tensor_node(ref))
            if node is None:
                found.add(numbers[ref])
                continue
            # Of a call, each output is looked at for itself.
            place = ref if node.op in _CALLS else node.name
            if place in seen:
                continue
            seen.add(place)
            inputs = [r for r in node.input if not r.startswith("^")]
            callee = self._library.get(node.attr["f"].func.name) if node.op in _CALLS else None
            if callee is not None:
                output = callee.signature.output_arg[int(ref.rpartition(":")[2])].name
                needed = self.of(callee)[output]
                found |= needed & {_VARIES}
                todo += [inputs[i] for i in needed if i != _VARIES]
            else:
                found |= {_VARIES} if self._varies(node) else set()
                todo += inputs
        return found

    def _varies(self, node: NodeDef) -> bool:
        if is_call(node):  # a loop or a branch, whose functions are not looked into
            return True
        definition = op_def(node)
        if definition is None:
            return True
        return definition.is_stateful and (node.op not in _READS or self._assigns)
