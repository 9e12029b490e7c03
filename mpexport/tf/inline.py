"""One flat graph per signature: calls inlined, shapes folded, weights as placeholders.

Weights stay outside: the graph has a placeholder where each captured tensor goes, so nothing here
grows with the size of the model.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, rewriter_config_pb2
from tensorflow.python.framework import tensor_util
from tensorflow.python.grappler import tf_optimizer

from mpexport.signature import TensorSpec
from mpexport.tf import concrete, pipeline
from mpexport.tf.graph import EntryPoint, Program

_LOOPS_AND_BRANCHES = ("While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase")
_OWN_PREFIXES = ("call", "capture_", "output_", "t_")
_ELEMENT_SHAPE_INPUT = {
    "EmptyTensorList": 0,
    "TensorListReserve": 0,
    "TensorListFromTensor": 1,
    "TensorListStack": 1,
    "TensorListPopBack": 1,
    "TensorListGetItem": 2,
    "TensorListGather": 2,
}


@dataclass(frozen=True)
class FlatGraph:
    """A signature as one GraphDef.

    Attributes:
        graph_def: Nodes named like the inputs are placeholders, nodes named like the outputs are
            Identities; loops and branches keep their functions in the library.
        entry: The entry point with the shapes the graph was made for.
        weights: Placeholder name → captured tensor (variable handle or eager constant).
    """

    graph_def: graph_pb2.GraphDef
    entry: EntryPoint
    weights: dict[str, Any]


def with_shapes(
    specs: Iterable[TensorSpec], shapes: dict[str, tuple[int | None, ...]]
) -> list[TensorSpec]:
    """Specs whose shapes are replaced by name."""
    return [TensorSpec(s.name, shapes.get(s.name, s.shape), s.dtype) for s in specs]


def _optimize(
    graph_def: graph_pb2.GraphDef, keep: list[str], optimizers: list[str]
) -> graph_pb2.GraphDef:
    meta_graph = meta_graph_pb2.MetaGraphDef()
    meta_graph.graph_def.CopyFrom(graph_def)
    # Grappler takes the nodes of this collection as the ones that must survive.
    meta_graph.collection_def["train_op"].node_list.value.extend(keep)
    config = config_pb2.ConfigProto()
    options = config.graph_options.rewrite_options
    options.min_graph_nodes = -1  # small graphs too
    options.optimizers.extend(optimizers)
    options.function_optimization = rewriter_config_pb2.RewriterConfig.AGGRESSIVE
    return tf_optimizer.OptimizeGraph(config, meta_graph)


def _fix_list_shapes(nodes: Any, suffix: str, batch: int) -> None:
    """Gives TensorLists whose element shape was traced with an unknown batch their batch size.

    A trace with a dynamic batch holds the element shape as a literal [-1, units]; no later shape
    inference can refine it. That the unknown leading size is the batch is an assumption, which
    running the exported file confirms.

    Args:
        nodes: ``graph_def.node`` or ``function_def.node_def``, edited in place.
        suffix: How a reader names the output of a Const: empty in a graph, ``:output:0`` in a
            function.
        batch: The batch size.
    """
    consts = {n.name: n for n in nodes if n.op == "Const"}
    for node in list(nodes):
        if node.op not in _ELEMENT_SHAPE_INPUT:
            continue
        index = _ELEMENT_SHAPE_INPUT[node.op]
        const = consts.get(node.input[index].partition(":")[0])
        if const is None:
            continue
        shape = tensor_util.MakeNdarray(const.attr["value"].tensor)
        if shape.ndim != 1 or shape.size == 0 or shape[0] != -1:
            continue
        fixed = shape.copy()
        fixed[0] = batch
        static = nodes.add(name=f"{node.name}/static_element_shape", op="Const")
        static.attr["dtype"].CopyFrom(const.attr["dtype"])
        static.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(fixed))
        node.input[index] = static.name + suffix


def _drop_controls_on(graph_def: graph_pb2.GraphDef, placeholders: list[str]) -> None:
    """Drops control inputs on placeholders: they order nothing, and no `input_map` feeds them.

    Grappler leaves them where a read of a variable stood before an output that doesn't use it.
    """
    for node in graph_def.node:
        kept = [r for r in node.input if not (r.startswith("^") and r[1:] in placeholders)]
        if len(kept) != len(node.input):
            del node.input[:]
            node.input.extend(kept)


def node_name(name: str) -> str:
    """A node name that GraphDef accepts, for an arbitrary signature name.

    Different names give different node names, and none that `flatten` gives its own nodes: grappler
    aborts the process when two nodes have one name.
    """
    text = "".join(c if c.isascii() and (c.isalnum() or c in "._-/") else "_" for c in name)
    if text == name and text[:1].isalnum() and not text.startswith(_OWN_PREFIXES):
        return text
    return f"t_{text}_{zlib.crc32(name.encode()):08x}"


def flatten(
    program: Program, key: str, shapes: dict[str, tuple[int | None, ...]] | None = None
) -> FlatGraph:
    """Inlines one signature of a normalized program.

    Args:
        program: Is not changed.
        key: Signature key.
        shapes: Input name → shape to specialize for; others keep their shapes.

    Returns:
        The flat graph. Function names in it are fresh and registered in the eager context.
    """
    work = program.copy()
    work.entries = {key: work.entries[key]}
    wanted = [
        "allow_inlining",
        "drop_unused_state",
        "captured_variables_to_arguments",
        "drop_dead_functions",
    ]
    pipeline.run(work, "none", pipeline.PassContext(), extra=wanted)
    concrete.rename_functions(work, concrete.fresh_suffix("flat"))
    entry = work.entries[key]
    entry.inputs = with_shapes(entry.inputs, shapes or {})
    graph_def = graph_pb2.GraphDef()
    graph_def.versions.producer = tf.version.GRAPH_DEF_VERSION
    for fdef in work.library.values():
        # An implementation choice by attribute would keep the call from being inlined.
        fdef.attr.pop("api_implements", None)
        for attrs in fdef.arg_attr.values():
            attrs.attr.pop("_output_shapes", None)
        for node in fdef.node_def:
            node.attr.pop("_output_shapes", None)
            if node.op in _LOOPS_AND_BRANCHES:
                node.attr["_lower_using_switch_merge"].b = False
        graph_def.library.function.append(fdef)
    arguments = work.library[entry.function].signature.input_arg
    names = [node_name(s.name) for s in entry.inputs]
    names += [f"capture_{i}" for i in range(len(entry.captures))]
    capture_shapes = [concrete.capture_shape(c) for c in entry.captures]
    all_shapes = [s.shape for s in entry.inputs] + capture_shapes
    for name, arg, shape in zip(names, arguments, all_shapes):
        node = graph_def.node.add(name=name, op="Placeholder")
        node.attr["dtype"].type = arg.type
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(shape).as_proto())
    call = graph_def.node.add(name="call", op="StatefulPartitionedCall", input=names)
    call.attr["f"].func.name = entry.function
    call.attr["Tin"].list.type.extend(a.type for a in arguments)
    outputs = work.library[entry.function].signature.output_arg
    call.attr["Tout"].list.type.extend(a.type for a in outputs)
    for i, arg in enumerate(outputs):
        node = graph_def.node.add(name=f"output_{i}_", op="Identity", input=[f"call:{i}"])
        node.attr["T"].type = arg.type
    keep = names + [f"output_{i}_" for i in range(len(outputs))]
    graph_def = _optimize(graph_def, keep, ["function"])
    graph_def = _optimize(graph_def, keep, ["constfold", "function", "dependency"])
    _drop_controls_on(graph_def, names)
    batches = {s.shape[0] for s in entry.inputs if s.shape}
    batch = batches.pop() if len(batches) == 1 else None
    if batch is not None:
        _fix_list_shapes(graph_def.node, "", batch)
        for fdef in graph_def.library.function:
            _fix_list_shapes(fdef.node_def, ":output:0", batch)
    first = len(entry.inputs)
    return FlatGraph(graph_def, entry, dict(zip(names[first:], entry.captures)))


def concrete_of(flat: FlatGraph) -> Any:
    """A ConcreteFunction over the original variables that computes the flat graph."""
    for fdef in flat.graph_def.library.function:
        concrete.register(fdef)
    entry = flat.entry
    inputs = [node_name(s.name) for s in entry.inputs]

    def call_flat(*args: Any) -> dict[str, Any]:
        feeds = {f"{n}:0": t for n, t in zip(inputs, args)}
        for name, captured in flat.weights.items():
            feeds[f"{name}:0"] = concrete.value_of(captured)
        outputs = tf.graph_util.import_graph_def(
            flat.graph_def,
            input_map=feeds,
            return_elements=[f"output_{i}_:0" for i in range(len(entry.outputs))],
            name="",
        )
        return {s.name: t for s, t in zip(entry.outputs, outputs)}

    specs = [tf.TensorSpec(s.shape, tf.as_dtype(s.dtype), name=s.name) for s in entry.inputs]
    return tf.function(call_flat, autograph=False).get_concrete_function(*specs)
