"""A normalized signature → ONNX ModelProto, by tf2onnx called piece by piece.

tf2onnx's command line freezes the weights into the graph, runs grappler over them, copies the whole
graph before each of its optimizers and once more for each update of its protobufs. For a model of
102 MB that takes 6.7 GiB. Here the graph is inlined and folded without weights; they come in when
tf2onnx asks for a constant's value, and its optimizers run on one graph.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import tensorflow as tf
from tf2onnx import optimizer
from tf2onnx.graph import Node
from tf2onnx.optimizer import einsum_optimizer
from tf2onnx.tfonnx import process_tf_graph

from mpexport.errors import ConversionError
from mpexport.signature import Signature
from mpexport.tf import concrete, resources
from mpexport.tf.inline import FlatGraph, flatten, node_name
from mpexport.tf.load import first_line
from mpexport.tf.normalized import NormalizedModel

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
            raise ConversionError(
                "the signature uses a lookup table or another resource that ONNX cannot hold",
                hint="export a signature that takes numbers",
                where=node.name,
            )
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


def _erfc(ctx: Any, node: Any, name: str, args: Any) -> None:
    """Erfc(x) = 1 - Erf(x); Keras' exact GELU is made of it, and ONNX has Erf only."""
    del name, args
    source, output = node.input[0], node.output[0]
    dtype, shape = ctx.get_dtype(output), ctx.get_shape(output)
    ctx.remove_node(node.name)
    erf = ctx.make_node("Erf", [source], shapes=[shape], dtypes=[dtype])
    one = ctx.make_const(f"{node.name}_one", np.array(1.0, np.float32))
    ctx.make_node(
        "Sub", [one.output[0], erf.output[0]], outputs=[output], shapes=[shape], dtypes=[dtype]
    )


_HANDLERS: dict[str, tuple[Any, list[Any]]] = {"Erfc": (_erfc, [])}


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
    flat = flatten(model.program, key)
    weights = _place_weights(flat)
    entry = flat.entry
    inputs = [node_name(s.name) for s in entry.inputs]
    outputs = [f"output_{i}_" for i in range(len(entry.outputs))]
    rename = {f"{n}:0": s.name for n, s in zip(inputs, entry.inputs)}
    rename.update({f"{n}:0": s.name for n, s in zip(outputs, entry.outputs)})
    with _CollectedErrors() as errors, tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(flat.graph_def, name="")
        try:
            onnx_graph = process_tf_graph(
                graph,
                opset=opset,
                input_names=[f"{n}:0" for n in inputs],
                output_names=[f"{n}:0" for n in outputs],
                const_node_values=weights,
                custom_op_handlers=dict(_HANDLERS),
                tensors_to_rename=rename,
            )
            proto = _optimize(onnx_graph).make_model("mpexport", graph_name="model")
        except Exception as e:
            # tf2onnx raises anything from ValueError to AttributeError inside its handlers.
            raise ConversionError(
                f"tf2onnx failed: {errors.first() or first_line(e)}", where=key
            ) from e
    _refuse_unknown_ops(proto)
    return _stable(proto), Signature(key, tuple(entry.inputs), tuple(entry.outputs))


class _CollectedErrors(logging.Handler):
    """tf2onnx logs the op that failed and raises something else: keep what it logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def first(self) -> str:
        return self.lines[0].strip().splitlines()[0][:300] if self.lines else ""

    def __enter__(self) -> _CollectedErrors:
        logging.getLogger("tf2onnx").addHandler(self)
        return self

    def __exit__(self, *exc: object) -> None:
        logging.getLogger("tf2onnx").removeHandler(self)


def _refuse_unknown_ops(proto: Any) -> None:
    """tf2onnx leaves an op it does not know in the standard domain and calls it success."""
    import onnx

    versions = {o.domain: o.version for o in proto.opset_import}
    graphs = [proto.graph]
    while graphs:
        for node in graphs.pop().node:
            if node.domain in ("", "ai.onnx"):
                try:
                    onnx.defs.get_schema(node.op_type, versions[""], "")
                except onnx.defs.SchemaError:
                    raise ConversionError(
                        f"ONNX has no op for TensorFlow's {node.op_type} at {node.name}",
                        hint="replace the layer, or use tflite or savedmodel",
                        where=node.name,
                        details={"ops": [node.op_type]},
                    ) from None
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    graphs.append(attribute.g)


def _stable(proto: Any) -> Any:
    """Sorts the initializers: tf2onnx writes them in an order that differs between runs."""
    proto.graph.initializer.sort(key=lambda tensor: tensor.name)
    return proto
