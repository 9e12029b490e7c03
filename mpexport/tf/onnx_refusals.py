"""What cannot become ONNX, said in terms of the model: the op, the layer, and the way out."""

from __future__ import annotations

import re
from typing import Any

import onnx
from tensorflow.core.framework import types_pb2

from mpexport.errors import ConversionError
from mpexport.tf.graph import (
    EntryPoint,
    NodeDef,
    Program,
    called_functions,
    in_layer,
    input_types,
    reachable_functions,
)
from mpexport.tf.onnx_precision.regions import all_graphs

_RANDOM = (
    "Multinomial",
    "ParameterizedTruncatedNormal",
    "Random",
    "Rng",
    "StatefulRandom",
    "StatefulStandardNormal",
    "StatefulTruncatedNormal",
    "StatefulUniform",
    "StatelessMultinomial",
    "StatelessParameterized",
    "StatelessRandom",
    "StatelessShuffle",
    "StatelessTruncated",
    "TruncatedNormal",
)
_TEXT = (
    "AsString",
    "Decode",
    "Encode",
    "ReduceJoin",
    "Regex",
    "SparseCross",
    "StaticRegex",
    "String",
    "Substr",
    "Unicode",
    "UnsortedSegmentJoin",
)
_TABLES = ("HashTable", "LookupTable", "MutableDenseHashTable", "MutableHashTable")
_TEXT_WAY_OUT = (
    "export a signature that takes numbers: do this preprocessing before the model, "
    "or use savedmodel"
)
# Op name or its beginning → why, and the way out.
_KINDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        _RANDOM,
        "it draws random numbers at inference: call the layer with training=False or leave it out, "
        "or use savedmodel",
    ),
    ((*_TEXT, *_TABLES), _TEXT_WAY_OUT),
    (
        (
            *("BatchMatrix", "Cholesky", "Eig", "LogMatrixDeterminant", "Lu", "Matrix", "Qr"),
            *("SelfAdjointEig", "Svd", "TridiagonalSolve"),
        ),
        "factor or invert the matrix outside the model, or use savedmodel",
    ),
    (
        ("Bitcast",),
        "compute with values instead of their bits, or use savedmodel",
    ),
    (
        ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "VarHandleOp"),
        "make the state an input and an output of the model, or use savedmodel",
    ),
)
_ANY_WAY_OUT = "replace the layer, fix its shapes (--input-shape), try tflite, or use savedmodel"
# What tf2onnx puts before the names in a loop's body: the function it was, with our suffix.
_BODIES = re.compile(r"^.*__flat\d+_")
# Names that inlining put in front.
_CALLS = re.compile(r"^((call|Func|StatefulPartitionedCall|PartitionedCall)(_\d+)?/)+")


def way_out(op: str) -> str:
    """The hint for an op."""
    return next((hint for starts, hint in _KINDS if op.startswith(starts)), _ANY_WAY_OUT)


def path_of(name: str) -> str:
    """A node's name as the model has it: ``call/model/layer/Op`` → ``model/layer/Op``."""
    return _CALLS.sub("", _BODIES.sub("", name))


def place_of(name: str) -> str:
    """`in_layer` of a node's name in a converter's graph."""
    return in_layer(path_of(name))


def refused(op: str, name: str, hint: str = "") -> ConversionError:
    """The error for an op that ONNX has no counterpart of."""
    return ConversionError(
        f"ONNX has no op for TensorFlow's {op}{place_of(name)}",
        hint=hint or way_out(op),
        where=path_of(name),
        details={"ops": [op]},
    )


def refuse_shared_names(entry: EntryPoint, key: str) -> None:
    """Refuses an input and an output of one name: in an ONNX graph a name is one tensor.

    Raises:
        ConversionError: Names both.
    """
    shared = sorted({s.name for s in entry.inputs} & {s.name for s in entry.outputs})
    if shared:
        raise ConversionError(
            f"input and output are both named {', '.join(shared)}: ONNX needs a name for each",
            hint="give the output another name in the model, or use tflite or savedmodel",
            where=key,
        )


def refuse_random(program: Program, key: str) -> None:
    """Refuses a signature that draws random numbers.

    Said of one whose state cannot be dropped: it is the counter of its generator.

    Raises:
        ConversionError: Names op and layer.
    """
    for fdef in reachable_functions(program.library, [program.entries[key].function]):
        for node in fdef.node_def:
            if node.op.startswith(_RANDOM):
                raise refused(node.op, node.name)


def refuse_ops(graph_def: Any, outputs: list[str]) -> None:
    """Refuses what would be written as something else: other random numbers, other texts.

    ONNX has random ops, and text ops of another meaning; a file with them would be accepted and
    never agree with the model.

    Args:
        graph_def: A flat graph.
        outputs: Names of the nodes that are its outputs; what merely runs before them is left out.

    Raises:
        ConversionError: Names op and layer.
    """
    nodes = {n.name: n for n in graph_def.node}
    functions = {f.signature.name: f for f in graph_def.library.function}
    seen: set[str] = set()
    todo = list(outputs)
    called: list[str] = []
    while todo:
        name = todo.pop()
        if name in seen or name not in nodes:
            continue
        seen.add(name)
        _refuse_op(nodes[name])
        called += called_functions(nodes[name])
        todo += [r.partition(":")[0] for r in nodes[name].input if not r.startswith("^")]
    for fdef in reachable_functions(functions, called):
        for node in fdef.node_def:
            _refuse_op(node)


def _refuse_op(node: NodeDef) -> None:
    if node.op.startswith((*_RANDOM, *_TEXT)):
        raise refused(node.op, node.name)


def refuse_text(graph_def: Any) -> None:
    """Refuses the first op that reads text, after tf2onnx failed and did not say on what.

    Raises:
        ConversionError: Names op and layer.
    """
    for node in graph_def.node:
        if types_pb2.DT_STRING in (input_types(node) or []) and node.op != "Identity":
            raise refused(f"{node.op} of text", node.name, _TEXT_WAY_OUT)


def refuse_unknown_ops(proto: Any) -> None:
    """tf2onnx leaves an op it does not know in the standard domain and calls it success.

    Raises:
        ConversionError: Names op and layer.
    """
    versions = {o.domain: o.version for o in proto.opset_import}
    for graph in all_graphs(proto):
        for node in graph.node:
            if node.domain in ("", "ai.onnx"):
                try:
                    onnx.defs.get_schema(node.op_type, versions[""], "")
                except onnx.defs.SchemaError:
                    raise refused(node.op_type, node.name) from None


def explain(logged: list[str], error: str, key: str) -> ConversionError:
    """What tf2onnx logged, in terms of the model.

    Args:
        logged: Its error lines.
        error: What it raised.
        key: Signature key, for where no node is named.
    """
    text = "\n".join(logged)
    node = re.search(r"(?:Failed to convert node|Failed to replace) '([^']+)'", text)
    op = re.search(r"OP=(\w+)", text)
    cause = re.sub(r"^make_sure failure: ", "", error.strip().splitlines()[0] if error else "")
    if node is None:
        return ConversionError(
            f"tf2onnx failed: {cause[:200]}", hint=_ANY_WAY_OUT, where=key, details={"ops": []}
        )
    name, kind = node[1], op[1] if op else ""
    return ConversionError(
        f"tf2onnx cannot convert {kind or 'an op'}{place_of(name)}: {cause[:200]}",
        hint=way_out(kind),
        where=path_of(name),
        details={"ops": [kind] if kind else []},
    )
