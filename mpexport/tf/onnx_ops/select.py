"""Choices between two tensors as ONNX's Where.

tf2onnx adds products with 0 and 1 instead, for speed. What is not chosen then counts after all when
it is infinite or NaN, as in the common ``where(x > 0, log(x), 0)``.
"""

from __future__ import annotations

from typing import Any

from onnx import TensorProto
from tf2onnx.onnx_opset.controlflow import Select

from mpexport.tf.onnx_ops import OpHandlers


def _where(ctx: Any, node: Any, name: str, args: Any) -> None:
    del name, args
    if ctx.get_dtype(node.output[0]) == TensorProto.BOOL:
        Select.version_7(ctx, node)  # exact for them, and ONNX Runtime has no Where of booleans
        return
    node.set_attr("handles_nan", True)  # tf2onnx's own sign that Where it must be
    Select.version_9(ctx, node)


HANDLERS = OpHandlers("select", {"Select": _where, "SelectV2": _where})
