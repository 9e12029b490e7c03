"""Write poolings that TFLite lacks as 2D poolings.

Given::

    y = MaxPool3D{ksize: [1, d, h, w, 1]}(x)

Result::

    y = PartitionedCall{f}(x)          f(x): MaxPool over [h, w] of each plane, then over d

1. A window in three dimensions is the product of three: its maximum is the maximum of maxima. Its
   average is the average of averages, also with padding: each axis counts what is inside.
2. Explicit padding of MaxPool becomes a PadV2 with the lowest number.
3. MaxPoolWithArgmax whose positions nobody reads becomes MaxPool.

Fires on float32 in NHWC or NDHWC layout with a known number of channels.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from mpexport.findings import Change
from mpexport.tf.graph import Program
from mpexport.tf.lowering import Site, contains, lower
from mpexport.tf.pipeline import GraphPass, PassContext


def sizes(x: Any) -> list[Any]:
    """The sizes of a tensor of known rank: numbers where they are known, else tensors."""
    dynamic = tf.shape(x)
    return [n if n is not None else dynamic[i] for i, n in enumerate(x.shape.as_list())]


def merged(x: Any, first: int, count: int) -> Any:
    """Merges ``count`` neighboring axes; at most one size of the result is unknown to the graph."""
    old = sizes(x)
    product: Any = 1
    for n in old[first : first + count]:
        product = product * n
    return tf.reshape(x, [*old[:first], product, *old[first + count :]])


def _pool_3d(pool: Any) -> Any:
    def chosen(site: Site) -> Any:
        ksize, strides, padding = site.attr("ksize"), site.attr("strides"), site.attr("padding")
        shape = site.shape(0)
        if site.attr("data_format") != "NDHWC" or shape.rank != 5 or shape[4] is None:
            return None

        def function(x: Any) -> Any:
            planes = pool(merged(x, 0, 2), ksize[2:4], strides[2:4], padding)
            _, height, width, channels = sizes(planes)
            old = sizes(x)
            rows = tf.reshape(planes, [-1, old[1], height * width, channels])
            columns = pool(rows, [ksize[1], 1], [strides[1], 1], padding)
            depth = sizes(columns)[1]
            return tf.reshape(columns, [-1, depth, height, width, channels])

        return function

    return chosen


def _explicit_max_pool(site: Site) -> Any:
    if site.attr("padding") != "EXPLICIT" or site.attr("data_format") != "NHWC":
        return None
    pads = site.attr("explicit_paddings")
    ksize, strides = site.attr("ksize"), site.attr("strides")

    def function(x: Any) -> Any:
        paired = [pads[i : i + 2] for i in range(0, 8, 2)]
        padded = tf.pad(x, paired, constant_values=x.dtype.min)
        return tf.nn.max_pool2d(padded, ksize, strides, "VALID")

    return function


def _max_pool_with_argmax(site: Site) -> Any:
    if site.is_read("argmax:0"):
        return None
    ksize, strides, padding = site.attr("ksize"), site.attr("strides"), site.attr("padding")

    def function(x: Any) -> Any:
        # Nobody reads the second output.
        return tf.nn.max_pool2d(x, ksize, strides, padding), tf.zeros([], tf.int64)

    return function


_TABLE = {
    "AvgPool3D": _pool_3d(tf.nn.avg_pool2d),
    "MaxPool": _explicit_max_pool,
    "MaxPool3D": _pool_3d(tf.nn.max_pool2d),
    "MaxPoolWithArgmax": _max_pool_with_argmax,
}


def _apply(program: Program, context: PassContext) -> list[Change]:
    return lower(program, PASS.name, _TABLE)


def _is_needed(program: Program) -> bool:
    plain = all(n.op != "MaxPool" or "explicit_paddings" not in n.attr for _, n in program.nodes())
    return contains({k: v for k, v in _TABLE.items() if k != "MaxPool" or not plain})(program)


PASS = GraphPass(name="lower_pooling", stage="format", apply=_apply, is_needed=_is_needed)
