"""Tell the sign of a number without its bits, which no format looks at.

Given::

    b = Bitcast{float → int32}(x);  s = BitwiseAnd(b, -2^31)

Result::

    b = PartitionedCall{f}(x)       f: x < 0 or 1/x < 0 ? -2^31 : 0
    s = PartitionedCall{g}(b, -2^31)                        g: b < 0 ? -2^31 : 0

``1/x`` tells -0 from 0. Keras' argmax and argmin ask for that, to order the two. The sign of a NaN
counts as positive. Fires on a Bitcast whose every reader takes the sign bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from mpexport.findings import Change
from mpexport.tf.graph import Program, tensor_node
from mpexport.tf.lowering import Site, contains, lower
from mpexport.tf.pipeline import GraphPass, PassContext

_SIGN = np.int32(-(2**31))


def _takes_sign(site: Site) -> bool:
    for index in (0, 1):
        mask = site.const(index)
        if mask is not None and mask.dtype == np.int32 and bool((mask == _SIGN).all()):
            return True
    return False


def _bitcast(site: Site) -> Any:
    if (site.attr("T"), site.attr("type")) != (types_pb2.DT_FLOAT, types_pb2.DT_INT32):
        return None
    name = site.node.name
    readers = [n for n in site.fdef.node_def if name in map(tensor_node, n.input)]
    returned = any(tensor_node(r) == name for r in site.fdef.ret.values())
    if returned or not all(
        n.op == "BitwiseAnd" and _takes_sign(Site(site.fdef, n, site.producers)) for n in readers
    ):
        return None

    def function(x: Any) -> Any:
        negative = tf.logical_or(x < 0.0, 1.0 / x < 0.0)
        return tf.where(negative, tf.constant(_SIGN), tf.constant(0))

    return function


def _and(site: Site) -> Any:
    if site.attr("T") != types_pb2.DT_INT32 or not _takes_sign(site):
        return None

    def function(a: Any, b: Any) -> Any:
        negative = tf.logical_and(a < 0, b < 0)
        return tf.where(negative, tf.constant(_SIGN), tf.constant(0))

    return function


# In this order: what becomes a call is no BitwiseAnd any more.
_TABLES = ({"Bitcast": _bitcast}, {"BitwiseAnd": _and})


def _apply(program: Program, context: PassContext) -> list[Change]:
    return [change for table in _TABLES for change in lower(program, PASS.name, table)]


PASS = GraphPass(
    name="lower_sign_bit",
    stage="format",
    apply=_apply,
    is_needed=contains(_TABLES[1]),
)
