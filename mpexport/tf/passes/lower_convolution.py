"""Write convolutions that TFLite lacks in those it has.

Given::

    y = Conv2DBackpropInput{dilations: [1, 2, 2, 1]}(sizes, filter, x)

Result::

    y = PartitionedCall{f}(sizes, filter, x)

where f sets zeros between the filter's rows and columns and convolves without dilation.

1. A dilated transposed convolution has its filter dilated instead.
2. A grouped Conv3D is one convolution per group.
3. SpaceToBatchND and BatchToSpaceND, which dilated convolutions are made with, work on one axis at
   a time when there are three: TFLite has them for one and two.

Fires on known ranks and, for 2, known channels.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from mpexport.findings import Change
from mpexport.tf.graph import Program
from mpexport.tf.lowering import Site, lower
from mpexport.tf.pipeline import GraphPass, PassContext


def _stretched(kernel: Any, axis: int, rate: int) -> Any:
    """Puts ``rate - 1`` zeros between neighbors along an axis."""
    if rate == 1:
        return kernel
    size = kernel.shape[axis]
    parts = [tf.expand_dims(kernel, axis + 1)] + [
        tf.zeros_like(tf.expand_dims(kernel, axis + 1)) for _ in range(rate - 1)
    ]
    shape = kernel.shape.as_list()
    shape[axis] = size * rate
    full = tf.reshape(tf.concat(parts, axis + 1), shape)
    return tf.gather(full, tf.range((size - 1) * rate + 1), axis=axis)


def _transposed(site: Site) -> Any:
    dilations = site.attr("dilations")
    rates = dilations[1:3]
    known = site.shape(1).is_fully_defined()
    if max(dilations) == 1 or site.attr("data_format") != "NHWC" or not known:
        return None
    strides, padding = site.attr("strides"), site.attr("padding")
    if padding == "EXPLICIT":
        return None

    def function(shape: Any, kernel: Any, x: Any) -> Any:
        wide = _stretched(_stretched(kernel, 0, rates[0]), 1, rates[1])
        return tf.raw_ops.Conv2DBackpropInput(
            input_sizes=shape, filter=wide, out_backprop=x, strides=strides, padding=padding
        )

    return function


def _conv_3d(site: Site) -> Any:
    channels, kernel = site.shape(0), site.shape(1)
    if site.attr("data_format") != "NDHWC" or channels.rank != 5 or not kernel.is_fully_defined():
        return None
    groups = (channels[4] or 0) // kernel[3]
    if groups < 2:
        return None
    strides, padding = site.attr("strides"), site.attr("padding")
    dilations = site.attr("dilations")

    def function(x: Any, kernel: Any) -> Any:
        parts = zip(tf.split(x, groups, -1), tf.split(kernel, groups, -1))
        return tf.concat(
            [tf.nn.conv3d(p, k, strides, padding, dilations=dilations) for p, k in parts], -1
        )

    return function


def _blocks(site: Site) -> Any:
    """Block sizes and paddings or crops, when there are three blocked axes after the batch."""
    blocks, edges = site.const(1), site.const(2)
    rank = site.shape(0).rank
    if blocks is None or edges is None or rank is None or blocks.size != 3 or rank < 4:
        return None
    return blocks.tolist(), edges.tolist()


def _space_to_batch(site: Site) -> Any:
    found = _blocks(site)
    if found is None:
        return None
    blocks, pads = found

    def function(x: Any, *_: Any) -> Any:
        rank = x.shape.rank
        x = tf.pad(x, [[0, 0], *pads, *[[0, 0]] * (rank - 4)])
        for axis in (3, 2, 1):  # the batch index of the first axis varies slowest
            block = blocks[axis - 1]
            if block == 1:
                continue
            parts = []
            for i in range(block):
                begin, strides = [0] * rank, [1] * rank
                begin[axis], strides[axis] = i, block
                every = sum(1 << a for a in range(rank) if a != axis)
                end_mask = every | (1 << axis)
                parts.append(
                    tf.strided_slice(
                        x, begin, [0] * rank, strides, begin_mask=every, end_mask=end_mask
                    )
                )
            x = tf.concat(parts, 0)
        return x

    return function


def _batch_to_space(site: Site) -> Any:
    found = _blocks(site)
    if found is None:
        return None
    blocks, crops = found

    def function(x: Any, *_: Any) -> Any:
        rank = x.shape.rank
        for axis in (1, 2, 3):
            block = blocks[axis - 1]
            if block == 1:
                continue
            size, static = tf.shape(x), x.shape.as_list()
            before, after = [1], [1]
            for n in range(1, axis + 1):
                before = [before[0] * (static[n] if static[n] is not None else size[n])]
            for n in range(axis + 1, rank):
                after = [after[0] * (static[n] if static[n] is not None else size[n])]
            # [block, batch, before, after] → [batch, before, block, after]
            apart = tf.reshape(x, [block, size[0] // block, *before, *after])
            together = tf.transpose(apart, [1, 2, 0, 3])
            shape = [static[n] if static[n] is not None else size[n] for n in range(rank)]
            shape[0], shape[axis] = size[0] // block, shape[axis] * block
            x = tf.reshape(together, shape)
        ends = tf.shape(x)
        begin = [0, *[c[0] for c in crops], *[0] * (rank - 4)]
        cut = [0, *[c[0] + c[1] for c in crops], *[0] * (rank - 4)]
        return tf.slice(x, begin, ends - cut)

    return function


_TABLE = {
    "BatchToSpaceND": _batch_to_space,
    "Conv2DBackpropInput": _transposed,
    "Conv3D": _conv_3d,
    "SpaceToBatchND": _space_to_batch,
}


def _apply(program: Program, context: PassContext) -> list[Change]:
    return lower(program, PASS.name, _TABLE)


def _is_needed(program: Program) -> bool:
    for _, node in program.nodes():
        dilated = "dilations" in node.attr and max(node.attr["dilations"].list.i, default=1) > 1
        if (node.op == "Conv2DBackpropInput" and dilated) or node.op == "Conv3D":
            return True
    return False


PASS = GraphPass(name="lower_convolution", stage="format", apply=_apply, is_needed=_is_needed)
