"""Widening constants: every bit pattern, every way a TensorProto stores values."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow.python.framework import tensor_util

from mpexport.tf.retype import convert_tensor, stored_values
from tests.tf.support import BF16, DOUBLE, FLOAT, HALF

pytestmark = pytest.mark.tf

PATTERNS = np.arange(2**16, dtype=np.uint16)
TYPES = [(HALF, np.float16), (BF16, ml_dtypes.bfloat16)]


def raw(dtype: int, bits: np.ndarray, shape: tuple[int, ...]) -> tensor_pb2.TensorProto:
    tensor = tensor_pb2.TensorProto(dtype=dtype, tensor_content=bits.tobytes())
    tensor.tensor_shape.CopyFrom(tf.TensorShape(shape).as_proto())
    return tensor


def listed(dtype: int, bits: list[int], shape: tuple[int, ...]) -> tensor_pb2.TensorProto:
    tensor = tensor_pb2.TensorProto(dtype=dtype, half_val=bits)
    tensor.tensor_shape.CopyFrom(tf.TensorShape(shape).as_proto())
    return tensor


@pytest.mark.parametrize(("dtype", "numpy"), TYPES, ids=["float16", "bfloat16"])
@pytest.mark.parametrize("target", [FLOAT, DOUBLE], ids=["float32", "float64"])
@pytest.mark.parametrize("stored", ["tensor_content", "half_val"])
def test_all_65536_values_are_kept(dtype, numpy, target, stored):
    if stored == "tensor_content":
        tensor = raw(dtype, PATTERNS, (256, 256))
    else:
        tensor = listed(dtype, PATTERNS.tolist(), (256, 256))
    convert_tensor(tensor, target)
    got = tensor_util.MakeNdarray(tensor)
    assert got.shape == (256, 256)
    assert got.dtype == tf.as_dtype(target).as_numpy_dtype
    with np.errstate(invalid="ignore"):  # signaling NaNs
        expected = PATTERNS.view(numpy).astype(got.dtype)
    nan = np.isnan(expected)
    assert 0 < nan.sum() < 2100
    np.testing.assert_array_equal(np.isnan(got.ravel()), nan)
    # Bits, so that -0.0 is told from 0.0.
    bits = f"u{got.dtype.itemsize}"
    np.testing.assert_array_equal(got.ravel()[~nan].view(bits), expected[~nan].view(bits))


def test_float32_is_widened_exactly():
    values = np.float32([0.1, -0.0, 1e-45, 3.4e38, np.inf])
    for tensor in (
        tf.make_tensor_proto(values),
        tensor_pb2.TensorProto(
            dtype=FLOAT, float_val=values, tensor_shape=tf.TensorShape(5).as_proto()
        ),
    ):
        np.testing.assert_array_equal(stored_values(tensor), values)
        convert_tensor(tensor, DOUBLE)
        np.testing.assert_array_equal(tensor_util.MakeNdarray(tensor), values.astype(np.float64))


@pytest.mark.parametrize("dtype", [HALF, BF16])
def test_a_splat_stays_one_value(dtype):
    one = {HALF: 0x3C00, BF16: 0x3F80}[dtype]
    tensor = listed(dtype, [one], (1000, 1000, 1000))
    assert stored_values(tensor).tolist() == [1.0]
    convert_tensor(tensor, FLOAT)
    assert list(tensor.float_val) == [1.0]
    assert not tensor.half_val
    assert [d.size for d in tensor.tensor_shape.dim] == [1000] * 3
    assert tensor.ByteSize() < 50


def test_a_tail_that_repeats_stays_cut_off():
    tensor = listed(HALF, [0x3C00, 0x4000], (5,))
    convert_tensor(tensor, FLOAT)
    assert list(tensor.float_val) == [1.0, 2.0]
    assert tensor_util.MakeNdarray(tensor).tolist() == [1, 2, 2, 2, 2]


def test_scalar_empty_and_all_zero():
    scalar = listed(HALF, [0x3C00], ())
    convert_tensor(scalar, FLOAT)
    assert tensor_util.MakeNdarray(scalar) == 1.0
    empty = raw(HALF, np.array([], np.uint16), (0, 3))
    convert_tensor(empty, FLOAT)
    assert tensor_util.MakeNdarray(empty).shape == (0, 3)
    zeros = tensor_pb2.TensorProto(dtype=HALF, tensor_shape=tf.TensorShape([4]).as_proto())
    convert_tensor(zeros, FLOAT)
    assert zeros.dtype == FLOAT
    assert tensor_util.MakeNdarray(zeros).tolist() == [0, 0, 0, 0]


def test_other_values_can_be_stored_instead():
    tensor = listed(HALF, [0xFC00], (3,))
    convert_tensor(tensor, FLOAT, np.float32([-5]))
    assert tensor_util.MakeNdarray(tensor).tolist() == [-5, -5, -5]
