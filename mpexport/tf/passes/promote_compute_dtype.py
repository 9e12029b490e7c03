"""Promote float16 and bfloat16 to float32 across graph, function library and signatures.

Given::

    k = ReadVariableOp{dtype: float}(kernel)
    kc = Cast{float → half}(k)
    y = MatMul{T: half}(Cast{float → half}(x), kc)

Result::

    k = ReadVariableOp{dtype: float}(kernel)
    kc = Cast{float → float}(k)                       # dropped by drop_identity_casts
    y = MatMul{T: float}(Cast{float → float}(x), kc)

1. Every attribute, constant and argument of half or bfloat16 becomes float; values are kept
   exactly, so literals stay rounded as the model was trained with them.
2. An op whose *bits* mean something (Bitcast, DecodeRaw …) keeps its 16-bit edge and gets Casts.
3. Ops on variables are promoted (16-bit variables get float32 twins when the program is built);
   ops on other resources (tables) keep their element type and get Casts.
"""

from __future__ import annotations

from tensorflow.core.framework import types_pb2

from mpexport.findings import Change
from mpexport.tf.graph import NodeDef, Program, input_types, is_call
from mpexport.tf.pipeline import GraphPass, PassContext
from mpexport.tf.retype import retype

MAPPING = {types_pb2.DT_HALF: types_pb2.DT_FLOAT, types_pb2.DT_BFLOAT16: types_pb2.DT_FLOAT}

BITS_OPS = frozenset(
    {
        "Bitcast",
        "DecodeRaw",
        "DecodePaddedRaw",
        "DecodeProtoV2",
        "EncodeProto",
        "ParseTensor",
        "SerializeTensor",
    }
)
_VARIABLE_OPS = frozenset({"ReadVariableOp", "AssignVariableOp", "VariableShape"})


def is_variable_op(node: NodeDef) -> bool:
    """Whether the op reads or writes a resource variable (ResourceGather, AssignAddVariableOp …)."""
    return (
        node.op in _VARIABLE_OPS
        or node.op.startswith("Resource")
        or (node.op.startswith("Assign") and node.op.endswith("VariableOp"))
    )


def keeps_type(node: NodeDef) -> bool:
    """Whether promotion must leave the node's element types alone."""
    if node.op in BITS_OPS:
        return True
    if is_call(node) or is_variable_op(node):
        return False
    types = input_types(node)
    return types is not None and types_pb2.DT_RESOURCE in types


def _apply(program: Program, context: PassContext) -> list[Change]:
    return retype(program, MAPPING, keeps_type, PASS.name)


PASS = GraphPass(
    name="promote_compute_dtype",
    stage="normalize",
    apply=_apply,
    after=("strip_trace_attributes", "saturate_sentinels"),
)
