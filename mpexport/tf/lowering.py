"""Replacing ops by functions written in TensorFlow: what the ``lower_*`` passes share.

A lowering is an ordinary Python function over tensors. It is traced for the node at hand, put into
the library, and the node becomes a call of it, under its own name: converters inline calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import function_def_to_graph, tensor_util

from mpexport.findings import Change
from mpexport.tf.concrete import fresh_suffix, take_apart
from mpexport.tf.graph import (
    FunctionDef,
    NodeDef,
    Program,
    attr_value,
    input_types,
    output_types,
    rename_readers,
    tensor_node,
    where,
)

SHAPES = "_output_shapes"


@dataclass(frozen=True)
class Site:
    """A node to be lowered, and where it stands.

    Attributes:
        fdef: Its function.
        node: The node.
        producers: Node name → node, of the function.
    """

    fdef: FunctionDef
    node: NodeDef
    producers: Mapping[str, NodeDef]

    @property
    def inputs(self) -> list[str]:
        """The data inputs."""
        return [r for r in self.node.input if not r.startswith("^")]

    def attr(self, name: str) -> Any:
        """An attribute as Python value; lists of integers as list."""
        value = attr_value(self.node, name)
        kind = value.WhichOneof("value")
        if kind == "list":
            return [*value.list.i, *value.list.f] or [s.decode() for s in value.list.s]
        if kind == "s":
            return value.s.decode()
        return getattr(value, kind) if kind else None

    def const(self, index: int) -> np.ndarray | None:
        """The value of an input that is a constant, or is made of constants and known sizes."""
        return _evaluate(self.fdef, self.producers, self.inputs[index])

    def shape(self, index: int) -> tf.TensorShape:
        """What is known of the shape of an input: `with_shapes` has noted it."""
        return shape_of(self.fdef, self.producers, self.inputs[index])

    def is_read(self, suffix: str) -> bool:
        """Whether an output, ``output_arg:index``, has a reader."""
        tensor = f"{self.node.name}:{suffix}"
        return tensor in self.fdef.ret.values() or any(
            tensor in n.input for n in self.fdef.node_def
        )


def _evaluate(fdef: FunctionDef, producers: Mapping[str, NodeDef], ref: str) -> np.ndarray | None:
    """The value of a tensor when the few ops that compute sizes and scales lead to it."""
    node = producers.get(tensor_node(ref))
    if node is None:
        return None
    if node.op == "Const":
        value: np.ndarray = tensor_util.MakeNdarray(node.attr["value"].tensor)
        return value
    if node.op == "StridedSlice" and node.attr["shrink_axis_mask"].i == 0:
        return _sizes(fdef, producers, node)
    if node.op not in ("Identity", "Cast", "RealDiv", "Mul"):
        return None
    values = [_evaluate(fdef, producers, r) for r in node.input if not r.startswith("^")]
    known = [v for v in values if v is not None]
    if len(known) != len(values):
        return None
    if node.op == "Cast":
        return np.asarray(known[0], tf.as_dtype(node.attr["DstT"].type).as_numpy_dtype)
    if node.op == "Identity":
        return known[0]
    return np.asarray(known[0] / known[1] if node.op == "RealDiv" else known[0] * known[1])


def _sizes(fdef: FunctionDef, producers: Mapping[str, NodeDef], node: NodeDef) -> np.ndarray | None:
    """A stretch of a tensor's sizes, ``Shape(x)[begin:end]``."""
    source = producers.get(tensor_node(node.input[0]))
    begin, end, strides = (_evaluate(fdef, producers, r) for r in node.input[1:4])
    if source is None or source.op != "Shape" or begin is None or end is None or strides is None:
        return None
    shape = shape_of(fdef, producers, source.input[0])
    masks = [attr_value(node, n).i for n in ("begin_mask", "end_mask", "new_axis_mask")]
    if shape.rank is None or masks[2] or attr_value(node, "ellipsis_mask").i:
        return None
    low = None if masks[0] & 1 else int(begin[0])
    high = None if masks[1] & 1 else int(end[0])
    sizes = shape.as_list()[low : high : int(strides[0])]
    return None if None in sizes else np.array(sizes, np.int32)


# Gives the function that stands for the node, or None where the node can stay.
Lowering = Callable[[Site], Callable[..., Any] | None]


def shape_of(fdef: FunctionDef, producers: Mapping[str, NodeDef], ref: str) -> tf.TensorShape:
    """The noted shape of a tensor of a function; unknown if there is none."""
    node = producers.get(tensor_node(ref))
    if node is None:
        for i, arg in enumerate(fdef.signature.input_arg):
            if arg.name == ref and i in fdef.arg_attr and SHAPES in fdef.arg_attr[i].attr:
                return tf.TensorShape(fdef.arg_attr[i].attr[SHAPES].list.shape[0])
        return tf.TensorShape(None)
    suffixes = [s for s, _ in output_types(node) or []]
    noted = list(node.attr[SHAPES].list.shape) if SHAPES in node.attr else []
    position = suffixes.index(ref.partition(":")[2]) if len(suffixes) == len(noted) else -1
    return tf.TensorShape(noted[position]) if position >= 0 else tf.TensorShape(None)


def with_shapes(key: str, function: Any) -> Program:
    """A ConcreteFunction as a program of one signature, with what shape inference knows of it.

    Functions of loops that take its tensors are inferred from the loop's inputs.
    """
    program = take_apart({key: function})
    for node in program.library[program.entries[key].function].node_def:
        operation = function.graph.get_operation_by_name(node.name)
        _note(node.attr, [t.shape for t in operation.outputs])
        if node.op in ("While", "StatelessWhile"):
            shapes = [t.shape for t in operation.inputs]
            for branch in ("cond", "body"):
                _annotate_library(program, node.attr[branch].func.name, shapes)
    return program


def _annotate_library(program: Program, name: str, shapes: list[tf.TensorShape]) -> None:
    fdef = program.library[name]
    try:
        graph = function_def_to_graph.function_def_to_graph(fdef, shapes)
    except (ValueError, tf.errors.OpError):
        return  # a loop whose shapes change: nothing is known then
    for i, shape in enumerate(shapes):
        _note(fdef.arg_attr[i].attr, [shape])
    for node in fdef.node_def:
        _note(node.attr, [t.shape for t in graph.get_operation_by_name(node.name).outputs])


def _note(attrs: Any, shapes: list[tf.TensorShape]) -> None:
    del attrs[SHAPES].list.shape[:]
    attrs[SHAPES].list.shape.extend(s.as_proto() for s in shapes)


def trace(function: Callable[..., Any], specs: list[tf.TensorSpec]) -> FunctionDef:
    """The FunctionDef of a Python function that captures nothing, under a fresh name."""

    def scoped(*inputs: Any) -> Any:
        # Inlined, ``x/Const`` could be the name of a node beside the ``x`` that is replaced.
        with tf.name_scope("lowered"):
            return function(*inputs)

    concrete = tf.function(scoped, autograph=False).get_concrete_function(*specs)
    fdef = FunctionDef()
    fdef.CopyFrom(concrete.function_def)
    fdef.signature.name = f"lowered{fresh_suffix('')}"
    fdef.attr.clear()
    # What a lowering is made of may be lowered in turn.
    for i, tensor in enumerate(concrete.inputs):
        _note(fdef.arg_attr[i].attr, [tensor.shape])
    for node in fdef.node_def:
        _note(node.attr, [t.shape for t in concrete.graph.get_operation_by_name(node.name).outputs])
    return fdef


def replace(program: Program, site: Site, function: Callable[..., Any]) -> None:
    """Turns a node into a call of a traced function with the same inputs and outputs."""
    node = site.node
    types = input_types(node) or []
    specs = [tf.TensorSpec(site.shape(i), tf.as_dtype(t)) for i, t in enumerate(types)]
    fdef = trace(function, specs)
    program.library[fdef.signature.name] = fdef
    outputs = output_types(node) or []
    results = [arg.type for arg in fdef.signature.output_arg]
    renamed = {f"{node.name}:{s}": f"{node.name}:output:{i}" for i, (s, _) in enumerate(outputs)}
    noted = list(node.attr[SHAPES].list.shape) if SHAPES in node.attr else []
    node.op = "PartitionedCall"
    node.attr.clear()
    if noted:
        node.attr[SHAPES].list.shape.extend(noted)
    node.attr["f"].func.name = fdef.signature.name
    node.attr["Tin"].list.type.extend(types)
    node.attr["Tout"].list.type.extend(results)
    rename_readers(site.fdef, {old: new for old, new in renamed.items() if old != new})


def lower(program: Program, pass_name: str, table: Mapping[str, Lowering]) -> list[Change]:
    """Lowers every node whose op has a lowering that wants it.

    Args:
        program: Edited in place.
        pass_name: For the changes.
        table: Op → lowering.
    """
    changes = []
    for fdef in list(program.library.values()):
        producers = {n.name: n for n in fdef.node_def}
        for node in fdef.node_def:
            if node.op not in table:
                continue
            site = Site(fdef, node, producers)
            function = table[node.op](site)
            if function is not None:
                op = node.op
                replace(program, site, function)
                changes.append(Change(pass_name, f"{op.lower()}-lowered", where(fdef, node)))
    return changes


def contains(table: Mapping[str, Any]) -> Callable[[Program], bool]:
    """`GraphPass.is_needed` of a pass with this table."""
    return lambda program: any(node.op in table for _, node in program.nodes())


def simple(function: Callable[..., Any]) -> Lowering:
    """A lowering that fires on every node of its op in float32, whatever its attributes."""

    def chosen(site: Site) -> Callable[..., Any] | None:
        types = input_types(site.node) or []
        return function if types_pb2.DT_FLOAT in types else None

    return chosen
