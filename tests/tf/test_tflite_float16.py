"""Float16 derived from the float32 file, against TensorFlow's own float16 quantization."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from ai_edge_litert.interpreter import Interpreter
from tensorflow.lite.python import schema_py_generated as schema

from mpexport import formats
from mpexport.tf import to_tflite
from mpexport.tf.tflite_float16 import load, pack, store_float16
from tests.tf.tflite_support import builtins, half_model, run_file

pytestmark = pytest.mark.tf

RNG = np.random.default_rng(0)


def constant(*shape: int) -> Any:
    return tf.constant(RNG.standard_normal(shape).astype(np.float32) * 0.1)


DENSE, BIAS, SQUARE = constant(8, 16), constant(16), constant(8, 8)
CONV, DEPTHWISE, TRANSPOSED = constant(3, 3, 4, 8), constant(3, 3, 8, 1), constant(3, 3, 4, 8)
TABLE, BATCHED, SLOPES, VOLUME = (
    constant(50, 8),
    constant(4, 8, 8),
    constant(8),
    constant(2, 2, 2, 3, 4),
)


def convolutions(x: Any) -> Any:
    h = tf.nn.relu(tf.nn.conv2d(x, CONV, 1, "SAME") + SLOPES)
    h = tf.nn.depthwise_conv2d(h, DEPTHWISE, [1, 1, 1, 1], "SAME")
    return tf.nn.conv2d_transpose(h, TRANSPOSED, [1, 16, 16, 4], 2, "SAME")


def loop(x: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        return i + 1, tf.nn.relu(y @ SQUARE) + 0.5

    return tf.while_loop(lambda i, y: i < 3, body, [0, x])[1]


CASES: dict[str, tuple[Callable[[Any], Any], list[int | None]]] = {
    "dense": (lambda x: tf.nn.relu(x @ DENSE + BIAS), [None, 8]),
    "convolutions": (convolutions, [1, 8, 8, 4]),
    "gather": (lambda x: tf.gather(TABLE, tf.cast(x, tf.int32)), [None, 4]),
    "batch matmul": (lambda x: tf.matmul(x, BATCHED), [4, 3, 8]),
    "prelu": (lambda x: tf.maximum(x, 0.0) + SLOPES * tf.minimum(x, 0.0), [None, 4, 8]),
    "conv3d": (lambda x: tf.nn.conv3d(x, VOLUME, [1] * 5, "SAME"), [1, 4, 4, 4, 3]),
    "shared": (lambda x: tf.nn.relu(x @ SQUARE) @ SQUARE + tf.gather(SQUARE, [1]), [None, 8]),
    "loop": (loop, [2, 8]),
    "constant output": (lambda x: {"a": x @ SQUARE, "b": SQUARE}, [2, 8]),
}


def converter_of(function: Any, shape: list[int | None]) -> Any:
    traced = tf.function(function, autograph=False)
    concrete = traced.get_concrete_function(tf.TensorSpec(shape, tf.float32, name="x"))
    return tf.lite.TFLiteConverter.from_concrete_functions([concrete], traced)


def halved_by_tensorflow(converter: Any) -> bytes:
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.target_spec.supported_types = [tf.float16]
    content: bytes = converter.convert()
    return content


def float_constants(content: bytes) -> Counter[tuple[int, tuple[int, ...], bytes]]:
    """Type, sizes and bits of the floating-point constants, whatever they are called."""
    model = load(content)
    kinds = (schema.TensorType.FLOAT32, schema.TensorType.FLOAT16)
    return Counter(
        (t.type, tuple(t.shape), bytes(model.buffers[t.buffer].data))
        for g in model.subgraphs
        for t in g.tensors
        if t.type in kinds
        and model.buffers[t.buffer].data is not None
        and len(model.buffers[t.buffer].data)
    )


def metadata(content: bytes) -> dict[bytes, bytes]:
    model = load(content)
    return {m.name: bytes(model.buffers[m.buffer].data) for m in model.metadata}


def outputs(content: bytes, shape: list[int | None]) -> list[Any]:
    interpreter = Interpreter(model_content=content)
    (given,) = interpreter.get_input_details()
    x = np.random.default_rng(1).integers(0, 9, [n or 3 for n in shape]).astype(np.float32)
    interpreter.resize_tensor_input(given["index"], x.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(given["index"], x)
    interpreter.invoke()
    return [interpreter.get_tensor(o["index"]) for o in interpreter.get_output_details()]


@pytest.mark.parametrize("case", CASES)
def test_same_bits_same_ops_and_same_outputs_as_tensorflow(case):
    function, shape = CASES[case]
    theirs = halved_by_tensorflow(converter_of(function, shape))
    ours = bytes(store_float16(converter_of(function, shape).convert()))
    assert float_constants(ours) == float_constants(theirs)
    assert builtins(ours) == builtins(theirs)
    told = (b"min_runtime_version", b"reduced_precision_support")
    assert {n: metadata(ours)[n] for n in told} == {n: metadata(theirs)[n] for n in told}
    for a, b in zip(outputs(ours, shape), outputs(theirs, shape), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", ["keras", "tf_keras"])
def test_recurrent_layers_give_the_same_outputs(kind, tmp_path):
    shape: list[int | None] = [1, 4, 3]
    if kind == "keras":
        layer = keras.layers.LSTM(5)
        layer.build((1, 4, 3))
        converter = converter_of(layer, shape)
    else:
        inputs = tf_keras.Input((4, 3), batch_size=1)
        tf.saved_model.save(tf_keras.Model(inputs, tf_keras.layers.LSTM(5)(inputs)), str(tmp_path))
        converter = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path))
    float32 = converter.convert()
    ours, theirs = bytes(store_float16(float32)), halved_by_tensorflow(converter)
    assert builtins(ours)["DEQUANTIZE"] > 0
    assert (builtins(ours)["UNIDIRECTIONAL_SEQUENCE_LSTM"] > 0) == (kind == "tf_keras")
    np.testing.assert_array_equal(outputs(ours, shape)[0], outputs(theirs, shape)[0])


def test_the_form_of_the_file():
    float32 = converter_of(*CASES["loop"]).convert()
    ours = bytes(store_float16(float32))
    assert ours == bytes(store_float16(float32)) == bytes(store_float16(bytearray(float32)))
    before, after = load(float32), load(ours)
    assert [s.signatureKey for s in after.signatureDefs] == [
        s.signatureKey for s in before.signatureDefs
    ]
    assert after.description == before.description
    flat = schema.Model.GetRootAs(ours, 0)
    start = np.frombuffer(ours, np.uint8).__array_interface__["data"][0]
    for i in range(flat.BuffersLength()):
        if flat.Buffers(i).DataLength():
            place = flat.Buffers(i).DataAsNumpy().__array_interface__["data"][0]
            assert (place - start) % 16 == 0, "runtimes read buffers where they lie"
    tensors = [t.buffer for g in after.subgraphs for t in g.tensors]
    used = {*tensors, *(m.buffer for m in after.metadata), 0}
    empty = {i for i, b in enumerate(after.buffers) if b.data is None or not len(b.data)}
    assert set(range(len(after.buffers))) == used | empty, "no float32 content is left behind"


def test_masks_and_epsilons_stay_and_weights_behind_the_flatbuffer_are_found():
    mask = tf.constant([0.0, -1e9] * 4)
    converter = converter_of(lambda x: tf.sqrt(x @ SQUARE + mask) + 1e-7, [2, 8])
    float32 = converter.convert()
    ours = bytes(store_float16(float32))
    kinds = Counter(kind for kind, _, _ in float_constants(ours))
    assert kinds == {schema.TensorType.FLOAT16: 1, schema.TensorType.FLOAT32: 2}
    converter._experimental_use_buffer_offset = True
    apart = converter.convert()
    flat = schema.Model.GetRootAs(apart, 0)
    assert any(flat.Buffers(i).Offset() > 1 for i in range(flat.BuffersLength()))
    assert float_constants(bytes(store_float16(apart))) == float_constants(ours)


def test_a_buffer_that_tensors_share_is_stored_once():
    model = load(converter_of(lambda x: x @ SQUARE + BATCHED[0], [8, 8]).convert())
    first, *others = [
        t
        for t in model.subgraphs[0].tensors
        if t.type == schema.TensorType.FLOAT32
        and model.buffers[t.buffer].data is not None
        and len(model.buffers[t.buffer].data)
    ]
    assert others
    for tensor in others:
        tensor.buffer = first.buffer
    halved = load(bytes(store_float16(bytes(pack(model)))))
    stored = [t.buffer for t in halved.subgraphs[0].tensors if t.type == schema.TensorType.FLOAT16]
    assert len(stored) == len(others) + 1
    assert len(set(stored)) == 1
    assert len(halved.buffers[stored[0]].data) == 8 * 8 * 2


@pytest.mark.parametrize("accumulation", [False, True])
def test_the_mark_for_accumulation_is_tensorflow_s(accumulation, tmp_path):
    converter = converter_of(*CASES["dense"])
    float32 = converter.convert()
    kind = tf.float16 if accumulation else tf.float32
    converter.target_spec._experimental_supported_accumulation_type = kind
    theirs = metadata(halved_by_tensorflow(converter))
    ours = metadata(bytes(store_float16(float32, accumulation=accumulation)))
    name = b"reduced_precision_support"
    assert ours[name] == theirs[name] == (b"fp16accfp16" if accumulation else b"fp16accfp32")


@pytest.mark.parametrize("order", [("tflite", "tflite-float16"), ("tflite-float16", "tflite")])
def test_both_files_take_one_conversion(order, tmp_path, monkeypatch):
    model = half_model(tmp_path / "m", lambda x: x @ tf.cast(DENSE, tf.float16), (None, 8))
    calls = []
    convert = to_tflite.run_converter

    def counted(*args: Any) -> bytes:
        calls.append(args)
        return convert(*args)

    monkeypatch.setattr(to_tflite, "run_converter", counted)
    for name in order:
        spec, values = formats.resolve(name)
        conversion = spec.convert(model, tmp_path / name, spec.options(**values))
        assert spec.check(tmp_path / name, conversion, spec.options(**values)).violations == ()
    assert len(calls) == 1
    alone = half_model(tmp_path / "n", lambda x: x @ tf.cast(DENSE, tf.float16), (None, 8))
    for name in reversed(order):
        spec, values = formats.resolve(name)
        spec.convert(alone, tmp_path / f"{name}.2", spec.options(**values))
    x = {"x": np.ones((2, 8), np.float32)}
    for name in order:
        assert run_file((tmp_path / name).read_bytes(), x)["y"].shape == (2, 16)
        assert float_constants((tmp_path / name).read_bytes()) == float_constants(
            (tmp_path / f"{name}.2").read_bytes()
        )
