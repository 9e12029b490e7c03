"""What ONNX lacks, or tf2onnx writes wrongly: nodes of each rewrite, and its numbers in float64.

Each case is one op, with all nodes of its file but constants and those that only carry tensors.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.tf.onnx_support import convert_and_check

pytestmark = [pytest.mark.tf, pytest.mark.ort]

R = tf.raw_ops
FLOATS = np.float32(
    [
        [-3.5, -1.25, -0.3, 0.0, 0.2, 0.45],
        [0.55, 1.0, 1.75, 2.5, 3.0, 5.25],
        [-0.5, 0.5, 1.5, -1.5, -2.5, 4.5],
    ]
)
SHIFTED = np.roll(FLOATS, 2, 1) + np.float32(0.3)
POSITIVE = np.abs(FLOATS) + np.float32(0.125)
BELOW_ONE = FLOATS / np.float32(6) + np.float32(0.06)
SMALL = FLOATS * np.float32(1e-4)
WHOLE = np.int32([[-7, 5, -3, 0, 2, 9], [4, -4, 1, 8, -6, 3], [0, 0, 7, 7, -1, 2]])
DIVISORS = np.int32([[2, -3, 2, 4, -5, 3], [3, 3, -2, 5, 4, -1], [1, 2, -3, 4, 5, -6]])
_RNG = np.random.default_rng(0)
IMAGE = _RNG.random((3, 6, 7, 3), np.float32)
SQUARE = _RNG.standard_normal((3, 4, 4)).astype(np.float32)
SIGNAL = _RNG.standard_normal((3, 20)).astype(np.float32)
# Change sizes, shapes and types.
CARRIERS = {
    *("Cast", "Concat", "ConstantOfShape", "Expand", "Identity", "Range", "Reshape", "Shape"),
    *("Size", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
}


def _rows(x):
    """Segment ids of as many rows as there are."""
    return tf.constant([0, 0, 2])[: tf.shape(x)[0]]


CASES = {
    "math expm1": (tf.math.expm1, (SMALL,), {"Add": 1, "Exp": 1, "Mul": 2, "Tanh": 1}),
    "math log1p": (
        tf.math.log1p,
        (SMALL,),
        {"Abs": 1, "Add": 6, "Div": 1, "Less": 1, "Log": 1, "Mul": 6, "Where": 1},
    ),
    "math log1p far": (
        tf.math.log1p,
        (BELOW_ONE * 9 + 9,),
        {"Abs": 1, "Add": 6, "Div": 1, "Less": 1, "Log": 1, "Mul": 6, "Where": 1},
    ),
    "math erfc": (
        tf.math.erfc,
        (FLOATS,),
        {
            "Abs": 1,
            "Add": 17,
            "Div": 1,
            "Exp": 1,
            "Less": 2,
            "Min": 1,
            "Mul": 21,
            "Sub": 3,
            "Where": 2,
        },
    ),
    "math erfinv": (
        tf.math.erfinv,
        (BELOW_ONE,),
        {
            "Add": 27,
            "Less": 2,
            "Log": 1,
            "Max": 1,
            "Min": 2,
            "Mul": 29,
            "Neg": 1,
            "Sqrt": 1,
            "Sub": 3,
            "Where": 2,
        },
    ),
    "math ndtri": (
        tf.math.ndtri,
        (POSITIVE / 6,),
        {
            "Add": 28,
            "Less": 2,
            "Log": 2,
            "Max": 1,
            "Min": 2,
            "Mul": 30,
            "Neg": 1,
            "Sqrt": 1,
            "Sub": 4,
            "Where": 2,
        },
    ),
    "math lgamma": (
        tf.math.lgamma,
        (FLOATS + np.float32(0.06),),
        {
            "Abs": 1,
            "Add": 13,
            "And": 1,
            "Div": 2,
            "Equal": 1,
            "Greater": 1,
            "Less": 4,
            "Log": 3,
            "Mod": 1,
            "Mul": 12,
            "Neg": 1,
            "Not": 1,
            "Round": 1,
            "Sin": 1,
            "Sub": 7,
            "Where": 7,
            "Xor": 1,
        },
    ),
    "math digamma": (
        tf.math.digamma,
        (FLOATS + np.float32(0.06),),
        {
            "Add": 17,
            "And": 1,
            "Cos": 1,
            "Div": 9,
            "Equal": 1,
            "Greater": 1,
            "Less": 4,
            "Log": 1,
            "Mod": 1,
            "Mul": 7,
            "Neg": 2,
            "Not": 1,
            "Round": 1,
            "Sin": 1,
            "Sub": 6,
            "Where": 8,
            "Xor": 1,
        },
    ),
    "math xlogy": (
        lambda x: tf.math.xlogy(tf.nn.relu(x), tf.nn.relu(x)),
        (FLOATS,),
        {"Equal": 1, "Log": 1, "Mul": 1, "Relu": 1, "Where": 1},
    ),
    "math xlog1py": (
        lambda x: tf.math.xlog1py(tf.nn.relu(x), 0.1 * x),
        (FLOATS,),
        {
            "Abs": 1,
            "Add": 6,
            "Div": 1,
            "Equal": 1,
            "Less": 1,
            "Log": 1,
            "Mul": 8,
            "Relu": 1,
            "Where": 2,
        },
    ),
    "math xdivy": (
        lambda x, y: tf.math.xdivy(tf.nn.relu(x), tf.nn.relu(y)),
        (FLOATS, SHIFTED),
        {"Div": 1, "Equal": 1, "Relu": 2, "Where": 1},
    ),
    "math multiply_no_nan": (
        lambda x: tf.math.multiply_no_nan(tf.math.log(x), tf.nn.relu(x)),
        (FLOATS,),
        {"Equal": 1, "Log": 1, "Mul": 1, "Relu": 1, "Where": 1},
    ),
    "math divide_no_nan": (
        lambda x, y: tf.math.divide_no_nan(x, tf.nn.relu(y)),
        (FLOATS, SHIFTED),
        {"Div": 1, "Equal": 1, "Relu": 1, "Where": 1},
    ),
    "math approximately equal": (
        lambda x, y: R.ApproximateEqual(x=x, y=y, tolerance=0.5),
        (FLOATS, SHIFTED),
        {"Abs": 1, "Less": 1, "Sub": 1},
    ),
    "math l2_loss": (tf.nn.l2_loss, (FLOATS,), {"Mul": 2, "ReduceSum": 1}),
    "division floormod": (
        tf.math.floormod,
        (FLOATS, SHIFTED),
        {"Add": 1, "And": 1, "Equal": 1, "Less": 2, "Mod": 1, "Not": 1, "Where": 1, "Xor": 1},
    ),
    "division floormod of whole": (tf.math.floormod, (WHOLE, DIVISORS), {"Mod": 1}),
    "division floordiv": (tf.math.floordiv, (FLOATS, SHIFTED), {"Div": 1, "Floor": 1}),
    "division floordiv of whole": (
        tf.math.floordiv,
        (WHOLE, DIVISORS),
        {"Div": 1, "Mod": 1, "Sub": 1},
    ),
    "division truncatemod": (tf.truncatemod, (FLOATS, SHIFTED), {"Mod": 1}),
    "division truncatemod of whole": (tf.truncatemod, (WHOLE, DIVISORS), {"Mod": 1}),
    "select what is not chosen may be NaN": (
        lambda x: tf.where(x > 0, tf.math.log(x), 0.0),
        (FLOATS,),
        {"Greater": 1, "Log": 1, "Where": 1},
    ),
    "select truth values": (
        lambda x: tf.where(x > 0, x < 2, x < -1),
        (FLOATS,),
        {"Add": 1, "Greater": 1, "Less": 2, "Mul": 2, "Not": 1},
    ),
    "selection bucketize": (
        lambda x: R.Bucketize(input=x, boundaries=[-1.0, 0.0, 1.0, 2.5]),
        (FLOATS,),
        {"GreaterOrEqual": 1, "ReduceSum": 1},
    ),
    "selection bucketize of whole": (
        lambda x: R.Bucketize(input=x, boundaries=[-1.0, 0.0, 4.5]),
        (WHOLE,),
        {"GreaterOrEqual": 1, "ReduceSum": 1},
    ),
    "selection one_hot below 0 and beyond": (lambda x: tf.one_hot(x, 6), (WHOLE,), {"Equal": 1}),
    "selection one_hot along axis 1": (
        lambda x: tf.one_hot(x, 6, on_value=5, off_value=-1, axis=1),
        (WHOLE,),
        {"Equal": 1, "Where": 1},
    ),
    "selection diag": (
        lambda x: tf.linalg.diag(x, k=1),
        (FLOATS,),
        {"Add": 2, "Equal": 1, "Pad": 1, "Sub": 2, "Where": 1},
    ),
    "selection diag_part": (
        lambda x: tf.linalg.diag_part(x, k=1),
        (SQUARE,),
        {
            "Add": 2,
            "And": 1,
            "Equal": 2,
            "Less": 1,
            "Max": 1,
            "Min": 1,
            "ReduceSum": 1,
            "Sub": 1,
            "Where": 2,
        },
    ),
    "selection set_diag": (
        lambda x: tf.linalg.set_diag(x, x[:, 0]),
        (SQUARE,),
        {"Equal": 1, "Pad": 1, "Sub": 1, "Where": 1},
    ),
    "selection band_part": (
        lambda x: tf.linalg.band_part(x, 1, 0),
        (SQUARE,),
        {
            "And": 1,
            "CumSum": 1,
            "Div": 1,
            "Greater": 2,
            "Mod": 1,
            "Mul": 2,
            "Neg": 1,
            "Not": 2,
            "Sub": 1,
        },
    ),
    "selection tensor_diag": (lambda x: tf.linalg.tensor_diag(x[0]), (FLOATS,), {"Where": 1}),
    "selection tensor_diag_part": (
        lambda x: tf.linalg.tensor_diag_part(x[0]),
        (SQUARE,),
        {"Gather": 1},
    ),
    "selection in_top_k": (
        lambda x: tf.math.in_top_k(tf.argmax(x[:, ::-1], 1), x, 3),
        (FLOATS,),
        {
            "Add": 1,
            "And": 1,
            "ArgMax": 1,
            "Equal": 1,
            "Greater": 2,
            "Less": 1,
            "Mul": 2,
            "Not": 1,
            "ReduceSum": 3,
            "Where": 1,
        },
    ),
    "selection top_k of int64 positions": (
        lambda x: list(R.TopKV2(input=x, k=3, index_type=tf.int64)),
        (FLOATS,),
        {"TopK": 1},
    ),
    "selection approximate top_k": (
        lambda x: list(tf.math.approx_max_k(x, 2)),
        (FLOATS,),
        {"Mul": 2, "TopK": 1},
    ),
    "selection sort": (
        lambda x: [tf.sort(x), tf.argsort(x, direction="DESCENDING")],
        (FLOATS,),
        {"Neg": 2, "TopK": 2},
    ),
    "selection searchsorted": (
        lambda x: tf.searchsorted(tf.sort(x), x),
        (FLOATS,),
        {"Less": 1, "Neg": 2, "ReduceSum": 1, "TopK": 1},
    ),
    "selection searchsorted from the right": (
        lambda x: tf.searchsorted(tf.sort(x), x, "right", tf.int64),
        (FLOATS,),
        {"LessOrEqual": 1, "Neg": 2, "ReduceSum": 1, "TopK": 1},
    ),
    "selection unique": (lambda x: list(tf.unique(tf.reshape(x, [-1]))), (WHOLE,), {"Unique": 1}),
    "selection invert_permutation": (
        lambda x: tf.math.invert_permutation(tf.argsort(x[0])),
        (WHOLE,),
        {"Equal": 1, "Neg": 1, "ReduceSum": 1, "Sub": 1, "TopK": 1, "Where": 1},
    ),
    "selection unravel_index": (
        lambda x: tf.unravel_index(tf.abs(x[:, 0]), [4, 5]),
        (WHOLE,),
        {"Abs": 1, "Div": 1, "Mod": 2, "Sub": 1},
    ),
    "selection shape_n": (lambda x: tf.shape_n([x, x[0]]), (FLOATS,), {}),
    "selection histogram": (
        lambda x: tf.histogram_fixed_width(x, [-1.0, 3.0], 5),
        (FLOATS,),
        {"Floor": 1, "Gather": 1, "Max": 1, "Min": 1, "Mul": 1, "ReduceSum": 1, "Sub": 1},
    ),
    "selection bincount with weights": (
        lambda x, w: tf.math.bincount(tf.abs(x), w, 10, 10, axis=-1),
        (WHOLE, FLOATS),
        {
            "Abs": 1,
            "Add": 1,
            "Equal": 1,
            "Greater": 1,
            "Max": 1,
            "Min": 1,
            "Mul": 1,
            "ReduceMax": 1,
            "ReduceSum": 1,
            "Where": 1,
        },
    ),
    "selection squeeze of all": (lambda x: tf.squeeze(tf.reshape(x[0], [1, 6, 1])), (FLOATS,), {}),
    "selection cumprod": (
        lambda x: tf.math.cumprod(x, 1, exclusive=True),
        (FLOATS,),
        {"ReduceProd": 1, "Where": 1},
    ),
    "selection cumulative_logsumexp": (
        lambda x: tf.math.cumulative_logsumexp(x, 1, reverse=True),
        (FLOATS,),
        {
            "Add": 1,
            "Exp": 1,
            "Log": 1,
            "Max": 1,
            "ReduceMax": 1,
            "ReduceSum": 1,
            "Sub": 1,
            "Where": 1,
        },
    ),
    "selection cumulative_logsumexp of nothing at first": (
        lambda x: tf.math.cumulative_logsumexp(x, 1, exclusive=True),
        (FLOATS,),
        {
            "Add": 1,
            "Exp": 1,
            "Log": 1,
            "Max": 1,
            "ReduceMax": 1,
            "ReduceSum": 1,
            "Sub": 1,
            "Where": 1,
        },
    ),
    "selection reverse_sequence": (
        lambda x: tf.reverse_sequence(x, tf.constant([3, 20, 1])[: tf.shape(x)[0]], 1, 0),
        (SIGNAL,),
        {"ReverseSequence": 1},
    ),
    "selection scatter_nd": (
        lambda x: tf.scatter_nd([[1], [3], [1]], [1.0, 2.0, 4.0], [6]) + x,
        (FLOATS,),
        {"Add": 1},
    ),
    "selection gather_nd by batch": (
        lambda x, i: tf.gather_nd(x, tf.math.floormod(i, 6)[..., None], batch_dims=1),
        (FLOATS, WHOLE),
        {"GatherND": 1, "Mod": 1, "Mul": 1, "ReduceProd": 1, "Tile": 1},
    ),
    "bits and": (tf.bitwise.bitwise_and, (WHOLE, DIVISORS), {"BitwiseAnd": 1}),
    "bits xor": (tf.bitwise.bitwise_xor, (WHOLE, DIVISORS), {"BitwiseXor": 1}),
    "bits shift": (
        lambda x: tf.bitwise.right_shift(tf.abs(x), 1),
        (WHOLE,),
        {"Abs": 1, "BitShift": 1},
    ),
    "bits invert": (tf.bitwise.invert, (WHOLE,), {"BitwiseNot": 1}),
    "segments sum": (
        lambda x: tf.math.segment_sum(x, _rows(x)),
        (FLOATS,),
        {"Add": 2, "Less": 1, "ReduceMax": 1, "ScatterND": 1, "Where": 1},
    ),
    "segments mean": (
        lambda x: tf.math.segment_mean(x, _rows(x)),
        (FLOATS,),
        {"Add": 2, "Div": 1, "Less": 1, "Max": 1, "ReduceMax": 1, "ScatterND": 2, "Where": 1},
    ),
    "segments max": (
        lambda x: tf.math.segment_max(x, _rows(x)),
        (FLOATS,),
        {"Add": 2, "Greater": 1, "Less": 1, "ReduceMax": 1, "ScatterND": 2, "Where": 2},
    ),
    "segments prod": (
        lambda x: tf.math.unsorted_segment_prod(x, _rows(x), 4),
        (FLOATS,),
        {"Equal": 1, "ReduceProd": 1, "Where": 1},
    ),
    "segments unsorted with ids below 0": (
        lambda x: tf.math.unsorted_segment_sum(x, 1 - _rows(x), 4),
        (FLOATS,),
        {"Less": 1, "ScatterND": 1, "Sub": 1, "Where": 1},
    ),
    "segments unsorted min": (
        lambda x: tf.math.unsorted_segment_min(x, _rows(x), 3),
        (WHOLE,),
        {"Less": 1, "ScatterND": 1, "Where": 1},
    ),
    "segments sparse": (
        lambda x: tf.sparse.segment_sqrt_n(x, [0, 0, 0], [0, 0, 1]),
        (FLOATS,),
        {"Gather": 1, "Mul": 1, "ScatterND": 1},
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
    "branches constant": (
        lambda x: tf.image.rot90(x, 3),
        (IMAGE,),
        {"Gather": 2, "ReverseSequence": 1},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_nodes_and_numbers(name):
    function, arrays, expected = CASES[name]
    found = convert_and_check(function, *arrays)
    assert {op: n for op, n in found.items() if op not in CARRIERS} == expected
