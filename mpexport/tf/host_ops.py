"""Graph ops that reach out of the graph: judged before anything runs.

Two times: when a SavedModel is about to be loaded, what loading itself runs (tables initialize
themselves); and when it is loaded, all that its signatures hold.

An op is fine when TensorFlow registers it as stateless and it is not on the short list of
stateless ops that read files, or when it is on the list of stateful ops known to stay inside.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensorflow.core.framework import variable_pb2
from tensorflow.python.framework import op_def_registry

from mpexport.errors import UnsafeModelError
from mpexport.tf.graph import (
    FunctionDef,
    NodeDef,
    attr_value,
    called_functions,
    reachable_functions,
    tensor_node,
    where,
)

_STATELESS_BUT_OUTSIDE = (
    "CacheDataset",  # writes and reads the file it names
    "Debug",  # write tensors to a file:// or send them to a grpc:// URL
    "FileSystemSetConfiguration",
    "GenerateVocabRemapping",  # reads two files
    "ImmutableConst",  # maps the file it names
    "MatchingFiles",
    "PyFunc",
    "ReadFile",
    "Snapshot",
)
# Stateful, on the list below by their prefix, and yet they read the file they are given.
_READS_FILE = ("InitializeTableFromTextFile",)
_STATEFUL_BUT_INSIDE = (
    "Assert",
    "Assign",
    "Case",
    "CheckNumerics",
    "CudnnRNN",
    "Destroy",
    "DeviceIndex",
    "Empty",
    "For",
    "GuaranteeConst",
    "HashTable",
    "If",
    "InitializeTable",
    "LookupTable",
    "Multinomial",
    "MutableDenseHashTable",
    "MutableHashTable",
    "NoOp",
    "PartitionedCall",
    "Placeholder",
    "Print",
    "Random",
    "ReadVariable",
    "Resource",
    "Rng",
    "Stack",
    "StatelessRandomGetAlg",
    "StatefulPartitionedCall",
    "StatefulRandom",
    "StatefulStandardNormal",
    "StatefulTruncatedNormal",
    "StatefulUniform",
    "TensorArray",
    "TensorList",
    "TruncatedNormal",
    "ParameterizedTruncatedNormal",
    "StandardNormal",
    "VarHandle",
    "VarIsInitialized",
    "Variable",
    "VariableShape",
    "While",
    "AnonymousHashTable",
    "AnonymousMutable",
    "FusedBatchNorm",
)
# What TensorFlow calls while it loads: children of objects by name, collections of TF1 by name.
_RUN_ON_LOAD = frozenset(
    {
        "_create_resource",
        "_destroy_resource",
        "_initialize",
        "_restore_from_tensors",
        "_serialize_to_tensors",
    }
)
_INIT_COLLECTIONS = frozenset({"legacy_init_op", "saved_model_main_op", "table_initializer"})


def is_host_op(node: NodeDef) -> bool:
    """Whether a node may touch files, processes, the network or Python."""
    op = node.op
    if op.startswith(_STATELESS_BUT_OUTSIDE + _READS_FILE):
        return True
    if op in ("DecodeProtoV2", "EncodeProto"):
        source = attr_value(node, "descriptor_source").s
        return not source.startswith((b"local://", b"bytes://"))
    if op == "PrintV2" and attr_value(node, "output_stream").s.startswith(b"file:"):
        return True
    definition = op_def_registry.get(op)
    if definition is None or not definition.is_stateful:
        return False
    return not op.startswith(_STATEFUL_BUT_INSIDE)


def refuse_host_ops(path: str, functions: Iterable[FunctionDef], allow_code: bool) -> None:
    """Refuses a model whose signatures reach out of the graph.

    Raises:
        UnsafeModelError: Names op and node; exit code 4.
    """
    if allow_code:
        return
    for fdef in functions:
        for node in fdef.node_def:
            if is_host_op(node):
                raise _refused(path, node, where(fdef, node), "remove it from the signature")


def refuse_on_load(path: str, meta_graph: Any, allow_code: bool) -> None:
    """Refuses a SavedModel that reaches out of the graph while TensorFlow loads it.

    Args:
        path: The source, for the message.
        meta_graph: The MetaGraphDef to be loaded.
        allow_code: Whether the user allows it.

    Raises:
        UnsafeModelError: Names op and node; exit code 4. Nothing has run.
    """
    if allow_code:
        return
    functions = {f.signature.name: f for f in meta_graph.graph_def.library.function}
    called = _functions_run_on_load(meta_graph.object_graph_def)
    for node in _nodes_run_on_load(meta_graph):
        if _reaches_out_on_load(node):
            raise _refused(path, node, node.name, "remove it from the initializer")
        called += [node.op, *called_functions(node)]
    for fdef in reachable_functions(functions, called):
        for node in fdef.node_def:
            if _reaches_out_on_load(node):
                place = where(fdef, node)
                raise _refused(path, node, place, "remove it from the initializer")


def _refused(path: str, node: NodeDef, place: str, advice: str) -> UnsafeModelError:
    return UnsafeModelError(
        f"{path}: the graph holds {node.op}, which acts outside the graph",
        hint=f"{advice}; --allow-code runs it, if you trust the model",
        where=place,
    )


def _reaches_out_on_load(node: NodeDef) -> bool:
    """As `is_host_op`, but variables may read the checkpoint and tables their vocabulary."""
    return is_host_op(node) and not node.op.startswith((*_READS_FILE, "Restore"))


def _functions_run_on_load(object_graph: Any) -> list[str]:
    """Names of the functions by which the objects of a SavedModel make and restore themselves."""
    ids = [
        link.node_id
        for node in object_graph.nodes
        for link in [*node.children, *node.dependencies]
        if link.local_name in _RUN_ON_LOAD
    ]
    for node in object_graph.nodes:
        for saveable in node.saveable_objects.values():
            ids += [saveable.restore_function, saveable.save_function]
    names: list[str] = []
    for i in ids:
        node = object_graph.nodes[i]
        names += [*node.function.concrete_functions]
        names.append(node.bare_concrete_function.concrete_function_name)
    return names


def _nodes_run_on_load(meta_graph: Any) -> list[NodeDef]:
    """Top-level nodes by which a TF1 model initializes itself, and all they depend on."""
    todo = [meta_graph.saver_def.restore_op_name]
    for name, collection in meta_graph.collection_def.items():
        if name in _INIT_COLLECTIONS:
            todo += collection.node_list.value
        elif name == "local_variables":
            found = [variable_pb2.VariableDef.FromString(v) for v in collection.bytes_list.value]
            todo += [v.initializer_name for v in found]
    for key, signature in meta_graph.signature_def.items():
        if key == "__saved_model_init_op":
            todo += [info.name for info in signature.outputs.values()]
    nodes = {n.name: n for n in meta_graph.graph_def.node}
    reached: dict[str, NodeDef] = {}
    while todo:
        name = tensor_node(todo.pop())
        if name in nodes and name not in reached:
            reached[name] = nodes[name]
            todo += nodes[name].input
    return list(reached.values())
