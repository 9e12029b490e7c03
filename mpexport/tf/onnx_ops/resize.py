"""Bilinear resizing to exactly the size asked for, and a refusal of what has no counterpart.

ONNX takes a scale and rounds ``size * scale`` down. The scale 11/7 as float32 is a little too
small, and tf2onnx's file gives ten columns of eleven.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto
from tf2onnx import constants, utils
from tf2onnx.onnx_opset.nn import Resize

from mpexport.errors import ConversionError
from mpexport.tf.onnx_ops import OpHandlers


def exact_scale(old: int, new: int) -> np.float32:
    """The float32 nearest to ``new / old`` for which ``floor(old * scale)`` is ``new``.

    Shape inference takes the product in double, ONNX Runtime in single precision.
    """
    scale = np.float32(new / old)
    while old * float(scale) < new:
        scale = np.nextafter(scale, np.float32(np.inf))
    return scale


def _bilinear(ctx: Any, node: Any, name: str, args: Any) -> None:
    del args
    shape = ctx.get_shape(node.input[0])
    if ctx.get_dtype(node.input[0]) != TensorProto.FLOAT:
        kind = {"attr": {"to": TensorProto.FLOAT}, "dtypes": [TensorProto.FLOAT]}
        cast = ctx.make_node("Cast", [node.input[0]], shapes=[shape], **kind)
        ctx.replace_input(node, node.input[0], cast.output[0], 0)
    if not shape or -1 in shape[1:3] or not node.inputs[1].is_const():
        Resize.version_11(ctx, node)
        return
    source, output = node.input[0], node.output[0]
    new = node.inputs[1].get_tensor_value()
    place = "asymmetric"
    if node.get_attr_value("align_corners"):
        place = "align_corners"
    elif node.get_attr_value("half_pixel_centers"):
        place = "half_pixel"
    last = {"shapes": [ctx.get_shape(output)], "dtypes": [ctx.get_dtype(output)]}
    ctx.remove_node(name)
    sizes = [exact_scale(a, b) for a, b in zip(shape[1:3], new)]
    scales = np.array([1, 1, *sizes], np.float32)
    roi = ctx.make_const(utils.make_name("roi"), np.array([], np.float32)).output[0]
    factors = ctx.make_const(utils.make_name("scales"), scales, raw=False).output[0]
    first = ctx.make_node("Transpose", [source], {"perm": constants.NHWC_TO_NCHW}).output[0]
    attrs = {
        "mode": "linear",
        "nearest_mode": "floor",
        "coordinate_transformation_mode": place,
        "exclude_outside": False,
    }
    resized = ctx.make_node("Resize", [first, roi, factors], attr=attrs).output[0]
    perm = {"perm": constants.NCHW_TO_NHWC}
    ctx.make_node("Transpose", [resized], perm, name=name, outputs=[output], **last)


def _refused(ctx: Any, node: Any, name: str, args: Any) -> None:
    del ctx, args
    raise ConversionError(
        f"{node.type} can be written for sizes known in advance only",
        hint="fix the height and width of the input (--input-shape), or use savedmodel",
        where=name,
        details={"ops": [node.type]},
    )


HANDLERS = OpHandlers(
    "resize",
    {
        "ResizeArea": _refused,
        "ResizeBicubic": _refused,
        "ResizeBilinear": _bilinear,
        "ScaleAndTranslate": _refused,
    },
)
