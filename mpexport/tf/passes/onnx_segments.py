"""Write reductions over segments as scatters, with TensorFlow's values for empty segments.

Given::

    y = UnsortedSegmentMax(data, ids, n)

Result (``lowest`` fills the segments that get nothing; negative ids fall into a row left out)::

    y = PartitionedCall{f}(data, ids, n)    f: ScatterMax([n + 1, ...] of lowest, ids, data)[:n]

ONNX has scatters that add, take the largest and the smallest. Products are taken over a mask of
all rows by all segments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import types_pb2

from mpexport.findings import Change
from mpexport.tf.graph import Program
from mpexport.tf.lowering import Lowering, Site, contains, lower
from mpexport.tf.pipeline import GraphPass, PassContext

_Reduce = Callable[[Any, Any, Any], Any]
_SCATTERED = (types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE, types_pb2.DT_INT32, types_pb2.DT_INT64)


def _scattered(scatter: Any, neutral: Callable[[Any], Any]) -> _Reduce:
    def reduce(data: Any, ids: Any, count: Any) -> Any:
        shape = tf.concat([[count + 1], tf.shape(data)[1:]], 0)
        start = tf.fill(shape, tf.constant(neutral(data.dtype), data.dtype))
        rows = tf.where(ids < 0, count, ids)
        return scatter(start, rows[:, None], data)[:-1]

    return reduce


def _product(data: Any, ids: Any, count: Any) -> Any:
    mine = tf.equal(ids[None, :], tf.range(count)[:, None])
    ones = tf.ones([data.shape.rank - 1], tf.int32)
    mask = tf.reshape(mine, tf.concat([tf.shape(mine), ones], 0))
    return tf.reduce_prod(tf.where(mask, data[None], tf.ones([], data.dtype)), 1)


def _lowest(dtype: Any) -> Any:
    return dtype.min


def _highest(dtype: Any) -> Any:
    return dtype.max


def _zero(dtype: Any) -> Any:
    del dtype
    return 0


_sum = _scattered(tf.tensor_scatter_nd_add, _zero)
_max = _scattered(tf.tensor_scatter_nd_max, _lowest)
_min = _scattered(tf.tensor_scatter_nd_min, _highest)


def _counts(ids: Any, count: Any, like: Any) -> Any:
    """How many rows each segment has, in a shape that divides by row."""
    shape = tf.concat([tf.shape(ids), tf.ones([like.shape.rank - 1], tf.int32)], 0)
    return _sum(tf.ones(shape, like.dtype), ids, count)


def _flat(data: Any, ids: Any) -> tuple[Any, Any]:
    """Ids of several axes as ids of one."""
    if ids.shape.rank == 1:
        return data, ids
    rest = tf.shape(data)[ids.shape.rank :]
    return tf.reshape(data, tf.concat([[-1], rest], 0)), tf.reshape(ids, [-1])


def _ranks_known(site: Site, data: int, ids: int) -> bool:
    return bool(site.shape(data).rank and site.shape(ids).rank and site.attr("T") in _SCATTERED)


def _unsorted(reduce: _Reduce) -> Lowering:
    def chosen(site: Site) -> Any:
        if not _ranks_known(site, 0, 1):
            return None

        def function(data: Any, ids: Any, count: Any) -> Any:
            rows, places = _flat(data, tf.cast(ids, tf.int32))
            rank = site.shape(0).rank - site.shape(1).rank + 1
            rows.set_shape([None] * rank if rows.shape.rank is None else rows.shape)
            return reduce(rows, places, tf.cast(count, tf.int32))

        return function

    return chosen


def _or_zero(data: Any, ids: Any, count: Any, value: Any) -> Any:
    """TensorFlow's sorted reductions give 0 for a segment without rows."""
    return tf.where(_counts(ids, count, data) > 0, value, tf.zeros([], data.dtype))


def _sorted_max(data: Any, ids: Any, count: Any) -> Any:
    return _or_zero(data, ids, count, _max(data, ids, count))


def _sorted_min(data: Any, ids: Any, count: Any) -> Any:
    return _or_zero(data, ids, count, _min(data, ids, count))


def _mean(data: Any, ids: Any, count: Any) -> Any:
    counts = _counts(ids, count, data)
    return _sum(data, ids, count) / tf.maximum(counts, tf.ones_like(counts))


def _sqrt_n(data: Any, ids: Any, count: Any) -> Any:
    counts = _counts(ids, count, data)
    return _sum(data, ids, count) / tf.sqrt(tf.maximum(counts, tf.ones_like(counts)))


def _sorted(reduce: _Reduce) -> Lowering:
    def chosen(site: Site) -> Any:
        if not _ranks_known(site, 0, 1):
            return None

        def function(data: Any, ids: Any) -> Any:
            places = tf.cast(ids, tf.int32)
            return reduce(data, places, tf.reduce_max(places) + 1)

        return function

    return chosen


def _sparse(reduce: _Reduce) -> Lowering:
    def chosen(site: Site) -> Any:
        if not _ranks_known(site, 0, 2):
            return None

        def function(data: Any, rows: Any, ids: Any) -> Any:
            places = tf.cast(ids, tf.int32)
            return reduce(tf.gather(data, rows), places, tf.reduce_max(places) + 1)

        return function

    return chosen


_TABLE = {
    "SegmentMax": _sorted(_sorted_max),
    "SegmentMaxV2": _unsorted(_max),
    "SegmentMean": _sorted(_mean),
    "SegmentMin": _sorted(_sorted_min),
    "SegmentMinV2": _unsorted(_min),
    "SegmentProd": _sorted(_product),
    "SegmentProdV2": _unsorted(_product),
    "SegmentSum": _sorted(_sum),
    "SegmentSumV2": _unsorted(_sum),
    "SparseSegmentMean": _sparse(_mean),
    "SparseSegmentSqrtN": _sparse(_sqrt_n),
    "SparseSegmentSum": _sparse(_sum),
    "UnsortedSegmentMax": _unsorted(_max),
    "UnsortedSegmentMin": _unsorted(_min),
    "UnsortedSegmentProd": _unsorted(_product),
    "UnsortedSegmentSum": _unsorted(_sum),
}


def _apply(program: Program, context: PassContext) -> list[Change]:
    return lower(program, PASS.name, _TABLE)


PASS = GraphPass(name="onnx_segments", stage="format", apply=_apply, is_needed=contains(_TABLE))
