"""Reading and editing a program: FunctionDefs, their nodes, and the names that join them.

A program is a library of FunctionDefs plus one entry function per signature. Top-level graphs are
turned into FunctionDefs on the way in, so that a pass sees one kind of thing only. Inside a
FunctionDef a tensor is ``argument`` or ``node:output_arg:index``; a control input is ``^node``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tensorflow.core.framework import attr_value_pb2, op_def_pb2, types_pb2
from tensorflow.core.framework.function_pb2 import FunctionDef as FunctionDef
from tensorflow.core.framework.node_def_pb2 import NodeDef as NodeDef
from tensorflow.python.framework import op_def_registry

from mpexport.signature import TensorSpec

# Ops whose first input is a condition or an index; the branches get the others.
BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
HALF_TYPES = frozenset({types_pb2.DT_HALF, types_pb2.DT_BFLOAT16})
_REF = 100  # types_pb2: DT_FLOAT_REF = DT_FLOAT + 100, and so on


@dataclass
class EntryPoint:
    """One signature of a program.

    Attributes:
        key: Signature key.
        function: Name of its FunctionDef. Its arguments are ``inputs`` then ``captures``.
        inputs: Inputs in argument order.
        outputs: Outputs in the order of the FunctionDef's output arguments.
        captures: Outer tensors (resource handles, eager constants), in argument order.
    """

    key: str
    function: str
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    captures: list[Any]


@dataclass
class Program:
    """Everything the signatures of one model compute, as one library.

    Attributes:
        library: FunctionDefs by name, callers and callees alike.
        entries: Entry points by signature key.
    """

    library: dict[str, FunctionDef] = field(default_factory=dict)
    entries: dict[str, EntryPoint] = field(default_factory=dict)

    def nodes(self) -> Iterator[tuple[FunctionDef, NodeDef]]:
        """All nodes of all functions."""
        for fdef in self.library.values():
            for node in fdef.node_def:
                yield fdef, node

    def copy(self) -> Program:
        """A deep copy of the graph; captures (the weights) are shared."""
        library = {}
        for name, fdef in self.library.items():
            library[name] = FunctionDef()
            library[name].CopyFrom(fdef)
        entries = {
            k: EntryPoint(e.key, e.function, list(e.inputs), list(e.outputs), list(e.captures))
            for k, e in self.entries.items()
        }
        return Program(library, entries)


def where(fdef: FunctionDef, node: NodeDef) -> str:
    """The path of a node as users see it: ``function/node``."""
    return f"{fdef.signature.name}/{node.name}"


def in_layer(path: str) -> str:
    """`` in layer dense (model/dense/MatMul)``: Keras names nodes ``model/layer/…/op``."""
    parts = path.split("/")
    layer = parts[1] if len(parts) > 2 else parts[0] if len(parts) == 2 else ""
    return (f" in layer {layer}" if layer else "") + (f" ({path})" if path else "")


def called_functions(node: NodeDef) -> Iterator[str]:
    """Names of the functions a node calls (``f``, ``body``, ``cond``, ``branches`` …)."""
    for value in node.attr.values():
        kind = value.WhichOneof("value")
        if kind == "func":
            yield value.func.name
        elif kind == "list":
            for f in value.list.func:
                yield f.name


def reachable_functions(
    library: Mapping[str, FunctionDef], starts: Iterable[str]
) -> Iterator[FunctionDef]:
    """The functions of these names and all that they call, each once.

    Args:
        library: Functions by name.
        starts: Names; those of no function, an op among them, are passed over.
    """
    todo, seen = list(starts), set()
    while todo:
        name = todo.pop()
        if name in seen or name not in library:
            continue
        seen.add(name)
        yield library[name]
        for node in library[name].node_def:
            todo += [node.op, *called_functions(node)]


def is_call(node: NodeDef) -> bool:
    """Whether the node calls at least one function."""
    return next(called_functions(node), None) is not None


def tensor_node(ref: str) -> str:
    """``node:out:0``, ``^node`` or ``argument`` → the name before the first colon."""
    return ref.lstrip("^").partition(":")[0]


def unique_name(fdef: FunctionDef, taken: set[str], base: str) -> str:
    """A node name not used in the function yet; it is added to ``taken``."""
    if not taken:
        taken.update(n.name for n in fdef.node_def)
        taken.update(a.name for a in fdef.signature.input_arg)
    name, k = base, 0
    while name in taken:
        k += 1
        name = f"{base}_{k}"
    taken.add(name)
    return name


def map_attr_types(attr: attr_value_pb2.AttrValue, mapping: dict[int, int]) -> bool:
    """Replaces element types in ``type``, ``list(type)`` and, recursively, function attributes.

    Returns:
        Whether anything changed. Tensor values are left to the caller.
    """
    changed = False
    kind = attr.WhichOneof("value")
    if kind == "type" and attr.type in mapping:
        attr.type = mapping[attr.type]
        changed = True
    elif kind == "list":
        for i, t in enumerate(attr.list.type):
            if t in mapping:
                attr.list.type[i] = mapping[t]
                changed = True
        for f in attr.list.func:
            for inner in f.attr.values():
                changed |= map_attr_types(inner, mapping)
    elif kind == "func":
        for inner in attr.func.attr.values():
            changed |= map_attr_types(inner, mapping)
    return changed


def attr_types(attr: attr_value_pb2.AttrValue) -> Iterator[int]:
    """The element types an attribute holds, also in its tensor and in nested functions."""
    kind = attr.WhichOneof("value")
    if kind == "type":
        yield attr.type
    elif kind == "tensor":
        yield attr.tensor.dtype
    elif kind in ("list", "func"):
        yield from attr.list.type
        for f in [attr.func] if kind == "func" else attr.list.func:
            for inner in f.attr.values():
                yield from attr_types(inner)


def op_def(node: NodeDef) -> op_def_pb2.OpDef | None:
    """The registered OpDef, or None for a call by function name or an unknown op."""
    return op_def_registry.get(node.op)


def attr_value(node: NodeDef, name: str) -> attr_value_pb2.AttrValue:
    """An attribute of a node, or its default from the OpDef.

    A SavedModel leaves out attributes that have their default, and reading a missing key of a
    protobuf map adds it, which makes the node invalid.
    """
    if name in node.attr:
        return node.attr[name]
    definition = op_def(node)
    for attr in definition.attr if definition is not None else ():
        if attr.name == name:
            return attr.default_value
    return attr_value_pb2.AttrValue()


def arg_types(args: Any, node: NodeDef) -> list[list[int]]:
    """Resolves the element types of an OpDef's arguments for one node.

    Args:
        args: ``op_def.input_arg`` or ``op_def.output_arg``.
        node: The node whose attributes give the types.

    Returns:
        One list of DataType numbers per argument, as long as the argument has tensors.
    """
    result = []
    for arg in args:
        if arg.type_list_attr:
            types = list(attr_value(node, arg.type_list_attr).list.type)
        else:
            one = arg.type or attr_value(node, arg.type_attr).type
            count = attr_value(node, arg.number_attr).i if arg.number_attr else 1
            types = [one] * count
        result.append([t - _REF if t > _REF else t for t in types])
    return result


def input_types(node: NodeDef) -> list[int] | None:
    """Element types of the data inputs in order; None when the op is not registered."""
    definition = op_def(node)
    if definition is None:
        return None
    return [t for types in arg_types(definition.input_arg, node) for t in types]


def output_types(node: NodeDef) -> list[tuple[str, int]] | None:
    """``(suffix, type)`` per output, the suffix ``output_arg:index``; None if unregistered."""
    definition = op_def(node)
    if definition is None:
        return None
    per_arg = arg_types(definition.output_arg, node)
    return [
        (f"{arg.name}:{i}", t)
        for arg, types in zip(definition.output_arg, per_arg)
        for i, t in enumerate(types)
    ]


def rename_readers(
    fdef: FunctionDef, tensors: dict[str, str], skip: frozenset[str] = frozenset()
) -> None:
    """Lets every reader of a tensor read another one: node inputs and the function's ``ret``.

    Args:
        fdef: The function, edited in place.
        tensors: Old tensor name → new tensor name; chains are followed.
        skip: Nodes whose inputs stay as they are.
    """

    def resolve(ref: str) -> str:
        while ref in tensors:
            ref = tensors[ref]
        return ref

    for node in fdef.node_def:
        if node.name in skip:
            continue
        for i, ref in enumerate(node.input):
            if ref in tensors:
                node.input[i] = resolve(ref)
    for key, ref in fdef.ret.items():
        if ref in tensors:
            fdef.ret[key] = resolve(ref)


def remove_nodes(fdef: FunctionDef, replaced: dict[str, str]) -> None:
    """Removes one-output nodes whose readers shall read ``replaced[node]`` instead.

    Control inputs on a removed node move to the node that now gives the tensor; they are dropped
    when that is an argument. Colocation hints on removed nodes are dropped.

    Args:
        fdef: The function, edited in place.
        replaced: Node name → tensor that stands for its only output.
    """
    if not replaced:
        return
    outputs = {}
    for node in fdef.node_def:
        if node.name in replaced:
            suffixes = output_types(node)
            for suffix, _ in suffixes or []:
                outputs[f"{node.name}:{suffix}"] = replaced[node.name]
    kept = [n for n in fdef.node_def if n.name not in replaced]
    nodes = {n.name for n in kept}
    rename_readers(fdef, outputs)

    def source(name: str) -> str:
        while name in replaced:
            name = tensor_node(replaced[name])
        return name

    for node in kept:
        controls = [r for r in node.input if r.startswith("^")]
        if any(r[1:] in replaced for r in controls):
            data = [r for r in node.input if not r.startswith("^")]
            moved = [source(r[1:]) for r in controls]
            del node.input[:]
            node.input.extend(data)
            node.input.extend(f"^{n}" for n in dict.fromkeys(moved) if n in nodes)
        if "_class" in node.attr:
            hints = node.attr["_class"].list
            alive = [s for s in hints.s if s.removeprefix(b"loc:@").decode() not in replaced]
            if not alive:
                del node.attr["_class"]
            elif len(alive) != len(hints.s):
                del hints.s[:]
                hints.s.extend(alive)
    for key, ref in list(fdef.control_ret.items()):
        if ref in replaced:
            fdef.control_ret[key] = source(ref)
    del fdef.node_def[:]
    fdef.node_def.extend(kept)
