"""Arithmetic and special functions that ONNX lacks, or that tf2onnx writes wrongly."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.tf.onnx_rewrites import (
    BELOW_ONE,
    DIVISORS,
    FLOATS,
    POSITIVE,
    SHIFTED,
    SMALL,
    WHOLE,
    check_rewrite,
)

pytestmark = [pytest.mark.tf, pytest.mark.ort]

R = tf.raw_ops

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
    "bits and": (tf.bitwise.bitwise_and, (WHOLE, DIVISORS), {"BitwiseAnd": 1}),
    "bits xor": (tf.bitwise.bitwise_xor, (WHOLE, DIVISORS), {"BitwiseXor": 1}),
    "bits shift": (
        lambda x: tf.bitwise.right_shift(tf.abs(x), 1),
        (WHOLE,),
        {"Abs": 1, "BitShift": 1},
    ),
    "bits invert": (tf.bitwise.invert, (WHOLE,), {"BitwiseNot": 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_nodes_and_numbers(name):
    check_rewrite(CASES[name])
