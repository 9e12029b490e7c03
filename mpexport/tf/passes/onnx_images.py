"""Write image ops that ONNX lacks, or that tf2onnx writes wrongly, in gathers and arithmetic.

Given::

    y = ResizeNearestNeighbor(x, [h, w])

Result, where the new size is no multiple of the old (the rows and columns are constants)::

    y = PartitionedCall{f}(x, [h, w])          f: Gather(Gather(x, rows, 1), columns, 2)

Fires where height, width and the sizes asked for are known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from mpexport.findings import Change
from mpexport.tf.graph import Program
from mpexport.tf.lowering import Site, contains, lower, simple
from mpexport.tf.pipeline import GraphPass, PassContext

_Places = NDArray[np.int64]


def _to_hsv(x: Any) -> Any:
    red, green, blue = tf.unstack(x, 3, -1)
    value = tf.maximum(red, tf.maximum(green, blue))
    extent = value - tf.minimum(red, tf.minimum(green, blue))
    zeros, ones = tf.zeros_like(value), tf.ones_like(value)
    saturation = tf.where(value > 0, extent / tf.where(value > 0, value, ones), zeros)
    unit = 1.0 / (6.0 * tf.where(extent > 0, extent, ones))
    hue = tf.where(
        tf.equal(red, value),
        unit * (green - blue),
        tf.where(
            tf.equal(green, value),
            unit * (blue - red) + 2.0 / 6.0,
            unit * (red - green) + 4.0 / 6.0,
        ),
    )
    hue = tf.where(extent > 0, hue, zeros)
    return tf.stack([tf.where(hue < 0, hue + 1.0, hue), saturation, value], -1)


def _to_rgb(x: Any) -> Any:
    hue, saturation, value = tf.unstack(x, 3, -1)
    sixths = hue * 6.0
    parts = (
        tf.abs(sixths - 3.0) - 1.0,
        2.0 - tf.abs(sixths - 2.0),
        2.0 - tf.abs(sixths - 4.0),
    )
    shares = [tf.clip_by_value(p, 0.0, 1.0) for p in parts]
    return tf.stack([((1.0 - saturation) + saturation * s) * value for s in shares], -1)


def _saturated(x: Any, scale: Any) -> Any:
    hue, saturation, value = tf.unstack(_to_hsv(x), 3, -1)
    saturation = tf.clip_by_value(saturation * scale, 0.0, 1.0)
    return _to_rgb(tf.stack([hue, saturation, value], -1))


def _sizes(site: Site) -> list[int] | None:
    """Height, width and channels of the images when known."""
    shape = site.shape(0)
    if shape.rank != 4 or None in shape.as_list()[1:]:
        return None
    return [int(n) for n in shape.as_list()[1:]]


def nearest_places(old: int, new: int, align_corners: bool, half_pixel: bool) -> _Places:
    """Which row or column TensorFlow takes for each one of the result, in its own arithmetic."""
    line = tf.range(old, dtype=tf.float32)[None, :, None, None]
    picked = tf.raw_ops.ResizeNearestNeighbor(
        images=line, size=[new, 1], align_corners=align_corners, half_pixel_centers=half_pixel
    )
    places: _Places = picked.numpy().reshape(-1).astype(np.int64)
    return places


def _nearest(site: Site) -> Any:
    sizes, new = _sizes(site), site.const(1)
    if sizes is None or new is None:
        return None
    align, half = site.attr("align_corners"), site.attr("half_pixel_centers")
    with tf.init_scope():
        places = [nearest_places(a, int(b), align, half) for a, b in zip(sizes, new)]
    if all(
        b % a == 0 and (p == np.arange(b) // (b // a)).all()
        for a, b, p in zip(sizes, new.tolist(), places)
    ):
        if not (align or half):
            return None  # ONNX's Resize by a whole number

        def function(x: Any, size: Any) -> Any:
            return tf.raw_ops.ResizeNearestNeighbor(images=x, size=new)

        return function
    return lambda x, size: tf.gather(tf.gather(x, places[0], axis=1), places[1], axis=2)


def _line(size: int, kernel: int, stride: int, rate: int, same: bool) -> tuple[_Places, list[int]]:
    """Along one axis: places of all taps in the padded image, and the padding."""
    reach = (kernel - 1) * rate + 1
    count = -(-size // stride) if same else (size - reach) // stride + 1
    missing = max((count - 1) * stride + reach - size, 0) if same else 0
    places = np.arange(count)[:, None] * stride + np.arange(kernel)[None, :] * rate
    return places.reshape(-1), [missing // 2, missing - missing // 2]


def _patches(site: Site) -> Any:
    sizes = _sizes(site)
    if sizes is None:
        return None
    kernel, strides, rates = (site.attr(n)[1:3] for n in ("ksizes", "strides", "rates"))
    same = site.attr("padding") == "SAME"
    lines = [_line(*a, same) for a in zip(sizes, kernel, strides, rates)]
    (rows, above), (columns, left) = lines
    down, across = len(rows) // kernel[0], len(columns) // kernel[1]

    def function(x: Any) -> Any:
        if any(above + left):
            x = tf.pad(x, [[0, 0], above, left, [0, 0]])
        taps = tf.gather(tf.gather(x, rows, axis=1), columns, axis=2)
        split = tf.reshape(taps, [-1, down, kernel[0], across, kernel[1], sizes[2]])
        ordered = tf.transpose(split, [0, 1, 3, 2, 4, 5])
        return tf.reshape(ordered, [-1, down, across, kernel[0] * kernel[1] * sizes[2]])

    return function


def _crop_nearest(site: Site) -> Any:
    sizes, crop = _sizes(site), site.const(3)
    if sizes is None or crop is None or site.attr("method") != "nearest":
        return None
    fill = site.attr("extrapolation_value")
    height, width, channels = sizes

    def places(low: Any, high: Any, size: int, count: int) -> tuple[Any, Any]:
        last = float(size - 1)
        if count > 1:
            step = (high - low) * last / float(count - 1)
            place = low[:, None] * last + tf.range(count, dtype=tf.float32)[None] * step[:, None]
        else:
            place = 0.5 * (low + high)[:, None] * last
        inside = (place >= 0.0) & (place <= last)
        # Halves go up; what is outside is covered.
        index = tf.cast(tf.floor(tf.clip_by_value(place, 0.0, last) + 0.5), tf.int32)
        return index, inside

    def function(x: Any, boxes: Any, images: Any, size: Any) -> Any:
        y1, x1, y2, x2 = tf.unstack(boxes, 4, 1)
        row, row_inside = places(y1, y2, height, int(crop[0]))
        column, column_inside = places(x1, x2, width, int(crop[1]))
        index = (images[:, None, None] * height + row[:, :, None]) * width + column[:, None, :]
        picked = tf.gather(tf.reshape(tf.cast(x, tf.float32), [-1, channels]), index)
        inside = (row_inside[:, :, None] & column_inside[:, None, :])[..., None]
        return tf.where(inside, picked, fill)

    return function


_TABLE = {
    "AdjustSaturation": simple(_saturated),
    "CropAndResize": _crop_nearest,
    "ExtractImagePatches": _patches,
    "HSVToRGB": simple(_to_rgb),
    "RGBToHSV": simple(_to_hsv),
    "ResizeNearestNeighbor": _nearest,
}


def _apply(program: Program, context: PassContext) -> list[Change]:
    return lower(program, PASS.name, _TABLE)


PASS = GraphPass(name="onnx_images", stage="format", apply=_apply, is_needed=contains(_TABLE))
