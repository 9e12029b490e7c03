"""A normalized signature → ONNX ModelProto, by tf2onnx called piece by piece.

tf2onnx's command line freezes the weights into the graph, runs grappler over them, copies the whole
graph before each of its optimizers and once more for each update of its protobufs. For a model of
102 MB that takes 6.7 GiB. Here the graph is inlined and folded without weights; they come in when
tf2onnx asks for a constant's value, and its optimizers run on one graph.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import tensorflow as tf
from onnx import defs, helper
from tf2onnx import constants, optimizer, utils
from tf2onnx.graph import Node
from tf2onnx.optimizer import einsum_optimizer
from tf2onnx.tfonnx import process_tf_graph

from mpexport.errors import ConversionError
from mpexport.signature import Signature
from mpexport.tf import concrete, pipeline, resources
from mpexport.tf.graph import BRANCHES, called_functions
from mpexport.tf.inline import FlatGraph, concrete_of, flatten, node_name
from mpexport.tf.load import first_line
from mpexport.tf.lowering import with_shapes
from mpexport.tf.normalized import NormalizedModel
from mpexport.tf.onnx_ops import all_handlers, all_rewriters
from mpexport.tf.onnx_refusals import (
    explain,
    refuse_ops,
    refuse_random,
    refuse_shared_names,
    refuse_text,
    refuse_unknown_ops,
    refused,
)

# What ONNX lacks, or tf2onnx writes wrongly, written in what it has.
PASSES = (
    "allow_inlining",
    "drop_unused_state",
    "lower_resize",
    "lower_selection",
    "lower_sign_bit",
    "lower_tables",
    "onnx_cases",
    "onnx_complex",
    "choose_branches",
    "onnx_einsum",
    "onnx_images",
    "onnx_math",
    "onnx_segments",
    "onnx_selection",
)
# What is tried after these where TensorLists are in the way.
_LISTS = "onnx_tensor_lists"
# Of those, the ones that make nothing of their own.
_CLEAN_UPS = ("allow_inlining", "drop_unused_state")
# Values up to this size stand in the graph itself, since shape inference may want them.
_INLINE_BYTES = 1000


class _Weights:
    """Constant values by node name, read from the variables when asked for."""

    def __init__(self, captures: dict[str, Any]) -> None:
        self._captures = captures

    def __contains__(self, name: str) -> bool:
        return name in self._captures

    def __getitem__(self, name: str) -> bytes:
        return resources.read_value(self._captures[name]).tobytes()


def _place_weights(flat: FlatGraph) -> _Weights:
    """Turns the weight placeholders into Consts; large ones without content."""
    large: dict[str, Any] = {}
    for node in flat.graph_def.node:
        capture = flat.weights.get(node.name)
        if capture is None:
            continue
        dtype = node.attr["dtype"].type
        if dtype in (tf.resource.as_datatype_enum, tf.variant.as_datatype_enum):
            raise refused(*_reader_of(flat, node.name))
        node.op = "Const"
        node.attr.clear()
        node.attr["dtype"].type = dtype
        if resources.size_bytes(capture) > _INLINE_BYTES:
            tensor = node.attr["value"].tensor
            tensor.dtype = dtype
            shape = tf.TensorShape(concrete.capture_shape(capture))
            tensor.tensor_shape.CopyFrom(shape.as_proto())
            large[node.name] = capture
        else:
            value = tf.make_tensor_proto(resources.read_value(capture))
            node.attr["value"].tensor.CopyFrom(value)
    return _Weights(large)


def _reader_of(flat: FlatGraph, name: str) -> tuple[str, str]:
    """Op and name of the first node that uses a table's handle."""
    return next(
        (n.op, n.name)
        for n in flat.graph_def.node
        if name in {r.partition(":")[0] for r in n.input}
    )


def _lowered(model: NormalizedModel, key: str, wanted: tuple[str, ...]) -> FlatGraph:
    """The signature as one graph, its ops written in those that ONNX has."""
    passes = pipeline.all_passes()
    try:
        flat = flatten(model.program, key)
    except ConversionError:
        refuse_random(model.program, key)
        raise
    if not any(passes[p].is_needed(model.program) for p in wanted if p not in _CLEAN_UPS):
        return flat
    while True:
        program = with_shapes(key, concrete_of(flat))
        if not pipeline.run(program, "none", pipeline.PassContext(), extra=wanted):
            return flat
        flat = _renamed(flatten(program, key))
        # Inlining one branch may make a constant of the condition of another in it.
        if not _chooses_by_constant(flat.graph_def):
            return flat


def _chooses_by_constant(graph_def: Any) -> bool:
    constants = {n.name for n in graph_def.node if n.op == "Const"}
    return any(n.op in BRANCHES and n.input[0] in constants for n in graph_def.node)


def _renamed(flat: FlatGraph) -> FlatGraph:
    """Takes back the scope that a second inlining adds: ``call/call/x`` → ``call/x``."""
    nodes = flat.graph_def.node
    new = {n.name: n.name.removeprefix("call/") for n in nodes if n.name.startswith("call/call/")}
    taken = {n.name for n in nodes}
    new = {old: name for old, name in new.items() if name not in taken}

    def rename(ref: str) -> str:
        control = "^" if ref.startswith("^") else ""
        name, colon, port = ref.removeprefix("^").partition(":")
        return f"{control}{new.get(name, name)}{colon}{port}"

    for node in nodes:
        node.name = new.get(node.name, node.name)
        inputs = [rename(r) for r in node.input]
        del node.input[:]
        node.input.extend(inputs)
        node.attr.pop("_class", None)
    return flat


# tf2onnx was written before these, and what it writes has the same meaning in the ones that the
# format takes. The map says which version of the file format they need.
constants.OPSET_TO_IR_VERSION.update(
    {
        opset: helper.find_min_ir_version_for([helper.make_opsetid("", opset)])
        for opset in range(max(constants.OPSET_TO_IR_VERSION) + 1, defs.onnx_opset_version() + 1)
    }
)


def _callers_first(graph_def: Any) -> list[str]:
    """The functions of a graph's loops and branches, each after those that call it."""
    library = {f.signature.name: f for f in graph_def.library.function}
    done: list[str] = []

    def visit(nodes: Any) -> None:
        for node in nodes:
            for name in called_functions(node):
                if name in library and name not in done:
                    visit(library[name].node_def)
                    done.append(name)

    visit(graph_def.node)
    return done[::-1]


def _hash_by_name(node: Any) -> int:
    return hash(node.name)


# tf2onnx keeps nodes in sets, and these would hash by address: their order, and with it which of
# two equal constants survives, would differ between runs. Workers pin the hashes of strings.
Node.__hash__ = _hash_by_name


class _Serials:
    """Stands in for ``id`` where tf2onnx makes names of it: ascending in order of first asking.

    Keeps what it was asked about, since an address is used again once its object is gone. Starts
    high: its callers mix the ids with the numbers of inputs.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, Any]] = {}

    def __call__(self, thing: Any) -> int:
        return self._known.setdefault(id(thing), (10**9 + len(self._known), thing))[0]


def _optimize(graph: Any) -> Any:
    """Runs tf2onnx's optimizers to their fixed point on one graph.

    `tf2onnx.optimizer.optimize_graph` copies all weights several times per optimizer and round,
    and goes on when an optimizer fails.
    """
    einsum_optimizer.id = _Serials()
    again, iteration = True, 0
    while again:
        again = False
        for factory in optimizer._get_optimizers().values():
            step = factory()
            step.opt_iteration = iteration
            graph = step._optimize(graph)
            graph.delete_unused_nodes(graph.outputs)
            again = again or step.graph_been_opt
        iteration += 1
    graph.topological_sort(graph.get_nodes())
    return graph


def build_onnx(model: NormalizedModel, key: str, opset: int) -> tuple[Any, Signature]:
    """Converts one signature.

    Returns:
        The ModelProto with initializers sorted by name, and its signature.

    Raises:
        ConversionError: tf2onnx cannot convert an op; names it.
    """
    refuse_shared_names(model.program.entries[key], key)
    try:
        return _build(model, key, opset, PASSES)
    except ConversionError:
        if not pipeline.all_passes()[_LISTS].is_needed(model.program):
            raise
        with contextlib.suppress(ConversionError):  # the first one says it in the model's terms
            return _build(model, key, opset, (*PASSES, _LISTS))
        raise


def _build(
    model: NormalizedModel, key: str, opset: int, wanted: tuple[str, ...]
) -> tuple[Any, Signature]:
    flat = _lowered(model, key, wanted)
    refuse_ops(flat.graph_def, [f"output_{i}_" for i in range(len(flat.entry.outputs))])
    weights = _place_weights(flat)
    entry = flat.entry
    inputs = [node_name(s.name) for s in entry.inputs]
    outputs = [f"output_{i}_" for i in range(len(entry.outputs))]
    rename = {f"{n}:0": s.name for n, s in zip(inputs, entry.inputs)}
    rename.update({f"{n}:0": s.name for n, s in zip(outputs, entry.outputs)})
    # tf2onnx numbers its nodes through all conversions of a process: bytes would depend on these.
    utils.INTERNAL_NAME = 0
    with _CollectedErrors() as errors, tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(flat.graph_def, name="")
        # tf2onnx goes by this order, and learns from callers the shapes that a function gets.
        for name in _callers_first(flat.graph_def):
            graph._functions.move_to_end(name)
        try:
            onnx_graph = process_tf_graph(
                graph,
                opset=opset,
                input_names=[f"{n}:0" for n in inputs],
                output_names=[f"{n}:0" for n in outputs],
                const_node_values=weights,
                custom_op_handlers=all_handlers(),
                custom_rewriter=all_rewriters(),
                tensors_to_rename=rename,
            )
            proto = _optimize(onnx_graph).make_model("mpexport", graph_name="model")
        except ConversionError:
            raise
        except Exception as e:
            # tf2onnx raises anything from ValueError to AttributeError inside its handlers.
            found = explain(errors.lines, first_line(e), key)
            if not found.details["ops"]:
                refuse_text(flat.graph_def)
            raise found from e
    refuse_unknown_ops(proto)
    return _stable(proto), Signature(key, tuple(entry.inputs), tuple(entry.outputs))


class _CollectedErrors(logging.Handler):
    """tf2onnx logs the op that failed and raises something else: keep what it logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def __enter__(self) -> _CollectedErrors:
        logging.getLogger("tf2onnx").addHandler(self)
        return self

    def __exit__(self, *exc: object) -> None:
        logging.getLogger("tf2onnx").removeHandler(self)


def _stable(proto: Any) -> Any:
    """Sorts the initializers: tf2onnx writes them in an order that differs between runs."""
    proto.graph.initializer.sort(key=lambda tensor: tensor.name)
    return proto
