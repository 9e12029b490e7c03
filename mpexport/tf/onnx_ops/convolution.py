"""Convolutions that tf2onnx writes without a part of what they are.

A Conv3D of several groups comes out as one of one group, which ONNX Runtime refuses.

A transposed convolution may reach beyond what the kernel touches: strides of 2 and a kernel of 3
make 9 rows of 4, and a model may ask for 10, the last being zeros. tf2onnx writes that as a
negative padding, which ONNX doesn't allow; here it is ONNX's ``output_padding``. And where the size
of its input is open, tf2onnx names the size of the output without saying on which side to cut. By
default ONNX cuts an odd row in front, TensorFlow behind: a picture moved by one.
"""

from __future__ import annotations

from typing import Any

from tf2onnx.onnx_opset.nn import ConvOp, ConvTranspose

from mpexport.tf.onnx_ops import OpHandlers


def _conv_3d(ctx: Any, node: Any, name: str, args: Any) -> None:
    del name, args
    channels, kernel = (ctx.get_shape(ref) for ref in node.input[:2])
    ConvOp.version_13(ctx, node)
    if channels and kernel and channels[-1] > 0 and kernel[-2] > 0:
        node.set_attr("group", channels[-1] // kernel[-2])


def _conv_transpose(ctx: Any, node: Any, name: str, args: Any) -> None:
    del name, args
    ConvTranspose.version_1(ctx, node)
    pads = node.get_attr("pads")
    if pads is None:
        # Without an ``output_shape``, tf2onnx cuts the result itself.
        if node.get_attr("output_shape") is not None:
            node.set_attr("auto_pad", "SAME_UPPER")  # the smaller half first
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
    "convolution",
    {
        "Conv2DBackpropInput": _conv_transpose,
        "Conv3D": _conv_3d,
        "Conv3DBackpropInputV2": _conv_transpose,
    },
)
