"""Write ops that search, count, scan and select in ops that TFLite has.

Given::

    y = DenseBincount{binary_output: false}(ids, size, [])

Result::

    y = PartitionedCall{f}(ids, size, [])          f: Sum(OneHot(ids, size))

What is compared with everything takes as much memory as the product of both sizes.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.core.framework import types_pb2

from mpexport.findings import Change
from mpexport.tf.graph import Program
from mpexport.tf.lowering import Site, contains, lower, simple
from mpexport.tf.pipeline import GraphPass, PassContext


def _top_k(site: Site) -> Any:
    if site.attr("index_type") != types_pb2.DT_INT64:
        return None
    ordered = site.attr("sorted")

    def function(x: Any, k: Any) -> Any:
        values, indices = tf.math.top_k(x, k, sorted=ordered)
        return values, tf.cast(indices, tf.int64)

    return function


def _in_top_k(predictions: Any, targets: Any, k: Any) -> Any:
    count = tf.shape(predictions)[1]
    chosen = tf.one_hot(tf.cast(targets, tf.int32), count, on_value=True, off_value=False)
    zeros = tf.zeros_like(predictions)
    target = tf.reduce_sum(tf.where(chosen, predictions, zeros), 1, keepdims=True)
    better = tf.reduce_sum(tf.cast(predictions > target, tf.int32), 1)
    exists = tf.reduce_any(chosen, 1)
    return tf.logical_and(exists, better < tf.cast(k, tf.int32))


def _nth_element(site: Site) -> Any:
    reverse = site.attr("reverse")

    def function(x: Any, n: Any) -> Any:
        values = tf.math.top_k(x if reverse else -x, n + 1)[0]
        nth = tf.gather(values, n, axis=-1)
        return nth if reverse else -nth

    return function


def bound(is_before: Any, dtype: tf.DType) -> Any:
    """A lowering of LowerBound or UpperBound whose result is of one element type.

    Args:
        is_before: Whether an ordered number stands before the place of a value.
        dtype: The element type.
    """

    def chosen(site: Site) -> Any:
        if site.attr("out_type") != dtype.as_datatype_enum:
            return None

        def function(ordered: Any, values: Any) -> Any:
            before = is_before(ordered[:, None, :], values[:, :, None])
            return tf.cast(tf.reduce_sum(tf.cast(before, tf.int32), -1), dtype)

        return function

    return chosen


def _bincount(site: Site) -> Any:
    binary, dtype = site.attr("binary_output"), tf.as_dtype(site.attr("T"))
    weights = site.const(2)
    if weights is not None and not weights.size:

        def counted(ids: Any, size: Any, weights: Any) -> Any:
            hot = tf.one_hot(ids, tf.cast(size, tf.int32), dtype=dtype)
            return tf.reduce_max(hot, -2) if binary else tf.reduce_sum(hot, -2)

        return counted
    if binary or not site.shape(2).rank:
        return None

    def weighted(ids: Any, size: Any, weights: Any) -> Any:
        hit = tf.equal(ids[..., None], tf.range(tf.cast(size, ids.dtype)))
        return tf.reduce_sum(tf.where(hit, weights[..., None], tf.zeros([], weights.dtype)), -2)

    return weighted


def _diag_part(site: Site) -> Any:
    k = site.const(1)
    if k is None or k.size != 1 or k.item() != 0 or not site.shape(0).rank:
        return None

    def function(x: Any, k: Any, padding: Any) -> Any:
        shape = tf.shape(x)
        rows, columns = shape[x.shape.rank - 2], shape[x.shape.rank - 1]
        on = tf.equal(tf.range(rows)[:, None], tf.range(columns)[None, :])
        diagonal = tf.reduce_sum(tf.where(on, x, tf.zeros_like(x)), -1)
        return diagonal[..., : tf.minimum(rows, columns)]

    return function


def _before(n: Any, exclusive: bool, reverse: bool) -> Any:
    """``[n, n]``: whether element j counts for the cumulated element i."""
    i, j = tf.range(n)[:, None], tf.range(n)[None, :]
    if reverse:
        i, j = j, i
    return j < i if exclusive else j <= i


def _cumulate(reduce: Any, neutral: Any) -> Any:
    def chosen(site: Site) -> Any:
        axis, rank = site.const(1), site.shape(0).rank
        if axis is None or rank is None:
            return None
        exclusive, reverse = site.attr("exclusive"), site.attr("reverse")
        last = axis.item() % rank
        order = [i for i in range(rank) if i != last] + [last]
        back = [order.index(i) for i in range(rank)]

        def function(x: Any, axis: Any) -> Any:
            moved = tf.transpose(x, order)
            counts = _before(tf.shape(moved)[rank - 1], exclusive, reverse)
            filled = tf.where(counts, moved[..., None, :], neutral(x.dtype))
            return tf.transpose(reduce(filled, -1), back)

        return function

    return chosen


def _log_sum_exp(x: Any, axis: int) -> Any:
    # What stands for nothing is the lowest number: below this, so that a sum of it alone is log(0).
    top = tf.maximum(tf.reduce_max(x, axis, keepdims=True), 0.5 * x.dtype.min)
    return tf.math.log(tf.reduce_sum(tf.exp(x - top), axis)) + tf.squeeze(top, axis)


def _roll(site: Site) -> Any:
    axes = site.const(2)
    if axes is None or site.shape(0).rank is None:
        return None
    rank = site.shape(0).rank
    wrapped = [a % rank for a in axes.reshape(-1).tolist()]

    def function(x: Any, shifts: Any, axes: Any) -> Any:
        for i, axis in enumerate(wrapped):
            shift = tf.cast(tf.reshape(shifts, [-1])[i], tf.int32)
            size = tf.shape(x)[axis]
            # floormod of a tensor of one size and a shift; where the size is 0, so is the result.
            start = tf.math.floormod(-shift, tf.maximum(size, 1))
            x = tf.gather(
                x, tf.math.floormod(tf.range(size) + start, tf.maximum(size, 1)), axis=axis
            )
        return x

    return function


def _sparse_cross_entropy(site: Site) -> Any:
    def function(logits: Any, labels: Any) -> Any:
        count = tf.shape(logits)[1]
        hot = tf.one_hot(tf.cast(labels, tf.int32), count, dtype=logits.dtype)
        loss = -tf.reduce_sum(hot * tf.nn.log_softmax(logits), -1)
        # The gradient, which nobody reads at inference.
        return loss, tf.nn.softmax(logits) - hot

    return function


def _dynamic_partition(site: Site) -> Any:
    count = site.attr("num_partitions")
    if site.shape(1).rank != 1:
        return None

    def function(data: Any, partitions: Any) -> Any:
        where = [tf.where(tf.equal(partitions, i))[:, 0] for i in range(count)]
        return [tf.gather(data, w) for w in where]

    return function


def _cross(a: Any, b: Any) -> Any:
    (a0, a1, a2), (b0, b1, b2) = tf.unstack(a, 3, -1), tf.unstack(b, 3, -1)
    return tf.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], -1)


def _segment_mean(data: Any, ids: Any) -> Any:
    total = tf.math.segment_sum(data, ids)
    count = tf.math.segment_sum(tf.ones_like(data), ids)
    return total / tf.maximum(count, tf.ones_like(count))


def _euclidean_norm(site: Site) -> Any:
    keep = site.attr("keep_dims")
    return lambda x, axes: tf.sqrt(tf.reduce_sum(x * x, axes, keepdims=keep))


_TABLE = {
    "Cross": simple(_cross),
    "Cumprod": _cumulate(tf.reduce_prod, lambda t: tf.ones([], t)),
    "CumulativeLogsumexp": _cumulate(_log_sum_exp, lambda t: tf.constant(t.min, t)),
    "DenseBincount": _bincount,
    "DynamicPartition": _dynamic_partition,
    "EuclideanNorm": _euclidean_norm,
    "InTopKV2": simple(_in_top_k),
    "LowerBound": bound(tf.less, tf.int32),
    "MatrixDiagPartV3": _diag_part,
    "NthElement": _nth_element,
    "Roll": _roll,
    "SegmentMean": simple(_segment_mean),
    "SparseSoftmaxCrossEntropyWithLogits": _sparse_cross_entropy,
    "TopKV2": _top_k,
    "UpperBound": bound(tf.less_equal, tf.int32),
}


def _apply(program: Program, context: PassContext) -> list[Change]:
    return lower(program, PASS.name, _TABLE)


def _is_needed(program: Program) -> bool:
    narrow = {k: v for k, v in _TABLE.items() if k != "TopKV2"}
    wide = any(
        n.op == "TopKV2" and n.attr["index_type"].type == types_pb2.DT_INT64
        for _, n in program.nodes()
        if "index_type" in n.attr
    )
    return wide or contains(narrow)(program)


PASS = GraphPass(name="lower_selection", stage="format", apply=_apply, is_needed=_is_needed)
