"""Compute in float64: the truth an exported file is measured against.

Given (after promotion)::

    k = ReadVariableOp{dtype: float}(kernel);  y = MatMul{T: float}(x, k)

Result::

    k = ReadVariableOp{dtype: float}(kernel);  kd = Cast{float → double}(k)
    y = MatMul{T: double}(x, kd)

1. Every float32 tensor becomes float64.
2. Ops on resources keep float32 (weights are not copied up front) and get a Cast behind.
3. Ops without a float64 kernel on this machine, or whose OpDef fixes float32, are islands.
4. So are ops with a complex side, which is not widened, and random ops, which would draw other
   numbers from the same seed.
5. Captured float32 constants are widened; variables are not (2).
"""

from __future__ import annotations

from functools import lru_cache

import tensorflow as tf
from tensorflow.core.framework import op_def_pb2, types_pb2
from tensorflow.python.framework import kernels

from mpexport.findings import Change
from mpexport.tf.graph import NodeDef, Program, attr_value, is_call, op_def
from mpexport.tf.passes.promote_compute_dtype import BITS_OPS, is_on_other_resource, is_variable_op
from mpexport.tf.pipeline import GraphPass, PassContext
from mpexport.tf.retype import retype

MAPPING = {types_pb2.DT_FLOAT: types_pb2.DT_DOUBLE}
_DRAWS = ("Random", "Uniform", "Normal", "Multinomial")


@lru_cache(maxsize=4096)
def _has_cpu_kernel(op: str, typed: tuple[tuple[str, int], ...]) -> bool:
    """Whether a CPU kernel is registered for ``op`` with these type attributes."""
    wanted = dict(typed)
    for kernel in kernels.get_registered_kernels_for_op(op).kernel:
        if kernel.device_type not in ("CPU", "DEFAULT") or kernel.label:
            continue
        if all(
            wanted[c.name] in c.allowed_values.list.type
            for c in kernel.constraint
            if c.name in wanted
        ):
            return True
    return False


def _fixes_float(definition: op_def_pb2.OpDef) -> bool:
    args = [*definition.input_arg, *definition.output_arg]
    return any(a.type == types_pb2.DT_FLOAT for a in args)


def _keeps_float32(node: NodeDef) -> bool:
    if is_call(node):
        return False
    if node.op in BITS_OPS or is_variable_op(node) or is_on_other_resource(node):
        return True
    definition = op_def(node)
    if definition is None:
        return False
    if _fixes_float(definition) or any(word in node.op for word in _DRAWS):
        return True
    typed = []
    for attr in definition.attr:
        if attr.type != "type":
            continue
        t = attr_value(node, attr.name).type
        if t == types_pb2.DT_COMPLEX64:  # its real side must stay float32
            return True
        t = MAPPING.get(t, t)
        allowed = attr.allowed_values.list.type
        if allowed and t not in allowed:
            return True
        typed.append((attr.name, t))
    return not _has_cpu_kernel(node.op, tuple(typed))


def _apply(program: Program, context: PassContext) -> list[Change]:
    changes = retype(program, MAPPING, _keeps_float32, PASS.name)
    for entry in program.entries.values():
        for i, capture in enumerate(entry.captures):
            if capture.dtype == tf.float32:
                entry.captures[i] = tf.cast(capture, tf.float64)
                changes.append(Change(PASS.name, "constant-widened", entry.key))
    return changes


PASS = GraphPass(
    name="reference_float64",
    stage="reference",
    apply=_apply,
    after=("drop_identity_casts", "round_weights_float16"),
)
