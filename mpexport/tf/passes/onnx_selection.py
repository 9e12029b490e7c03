"""Write ops that place, pick and count in ops that ONNX has with TensorFlow's meaning.

Given (an id below 0 has no column; ONNX would count it from the end)::

    y = OneHot(ids, depth, on, off)

Result::

    y = PartitionedCall{f}(ids, depth, on, off)    f: Where(ids[..., None] == Range(depth), on, off)

Diagonals are written as comparisons of row and column numbers: tf2onnx loses the batch of a batch
of one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from mpexport.errors import ConversionError
from mpexport.findings import Change
from mpexport.tf.graph import Program
from mpexport.tf.lowering import Site, contains, lower
from mpexport.tf.onnx_refusals import path_of, place_of
from mpexport.tf.passes.lower_selection import bound
from mpexport.tf.pipeline import GraphPass, PassContext


def _one_hot(site: Site) -> Any:
    axis = site.attr("axis")
    # ONNX Runtime compares these; narrower integers are widened.
    is_wide = site.attr("TI") in (types_pb2.DT_INT32, types_pb2.DT_INT64)

    def function(ids: Any, depth: Any, on: Any, off: Any) -> Any:
        ids = ids if is_wide else tf.cast(ids, tf.int32)
        places = tf.cast(tf.range(depth), ids.dtype)
        rank = ids.shape.rank
        if axis not in (-1, rank):
            places = tf.reshape(places, [1] * axis + [-1] + [1] * (rank - axis))
        hit = tf.equal(tf.expand_dims(ids, axis), places)
        values = [tf.get_static_value(v) for v in (on, off)]
        if values[0] == 1 and values[1] == 0 and on.dtype not in (tf.bool, tf.string):
            return tf.cast(hit, on.dtype)
        return tf.where(hit, on, off)

    if site.shape(0).rank is None and axis != -1:
        return None
    constants = [site.const(i) for i in (1, 2, 3)]

    def with_constants(ids: Any, *given: Any) -> Any:
        known = [g if c is None else tf.constant(c, g.dtype) for g, c in zip(given, constants)]
        return function(ids, *known)

    return with_constants


def _offset(site: Site, index: int) -> int | None:
    """The one diagonal that a node is about; None when it is a band or not known."""
    k = site.const(index)
    return None if k is None or k.size != 1 or site.shape(0).rank is None else int(k.item())


def _on_diagonal(rows: Any, columns: Any, k: int) -> Any:
    return tf.equal(tf.range(rows)[:, None] + k, tf.range(columns)[None, :])


def _placed(diagonal: Any, k: int, columns: Any) -> Any:
    """The diagonal's values, each in its column; what else stands there is covered by a mask."""
    before = max(k, 0)
    length = tf.shape(diagonal)[-1]
    pads = [[0, 0]] * (diagonal.shape.rank - 1) + [[before, columns - before - length]]
    return tf.pad(diagonal, tf.convert_to_tensor(pads))[..., None, :]


def _diag(site: Site) -> Any:
    k = _offset(site, 1)
    sizes = [site.const(i) for i in (2, 3)]
    if k is None or any(s is None or s.item() != -1 for s in sizes):
        return None

    def function(diagonal: Any, offset: Any, rows: Any, columns: Any, padding: Any) -> Any:
        size = tf.shape(diagonal)[-1] + abs(k)
        on = _on_diagonal(size, size, k)
        return tf.where(on, _placed(diagonal, k, size), padding)

    return function


def _set_diag(site: Site) -> Any:
    k = _offset(site, 2)
    if k is None:
        return None

    def function(matrix: Any, diagonal: Any, offset: Any) -> Any:
        rows, columns = tf.shape(matrix)[-2], tf.shape(matrix)[-1]
        placed = _placed(diagonal, k, columns)
        return tf.where(_on_diagonal(rows, columns, k), placed, matrix)

    return function


def _diag_part(site: Site) -> Any:
    k = _offset(site, 1)
    if k is None:
        return None

    def function(matrix: Any, offset: Any, padding: Any) -> Any:
        rows, columns = tf.shape(matrix)[-2], tf.shape(matrix)[-1]
        on = _on_diagonal(rows, columns, k)
        by_column = tf.reduce_sum(tf.where(on, matrix, tf.zeros_like(matrix)), -2)
        first = max(k, 0)
        length = tf.minimum(rows + min(k, 0), columns - first)
        return by_column[..., first : first + length]

    return function


def _tensor_diag(site: Site) -> Any:
    shape = site.shape(0)
    if not shape.is_fully_defined():
        return None
    size = shape.num_elements()

    def function(x: Any) -> Any:
        flat = tf.reshape(x, [size])
        on = tf.constant(np.eye(size, dtype=bool))
        return tf.reshape(tf.where(on, flat, tf.zeros_like(flat)), shape.as_list() * 2)

    return function


def _tensor_diag_part(site: Site) -> Any:
    shape = site.shape(0)
    if not shape.is_fully_defined():
        return None
    half = shape.as_list()[: shape.rank // 2]
    size = int(np.prod(half))
    return lambda x: tf.reshape(tf.gather(tf.reshape(x, [-1]), np.arange(size) * (size + 1)), half)


def _bucketize(site: Site) -> Any:
    bounds = np.float32(site.attr("boundaries"))
    dtype = tf.as_dtype(site.attr("T"))

    def function(x: Any) -> Any:
        # Whole numbers are compared as float32 by TensorFlow, too.
        values = x if dtype in (tf.float32, tf.float64) else tf.cast(x, tf.float32)
        reached = tf.greater_equal(values[..., None], tf.constant(bounds, values.dtype))
        return tf.reduce_sum(tf.cast(reached, tf.int32), -1)

    return function


def _invert_permutation(site: Site) -> Any:
    def function(x: Any) -> Any:
        size = tf.shape(x)[0]
        hit = tf.equal(x[None, :], tf.cast(tf.range(size)[:, None], x.dtype))
        places = tf.cast(tf.range(size), x.dtype)
        return tf.reduce_sum(tf.where(hit, places[None, :], tf.zeros_like(x)[None, :]), -1)

    return function


def _unravel(site: Site) -> Any:
    dims = site.const(1)
    if dims is None:
        return None

    def function(index: Any, shape: Any) -> Any:
        parts, rest = [], index
        for size in reversed(dims.tolist()):
            parts.append(tf.math.floormod(rest, tf.cast(size, rest.dtype)))
            rest = tf.math.floordiv(rest, tf.cast(size, rest.dtype))
        return tf.stack(parts[::-1])

    return function


def _shapes(site: Site) -> Any:
    dtype = tf.as_dtype(site.attr("out_type"))
    return lambda *tensors: [tf.shape(t, out_type=dtype) for t in tensors]


def _broadcast_shape(site: Site) -> Any:
    sizes = [site.shape(i).as_list()[0] if site.shape(i).rank else None for i in (0, 1)]
    ranks = [n for n in sizes if n is not None]
    if len(ranks) != len(sizes):
        return None
    rank = max(ranks)

    def function(*shapes: Any) -> Any:
        full = [
            tf.concat([tf.ones([rank - n], s.dtype), s], 0) if n < rank else s
            for s, n in zip(shapes, ranks)
        ]
        return tf.where(tf.equal(full[0], 1), full[1], full[0])

    return function


def _update_slice(site: Site) -> Any:
    rank = site.shape(0).rank
    if rank is None:
        return None

    def function(x: Any, update: Any, start: Any) -> Any:
        size, length = tf.shape(x), tf.shape(update)
        # Like XLA, a slice that would stick out is moved in.
        first = tf.clip_by_value(tf.cast(start, tf.int32), 0, size - length)
        inside = tf.ones([], tf.bool)
        for axis in range(rank):
            place = tf.range(size[axis])
            on = (place >= first[axis]) & (place < first[axis] + length[axis])
            inside = inside & tf.reshape(on, [-1 if a == axis else 1 for a in range(rank)])
        pads = tf.stack([first, size - length - first], 1)
        return tf.where(inside, tf.pad(update, pads), x)

    return function


def _histogram(site: Site) -> Any:
    bins = site.const(2)
    if bins is None or site.attr("dtype") != types_pb2.DT_INT32:
        return None
    count = int(bins.item())

    def function(values: Any, bounds: Any, nbins: Any) -> Any:
        low, high = bounds[0], bounds[1]
        step = (high - low) / tf.cast(count, values.dtype)
        index = tf.floor((tf.reshape(values, [-1]) - low) / step)
        index = tf.cast(tf.clip_by_value(index, 0.0, count - 1.0), tf.int32)
        return tf.reduce_sum(tf.one_hot(index, count, dtype=tf.int32), 0)

    return function


def _approximate_top_k(site: Site) -> Any:
    axis, rank = site.attr("reduction_dimension"), site.shape(0).rank
    if rank is None or axis % rank != rank - 1 or not site.attr("aggregate_to_topk"):
        return None
    sign = 1.0 if site.attr("is_max_k") else -1.0
    count = site.attr("k")

    def function(x: Any) -> Any:
        # Exact, as TensorFlow is on CPU.
        values, places = tf.math.top_k(sign * x, count)
        return sign * values, places

    return function


def _squeeze(site: Site) -> Any:
    shape = site.shape(0)
    if site.attr("squeeze_dims"):
        return None
    if shape.rank is None or None in shape.as_list():
        raise ConversionError(
            f"Squeeze{place_of(site.node.name)} drops all axes of size 1, and not all are known",
            hint="name the axes to squeeze, or fix the input's shape (--input-shape)",
            where=path_of(site.node.name),
            details={"ops": ["Squeeze"]},
        )
    axes = [i for i, n in enumerate(shape.as_list()) if n == 1]
    return (lambda x: tf.squeeze(x, axes)) if axes else tf.identity


_TABLE = {
    "ApproxTopK": _approximate_top_k,
    "BroadcastArgs": _broadcast_shape,
    "Bucketize": _bucketize,
    "Diag": _tensor_diag,
    "DiagPart": _tensor_diag_part,
    "HistogramFixedWidth": _histogram,
    "InvertPermutation": _invert_permutation,
    "LowerBound": bound(tf.less, tf.int64),
    "MatrixDiagPartV3": _diag_part,
    "MatrixDiagV3": _diag,
    "MatrixSetDiagV3": _set_diag,
    "OneHot": _one_hot,
    "ShapeN": _shapes,
    "Squeeze": _squeeze,
    "UnravelIndex": _unravel,
    "UpperBound": bound(tf.less_equal, tf.int64),
    "XlaDynamicUpdateSlice": _update_slice,
}


def _apply(program: Program, context: PassContext) -> list[Change]:
    return lower(program, PASS.name, _TABLE)


def _is_needed(program: Program) -> bool:
    bare = any(n.op == "Squeeze" and not n.attr["squeeze_dims"].list.i for _, n in program.nodes())
    return contains({k: v for k, v in _TABLE.items() if k != "Squeeze" or bare})(program)


PASS = GraphPass(
    name="onnx_selection",
    stage="format",
    apply=_apply,
    after=("lower_selection", "onnx_tensor_lists"),
    is_needed=_is_needed,
)
