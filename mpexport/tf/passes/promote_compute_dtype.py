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
3. Ops on variables are promoted (16-bit variables get float32 twins when the program is built), so
   are the TensorArrays and stacks of TF1 loops, which live inside the graph; ops on other resources
   (tables) keep their element type and get Casts.
"""

from __future__ import annotations

from tensorflow.core.framework import types_pb2

from mpexport.findings import Change
from mpexport.tf.graph import NodeDef, Program, input_types, is_call, output_types
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
        "Fingerprint",
        "ParseTensor",
        "SerializeTensor",
    }
)
_VARIABLE_OPS = frozenset({"VarHandleOp", "ReadVariableOp", "AssignVariableOp", "VariableShape"})
_MADE_INSIDE = ("TensorArray", "Stack")  # prefixes; the ops that make one and the ops that use it


def is_variable_op(node: NodeDef) -> bool:
    """Whether the op reads or writes a variable (ResourceGather, AssignAddVariableOp …)."""
    return (
        node.op in _VARIABLE_OPS
        or node.op.startswith("Resource")
        or (node.op.startswith("Assign") and node.op.endswith("VariableOp"))
    )


def is_on_other_resource(node: NodeDef) -> bool:
    """Whether the op makes or uses a resource that is no variable and outlives the call."""
    if is_call(node) or is_variable_op(node) or node.op.startswith(_MADE_INSIDE):
        return False
    types = (input_types(node) or []) + [t for _, t in output_types(node) or []]
    return types_pb2.DT_RESOURCE in types


def keeps_type(node: NodeDef) -> bool:
    """Whether promotion must leave the node's element types alone."""
    return node.op in BITS_OPS or is_on_other_resource(node)


def _apply(program: Program, context: PassContext) -> list[Change]:
    return retype(program, MAPPING, keeps_type, PASS.name)


PASS = GraphPass(
    name="promote_compute_dtype",
    stage="normalize",
    apply=_apply,
    after=("strip_trace_attributes", "saturate_sentinels", "drop_saturating_casts"),
)
