"""Make the TensorLists of loops plain tensors, where tf2onnx cannot make them scan outputs.

Given (``tf.scan``; ``list`` is written in the loop, and the loop carries a second value)::

    _, acc, out = While(0, start, list):  list' = TensorListSetItem(list, i, acc)
    y = TensorListStack(out)

Result::

    _, acc, y = While(0, start, zeros):
        list' = XlaDynamicUpdateSlice(list, ExpandDims(acc), [i, 0])

tf2onnx makes the list an output of ONNX's Loop that grows by one element per turn, which is faster;
this is for what it refuses then. Fires on every TensorList that `lower_tensor_lists` knows.
"""

from __future__ import annotations

from mpexport.tf.graph import Program
from mpexport.tf.passes.lower_tensor_lists import rewrite_lists
from mpexport.tf.pipeline import GraphPass


def _is_needed(program: Program) -> bool:
    return any(node.op.startswith("TensorList") for _, node in program.nodes())


PASS = GraphPass(
    name="onnx_tensor_lists",
    stage="format",
    apply=rewrite_lists,
    is_needed=_is_needed,
)
