"""Saturate 16-bit constants that are infinite, so that 0 × inf can't become NaN.

Given::

    mask = Const{dtype: half, value: -inf}          # was written as -1e9

Result::

    mask = Const{dtype: float, value: -1e9} → Cast{float → half}     # promotion drops the Cast

Fires on a Const of float16 or bfloat16 that holds ±inf. Must not fire on float32 constants: an
infinity there was written by the author.
"""

from __future__ import annotations

import numpy as np
from tensorflow.core.framework import types_pb2

from mpexport.findings import Change
from mpexport.tf.graph import HALF_TYPES, Program, rename_readers, unique_name, where
from mpexport.tf.pipeline import GraphPass, PassContext
from mpexport.tf.retype import convert_tensor, stored_values

# The value people write for masks. exp(-1e9) is 0, and sums of many of them stay finite, which the
# largest float32 would not.
SENTINEL = 1e9


def saturated(values: np.ndarray) -> np.ndarray:
    """float32 values with every infinity replaced by ±`SENTINEL`."""
    return np.where(np.isinf(values), np.copysign(np.float32(SENTINEL), values), values)


def _apply(program: Program, context: PassContext) -> list[Change]:
    changes = []
    for fdef in program.library.values():
        taken: set[str] = set()
        renamed: dict[str, str] = {}
        casts = []
        for node in fdef.node_def:
            if node.op != "Const" or node.attr["dtype"].type not in HALF_TYPES:
                continue
            values = stored_values(node.attr["value"].tensor)
            infinite = np.isinf(values)
            if not infinite.any():
                continue
            half = node.attr["dtype"].type
            convert_tensor(node.attr["value"].tensor, types_pb2.DT_FLOAT, saturated(values))
            node.attr["dtype"].type = types_pb2.DT_FLOAT
            cast_name = unique_name(fdef, taken, f"{node.name}/saturated")
            casts.append((cast_name, node.name, half))
            renamed[f"{node.name}:output:0"] = f"{cast_name}:y:0"
            changes.append(
                Change(
                    PASS.name,
                    "constant-saturated",
                    where(fdef, node),
                    f"{int(infinite.sum())} infinite value(s) of {types_pb2.DataType.Name(half)} "
                    f"became ±{SENTINEL:g}",
                )
            )
        rename_readers(fdef, renamed)
        for name, source, half in casts:
            cast = fdef.node_def.add(name=name, op="Cast", input=[f"{source}:output:0"])
            cast.attr["SrcT"].type = types_pb2.DT_FLOAT
            cast.attr["DstT"].type = half
    return changes


PASS = GraphPass(
    name="saturate_sentinels", stage="normalize", apply=_apply, after=("strip_trace_attributes",)
)
