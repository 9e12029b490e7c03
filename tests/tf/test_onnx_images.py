"""Images, complex numbers and Einsum in ONNX."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tests.tf.onnx_rewrites import FLOATS, IMAGE, SHIFTED, SIGNAL, SQUARE, check_rewrite

pytestmark = [pytest.mark.tf, pytest.mark.ort]

R = tf.raw_ops

CASES = {
    "images hsv": (
        tf.image.rgb_to_hsv,
        (IMAGE,),
        {
            "Add": 3,
            "Div": 2,
            "Equal": 2,
            "Greater": 2,
            "Less": 1,
            "Max": 2,
            "Min": 2,
            "Mul": 4,
            "Sub": 4,
            "Where": 7,
        },
    ),
    "images rgb": (
        tf.image.hsv_to_rgb,
        (IMAGE,),
        {"Abs": 3, "Add": 3, "Max": 3, "Min": 3, "Mul": 7, "Sub": 7},
    ),
    "images saturation": (
        lambda x: tf.image.adjust_saturation(x, 0.5),
        (IMAGE,),
        {
            "Abs": 3,
            "Add": 6,
            "Div": 2,
            "Equal": 2,
            "Greater": 2,
            "Less": 1,
            "Max": 6,
            "Min": 6,
            "Mul": 12,
            "Sub": 11,
            "Where": 7,
        },
    ),
    "images nearest": (lambda x: tf.image.resize(x, [4, 11], "nearest"), (IMAGE,), {"Gather": 2}),
    "images nearest by a whole number": (
        lambda x: R.ResizeNearestNeighbor(images=x, size=[12, 14]),
        (IMAGE,),
        {"Resize": 1},
    ),
    "images bilinear": (lambda x: tf.image.resize(x, [4, 11]), (IMAGE,), {"Resize": 1}),
    "images bicubic": (lambda x: tf.image.resize(x, [4, 11], "bicubic"), (IMAGE,), {"MatMul": 2}),
    "images area": (lambda x: tf.image.resize(x, [4, 3], "area"), (IMAGE,), {"MatMul": 2}),
    "images lanczos": (lambda x: tf.image.resize(x, [4, 11], "lanczos5"), (IMAGE,), {"MatMul": 2}),
    "images antialias": (
        lambda x: tf.image.resize(x, [4, 3], antialias=True),
        (IMAGE,),
        {"MatMul": 2},
    ),
    "images patches": (
        lambda x: tf.image.extract_patches(x, [1, 3, 2, 1], [1, 2, 1, 1], [1, 1, 2, 1], "SAME"),
        (IMAGE,),
        {"Gather": 2, "Pad": 1},
    ),
    "images crop nearest": (
        lambda x: tf.image.crop_and_resize(x, [[0.1, 0.2, 0.9, 1.2]], [0], [3, 4], "nearest"),
        (IMAGE,),
        {"Gather": 1, "Where": 1},
    ),
    "images crop bilinear": (
        lambda x: tf.image.crop_and_resize(x, [[0.1, 0.2, 0.9, 0.8]], [0], [3, 4]),
        (IMAGE,),
        {"Add": 2, "Loop": 1, "Resize": 1},
    ),
    "complex rfft": (
        lambda x: tf.abs(tf.signal.rfft(x)),
        (SIGNAL,),
        {"Add": 1, "MatMul": 2, "Mul": 2, "Sqrt": 1},
    ),
    "complex rfft cut": (lambda x: tf.math.real(tf.signal.rfft(x, [15])), (SIGNAL,), {"MatMul": 1}),
    "complex irfft": (
        lambda x: tf.signal.irfft(tf.signal.rfft(x) * 0.5),
        (SIGNAL,),
        {"Add": 1, "MatMul": 4, "Mul": 4, "Sub": 2},
    ),
    "complex fft": (
        lambda x: tf.math.imag(tf.signal.fft(tf.complex(x, 1.0 - x))),
        (SIGNAL,),
        {"MatMul": 2, "Sub": 2},
    ),
    "complex fft2d": (
        lambda x: tf.abs(tf.signal.fft2d(tf.cast(x, tf.complex64))),
        (SQUARE,),
        {"Add": 3, "MatMul": 8, "Mul": 2, "Sqrt": 1, "Sub": 2},
    ),
    "complex stft": (
        lambda x: tf.abs(tf.signal.stft(x, 8, 4)),
        (SIGNAL,),
        {
            "Add": 3,
            "Div": 2,
            "Gather": 1,
            "MatMul": 2,
            "Max": 1,
            "Mod": 2,
            "Mul": 4,
            "Sqrt": 1,
            "Sub": 3,
        },
    ),
    "complex angle": (
        lambda x: tf.math.angle(tf.complex(x, 1.0 - x)),
        (FLOATS,),
        {"Add": 3, "Atan": 1, "Div": 1, "Mul": 6, "Sign": 2, "Sub": 4},
    ),
    "complex quotient": (
        lambda x, y: tf.math.real(tf.complex(x, y) / tf.complex(y, x + 9.0)),
        (FLOATS, SHIFTED),
        {"Add": 2, "Div": 1, "Mul": 4, "Neg": 1, "Sub": 1},
    ),
    "einsum ellipsis": (
        lambda x: tf.einsum("...x,xy->...y", x, SQUARE[0]),
        (SQUARE,),
        {"MatMul": 1},
    ),
    "einsum ellipsis of one term": (
        lambda x: tf.einsum("ab...,bc->ac...", x, SQUARE[0]),
        (SQUARE,),
        {"Gather": 4, "Gemm": 1},
    ),
    "einsum diagonal": (lambda x: tf.einsum("bii->bi", x), (SQUARE,), {"ReduceSum": 1, "Where": 1}),
    "einsum to a scalar": (lambda x: tf.einsum("bij->", x), (SQUARE,), {"ReduceSum": 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_nodes_and_numbers(name):
    check_rewrite(CASES[name])
