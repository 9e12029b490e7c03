"""Round float32 weights to float16 behind each read: what storing them in float16 does.

Given::

    k = ReadVariableOp{dtype: float}(kernel);  y = MatMul(x, k)

Result::

    k = ReadVariableOp{dtype: float}(kernel)
    kc = ClipByValue(k, -65504, 65504)
    kr = Cast{half → float}(Cast{float → half}(kc));  y = MatMul(x, kr)

Weights beyond ±65504 are clamped, as they are in a file for which that was allowed.

Fires on reads of float32 variables and on float32 constants of more than one element, unless the
constant holds what float16 can't (a mask of -1e9 is not stored in it), and unless everything that
reads it rounds already. Serves to compute the error that float16 storage explains.
"""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from mpexport.dtypes import FLOAT16
from mpexport.findings import Change
from mpexport.tf.graph import FunctionDef, NodeDef, Program, rename_readers, unique_name, where
from mpexport.tf.pipeline import GraphPass, PassContext
from mpexport.tf.retype import stored_values

LARGEST = FLOAT16.max_finite or 0.0
_READS = {"ReadVariableOp": "value", "ResourceGather": "output", "ResourceGatherNd": "output"}


def _weight_output(node: NodeDef) -> str | None:
    if node.op in _READS and node.attr["dtype"].type == types_pb2.DT_FLOAT:
        return f"{node.name}:{_READS[node.op]}:0"
    if node.op == "Const" and node.attr["dtype"].type == types_pb2.DT_FLOAT:
        tensor = node.attr["value"].tensor
        elements = math.prod(d.size for d in tensor.tensor_shape.dim)
        if elements > 1 and (np.abs(stored_values(tensor)) <= LARGEST).all():
            return f"{node.name}:output:0"
    return None


def _rounded_already(fdef: FunctionDef) -> set[str]:
    """Tensors that are read by Casts to half only, or by clips before such Casts."""
    narrowing = {
        node.name
        for node in fdef.node_def
        if node.op == "Cast" and node.attr["DstT"].type == types_pb2.DT_HALF
    }
    clipped = {i for n in fdef.node_def if n.name in narrowing for i in n.input}
    narrowing |= {
        n.name for n in fdef.node_def if n.op == "ClipByValue" and f"{n.name}:output:0" in clipped
    }
    rounding: set[str] = set()
    other = set(fdef.ret.values())
    for node in fdef.node_def:
        (rounding if node.name in narrowing else other).update(node.input)
    return rounding - other


def _clip(fdef: FunctionDef, name: str, source: str) -> str:
    limits = []
    for suffix, value in (("lowest", -LARGEST), ("highest", LARGEST)):
        limit = fdef.node_def.add(name=f"{name}_{suffix}", op="Const")
        limit.attr["dtype"].type = types_pb2.DT_FLOAT
        limit.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.float32))
        limits.append(f"{limit.name}:output:0")
    node = fdef.node_def.add(name=f"{name}_clip", op="ClipByValue", input=[source, *limits])
    node.attr["T"].type = types_pb2.DT_FLOAT
    return f"{node.name}:output:0"


def _round_trip(fdef: FunctionDef, name: str, source: str) -> str:
    for suffix, src, dst in (
        ("narrow", types_pb2.DT_FLOAT, types_pb2.DT_HALF),
        ("widen", types_pb2.DT_HALF, types_pb2.DT_FLOAT),
    ):
        node = fdef.node_def.add(name=f"{name}_{suffix}", op="Cast", input=[source])
        node.attr["SrcT"].type, node.attr["DstT"].type = src, dst
        source = f"{node.name}:y:0"
    return source


def _apply(program: Program, context: PassContext) -> list[Change]:
    changes = []
    for fdef in program.library.values():
        taken: set[str] = set()
        renamed: dict[str, str] = {}
        border = set()
        rounded = _rounded_already(fdef)
        for node in list(fdef.node_def):
            output = _weight_output(node)
            if output is None or output in rounded:
                continue
            name = unique_name(fdef, taken, f"{node.name}/rounded")
            is_read = node.op in _READS
            inner = _clip(fdef, name, output) if is_read else output
            renamed[output] = _round_trip(fdef, name, inner)
            border.add(f"{name}_clip" if is_read else f"{name}_narrow")
            changes.append(Change(PASS.name, "weight-rounded", where(fdef, node)))
        rename_readers(fdef, renamed, skip=frozenset(border))
    return changes


PASS = GraphPass(
    name="round_weights_float16", stage="rounded", apply=_apply, after=("drop_identity_casts",)
)
