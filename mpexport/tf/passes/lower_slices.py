"""Give slices that add axes a reshape of their own.

Given (``x[None, None, :, :]`` of a tensor whose sizes are unknown)::

    y = StridedSlice{new_axis_mask: 3}(x, begin, end, strides)

Result::

    y = PartitionedCall{f}(x, begin, end, strides)          f: the slice, then ExpandDims

The converter does it itself where all sizes are known. Fires on a known rank with an unknown size.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from mpexport.findings import Change
from mpexport.tf.graph import Program, attr_value
from mpexport.tf.lowering import Site, lower
from mpexport.tf.pipeline import GraphPass, PassContext


def _bits(mask: int, count: int) -> list[bool]:
    return [bool(mask >> i & 1) for i in range(count)]


def _slice(site: Site) -> Any:
    begin, end, strides = (site.const(i) for i in (1, 2, 3))
    shape = site.shape(0)
    if not site.attr("new_axis_mask") or begin is None or end is None or strides is None:
        return None
    if shape.rank is None or shape.is_fully_defined():
        return None
    count = begin.size
    names = ("begin_mask", "end_mask", "shrink_axis_mask", "new_axis_mask", "ellipsis_mask")
    begins, ends, shrinks, news, dots = (_bits(site.attr(n), count) for n in names)
    # Index by index, as Python writes it; an ellipsis wins over a new axis, that over the rest.
    index: list[Any] = []
    added: list[int] = []
    axis = 0
    taken = sum(1 for i in range(count) if not dots[i] and not news[i])
    for i in range(count):
        if dots[i]:
            index += [slice(None)] * (shape.rank - taken)
            axis += shape.rank - taken
        elif news[i]:
            added.append(axis)
            axis += 1
        elif shrinks[i]:
            index.append(int(begin[i]))
        else:
            low = None if begins[i] else int(begin[i])
            index.append(slice(low, None if ends[i] else int(end[i]), int(strides[i])))
            axis += 1

    def function(x: Any, *_: Any) -> Any:
        if any(i != slice(None) and i != slice(None, None, 1) for i in index):
            x = x[tuple(index)]
        for position in added:
            x = tf.expand_dims(x, position)
        return x

    return function


_TABLE = {"StridedSlice": _slice}


def _apply(program: Program, context: PassContext) -> list[Change]:
    return lower(program, PASS.name, _TABLE)


def _is_needed(program: Program) -> bool:
    return any(
        node.op == "StridedSlice" and attr_value(node, "new_axis_mask").i
        for _, node in program.nodes()
    )


PASS = GraphPass(name="lower_slices", stage="format", apply=_apply, is_needed=_is_needed)
