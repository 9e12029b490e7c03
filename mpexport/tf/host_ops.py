"""Graph ops that reach out of the graph: judged over every function, before anything runs.

An op is fine when TensorFlow registers it as stateless and it is not on the short list of
stateless ops that read files, or when it is on the list of stateful ops known to stay inside.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensorflow.python.framework import op_def_registry

from mpexport.errors import UnsafeModelError
from mpexport.tf.graph import FunctionDef, NodeDef, attr_value, where

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
# Ops by which a SavedModel saves and restores itself; they run only inside TensorFlow's own code.
_CHECKPOINT_OPS = frozenset({"SaveV2", "RestoreV2", "MergeV2Checkpoints", "ShardedFilename"})


def is_host_op(node: NodeDef) -> bool:
    """Whether a node may touch files, processes, the network or Python."""
    op = node.op
    if op.startswith(_STATELESS_BUT_OUTSIDE + _READS_FILE) or op in _CHECKPOINT_OPS:
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
                raise UnsafeModelError(
                    f"{path}: the graph holds {node.op}, which acts outside the graph",
                    hint="remove it from the signature; --allow-code runs it, if you trust the model",
                    where=where(fdef, node),
                )
