"""Transposed convolutions whose output reaches beyond what the kernel touches.

Strides of 2 and a kernel of 3 make 9 rows of 4; a model may ask for 10, the last being zeros.
tf2onnx writes that as a negative padding, which ONNX doesn't allow; here it is ONNX's
``output_padding``.
"""

from __future__ import annotations

from typing import Any

from tf2onnx.onnx_opset.nn import ConvTranspose

from mpexport.tf.onnx_ops import OpHandlers


def _conv_transpose(ctx: Any, node: Any, name: str, args: Any) -> None:
    del name, args
    ConvTranspose.version_1(ctx, node)
    pads = node.get_attr("pads")
    if pads is None:
        return
    axes = len(pads.ints) // 2
    totals = [begin + end for begin, end in zip(pads.ints[:axes], pads.ints[axes:])]
    if min(totals) >= 0:
        return
    # Like TensorFlow: nothing is cut where something is missing, and what is missing comes last.
    kept = [max(total, 0) for total in totals]
    node.set_attr("pads", [n // 2 for n in kept] + [n - n // 2 for n in kept])
    node.set_attr("output_padding", [max(-total, 0) for total in totals])


HANDLERS = OpHandlers(
    "transposed_convolution",
    {"Conv2DBackpropInput": _conv_transpose, "Conv3DBackpropInputV2": _conv_transpose},
)
