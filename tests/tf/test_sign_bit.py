"""The sign of a number without its bits: the same for every kind of number, in every runtime."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.tf.onnx_support import convert_and_check
from tests.tf.support import annotated, apply_and_check, ops
from tests.tf.support import run as run_program
from tests.tf.tflite_support import converted, half_model, run_file

pytestmark = [pytest.mark.tf, pytest.mark.ort, pytest.mark.litert]

MASK = tf.int32.min
NUMBERS = np.float32([[0.0, -0.0, 1.5, -1.5, np.inf, -np.inf]])


def sign_bit(x):
    return tf.bitwise.bitwise_and(tf.bitcast(tf.cast(x, tf.float32), tf.int32), MASK) < 0


def test_every_kind_of_number_keeps_its_sign():
    program = annotated(sign_bit)
    changed, changes = apply_and_check("lower_sign_bit", program)
    assert [c.kind for c in changes] == ["bitcast-lowered", "bitwiseand-lowered"]
    assert not {"Bitcast", "BitwiseAnd"} & set(ops(changed))
    found = run_program(changed, "f", {"x": NUMBERS})["y"]
    assert found.tolist() == np.signbit(NUMBERS).tolist()
    assert found.tolist() == run_program(program, "f", {"x": NUMBERS})["y"].tolist()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.bitwise.bitwise_and(tf.bitcast(tf.cast(x, tf.float32), tf.int32), 0x7FFFFFFF),
        lambda x: tf.bitcast(tf.cast(x, tf.float32), tf.int32),
    ],
)
def test_other_bits_stay(function):
    program = annotated(function)
    _, changes = apply_and_check("lower_sign_bit", program)
    assert changes == []


def test_argmax_of_keras_in_tflite(tmp_path):
    model = half_model(tmp_path / "m", lambda x: keras.ops.argmax(x, -1), (None, 6))
    numbers = np.float32([[1, 3, 2, 3, -1, 0], [-0.0, 0.0, -1, -0.0, 0.0, -2]])
    found = run_file(converted(model).content, {"x": numbers})["y"]
    assert found.tolist() == [1, 1]


def test_argmax_of_keras_in_onnx():
    numbers = np.float32([[1, 3, 2, 3, -1, 0], [-0.0, 0.0, -1, -0.0, 0.0, -2], [5, 4, 3, 2, 1, 0]])
    nodes = convert_and_check(lambda x: keras.ops.argmax(x, -1), numbers)
    assert nodes["ArgMax"] == 1
