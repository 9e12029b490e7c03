"""What ONNX places, counts, picks and chooses differently, and segments, which it lacks."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tests.tf.onnx_rewrites import FLOATS, IMAGE, SIGNAL, SQUARE, WHOLE, check_rewrite

pytestmark = [pytest.mark.tf, pytest.mark.ort]

R = tf.raw_ops


def _rows(x):
    """Segment ids of as many rows as there are."""
    return tf.constant([0, 0, 2])[: tf.shape(x)[0]]


_LOG_SUM_EXP = {
    "Add": 1,
    "Exp": 1,
    "Log": 1,
    "Max": 1,
    "ReduceMax": 1,
    "ReduceSum": 1,
    "Sub": 1,
    "Where": 1,
}

CASES = {
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
        _LOG_SUM_EXP,
    ),
    "selection cumulative_logsumexp of nothing at first": (
        lambda x: tf.math.cumulative_logsumexp(x, 1, exclusive=True),
        (FLOATS,),
        _LOG_SUM_EXP,
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
    "branches constant": (
        lambda x: tf.image.rot90(x, 3),
        (IMAGE,),
        {"Gather": 2, "ReverseSequence": 1},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_nodes_and_numbers(name):
    check_rewrite(CASES[name])
