"""Write the resizings that TFLite lacks as products with a matrix of weights per axis.

Given::

    y = ResizeBicubic{half_pixel_centers: true}(x, [h, w])

Result::

    y = PartitionedCall{f}(x, [h, w])          f: rows[h, H] · x · columns[w, W]ᵀ

ResizeBicubic, ResizeArea and ScaleAndTranslate (Lanczos, Gaussian and other kernels, antialiasing)
compute each output as a weighted sum over rows and columns. Weights of fixed sizes are constants.

Fires where height, width and channels of the input and the output's size are known.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from mpexport.findings import Change
from mpexport.tf.graph import Program
from mpexport.tf.lowering import Site, contains, lower
from mpexport.tf.pipeline import GraphPass, PassContext

_Weights = NDArray[np.float32]
# TensorFlow looks the cubic's weights up in a table of this many steps between two pixels.
_CUBIC_STEPS = 1024


def _cubic(t: float, a: float) -> float:
    """Keys' cubic convolution kernel."""
    t = abs(t)
    if t <= 1:
        return ((a + 2) * t - (a + 3)) * t * t + 1
    return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a if t < 2 else 0.0


def _scale(old: int, new: int, align_corners: bool) -> np.float32:
    if align_corners and new > 1:
        return np.float32((old - 1) / np.float32(new - 1))
    return np.float32(old / np.float32(new))


def bicubic_weights(old: int, new: int, align_corners: bool, half_pixel: bool) -> _Weights:
    """Weights of ResizeBicubic along one axis, ``[new, old]``."""
    weights = np.zeros((new, old))
    scale = _scale(old, new, align_corners)
    for i in range(new):
        place = (np.float32(i) + np.float32(0.5)) * scale - np.float32(0.5)
        place = place if half_pixel else np.float32(i) * scale
        first = math.floor(place)
        step = int(np.rint((place - np.float32(first)) * _CUBIC_STEPS)) / _CUBIC_STEPS
        taps = [(first + k, _cubic(k - step, -0.5 if half_pixel else -0.75)) for k in range(-1, 3)]
        if half_pixel:  # what is outside doesn't count; elsewhere the edge is repeated
            taps = [(j, w) for j, w in taps if 0 <= j < old]
            total = sum(w for _, w in taps)
            taps = [(j, w / total) for j, w in taps]
        for j, w in taps:
            weights[i, min(max(j, 0), old - 1)] += w
    return weights.astype(np.float32)


def area_weights(old: int, new: int, align_corners: bool) -> _Weights:
    """Weights of ResizeArea along one axis: the share of each pixel in an output's stretch."""
    weights = np.zeros((new, old))
    scale = _scale(old, new, align_corners)
    for i in range(new):
        start, end = np.float32(i) * scale, np.float32(i + 1) * scale
        for j in range(math.floor(start), math.ceil(end)):
            share = min(j + 1.0, float(end)) - max(float(j), float(start))
            weights[i, min(max(j, 0), old - 1)] += share / scale
    return weights.astype(np.float32)


def _sinc(x: float) -> float:
    return math.sin(math.pi * x) / (math.pi * x) if x else 1.0


def _lanczos(radius: float) -> tuple[Any, float]:
    return (lambda x: _sinc(x) * _sinc(x / radius) if abs(x) <= radius else 0.0), radius


def _mitchell(x: float) -> float:
    """The Mitchell-Netravali kernel with B = C = 1/3."""
    x = abs(x)
    if x >= 2:
        return 0.0
    if x >= 1:
        return (((-7 / 18) * x + 2) * x - 10 / 3) * x + 16 / 9
    return ((7 / 6) * x - 2) * x * x + 8 / 9


_KERNELS: dict[str, tuple[Any, float]] = {
    "lanczos1": _lanczos(1.0),
    "lanczos3": _lanczos(3.0),
    "lanczos5": _lanczos(5.0),
    # A radius of 1.5 with a standard deviation of a third of it.
    "gaussian": (lambda x: math.exp(-x * x / (2 * 0.5**2)) if abs(x) < 1.5 else 0.0, 1.5),
    "box": (lambda x: 1.0 if abs(x) < 0.5 else 0.5 if abs(x) == 0.5 else 0.0, 1.0),
    "triangle": (lambda x: max(0.0, 1.0 - abs(x)), 1.0),
    "keyscubic": (lambda x: _cubic(x, -0.5), 2.0),
    "mitchellcubic": (_mitchell, 2.0),
}


def kernel_weights(
    old: int, new: int, scale: float, shift: float, kernel: str, antialias: bool
) -> _Weights:
    """Weights of ScaleAndTranslate along one axis."""
    function, radius = _KERNELS[kernel]
    inverse = np.float32(1) / np.float32(scale)
    wide = max(float(inverse), 1.0) if antialias else 1.0
    weights = np.zeros((new, old))
    for i in range(new):
        place = float((np.float32(i) + np.float32(0.5)) * inverse - np.float32(shift) * inverse)
        if not 0 <= place <= old:
            continue
        low = max(math.ceil(place - radius * wide - 0.5), 0)
        high = min(math.floor(place + radius * wide - 0.5), old - 1)
        row = [function((j + 0.5 - place) / wide) for j in range(low, high + 1)]
        total = sum(row)
        if abs(total) >= 1000 * np.finfo(np.float32).tiny:
            weights[i, low : high + 1] = [w / total for w in row]
    return weights.astype(np.float32)


def _weighted(rows: _Weights, columns: _Weights) -> Any:
    """The function ``x, … → rows · x · columnsᵀ`` on ``[batch, height, width, channels]``."""
    (new_height, height), (new_width, width) = rows.shape, columns.shape

    def function(x: Any, *_: Any) -> Any:
        channels = x.shape[3]
        flat = tf.reshape(x, [-1, height, width * channels])
        tall = tf.reshape(tf.matmul(rows, flat), [-1, width, channels])
        both = tf.matmul(columns, tall)
        return tf.reshape(both, [-1, new_height, new_width, channels])

    return function


def _sizes(site: Site) -> list[int] | None:
    """``[height, width, new height, new width]`` when all is known."""
    old, new = site.shape(0), site.const(1)
    if old.rank != 4 or None in old.as_list()[1:] or new is None or site.attr("T") != 1:
        return None
    return [*old.as_list()[1:3], *new.tolist()]


def _bicubic(site: Site) -> Any:
    found = _sizes(site)
    if found is None:
        return None
    align, half = site.attr("align_corners"), site.attr("half_pixel_centers")
    rows = bicubic_weights(found[0], found[2], align, half)
    return _weighted(rows, bicubic_weights(found[1], found[3], align, half))


def _area(site: Site) -> Any:
    found = _sizes(site)
    if found is None:
        return None
    align = site.attr("align_corners")
    rows = area_weights(found[0], found[2], align)
    return _weighted(rows, area_weights(found[1], found[3], align))


def _scale_and_translate(site: Site) -> Any:
    found, scale, shift = _sizes(site), site.const(2), site.const(3)
    kernel, antialias = site.attr("kernel_type"), site.attr("antialias")
    if found is None or scale is None or shift is None or kernel not in _KERNELS:
        return None
    rows = kernel_weights(found[0], found[2], scale[0], shift[0], kernel, antialias)
    columns = kernel_weights(found[1], found[3], scale[1], shift[1], kernel, antialias)
    return _weighted(rows, columns)


_TABLE = {
    "ResizeArea": _area,
    "ResizeBicubic": _bicubic,
    "ScaleAndTranslate": _scale_and_translate,
}


def _apply(program: Program, context: PassContext) -> list[Change]:
    return lower(program, PASS.name, _TABLE)


PASS = GraphPass(name="lower_resize", stage="format", apply=_apply, is_needed=contains(_TABLE))
