"""Whole models through the TFLite conversion: batches, states, names, twins, what is refused."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from mpexport.errors import ConversionError
from mpexport.tf import concrete, pipeline
from tests.tf.support import apply_and_check, node, normalized, ops, spec, traced
from tests.tf.tflite_support import (
    assert_agrees,
    builtins,
    converted,
    exported,
    half_model,
    run_file,
)

pytestmark = pytest.mark.tf

L = keras.layers


@pytest.fixture(autouse=True)
def _mixed():
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    keras.mixed_precision.set_global_policy("mixed_float16")
    yield
    keras.mixed_precision.set_global_policy("float32")


def _batches(*shape, names=("x",)):
    rng = np.random.default_rng(0)
    return [{n: rng.standard_normal((b, *shape)).astype(np.float32) for n in names} for b in (1, 3)]


def _bidirectional(x):
    y = L.Bidirectional(L.LSTM(4, return_sequences=True))(L.Masking()(x))
    return L.GRU(3, go_backwards=True)(y)


def _conv_lstm(x):
    return L.ConvLSTM1D(2, 3, padding="same", return_sequences=True)(L.Reshape((5, 6, 1))(x))


def _normalized_dropout(x):
    y = L.Normalization(mean=0.1, variance=2.0)(x)
    return L.LSTM(4, dropout=0.2, recurrent_dropout=0.2)(y)


@pytest.mark.parametrize("build", [_bidirectional, _conv_lstm, _normalized_dropout])
def test_recurrent_layers_keep_a_dynamic_batch(build, tmp_path):
    x = keras.Input((5, 6), name="x")
    model = exported(keras.Model(x, L.Dense(3, dtype="float32")(build(x))), tmp_path / "m")
    made = converted(model)
    assert made.shapes == {}
    assert made.notes == ()
    assert builtins(made.content)["DYNAMIC_UPDATE_SLICE"] >= 1
    assert_agrees(model, made.content, *_batches(5, 6))


def test_encoder_and_decoder_share_states_at_any_batch(tmp_path):
    e, d = keras.Input((5, 6), name="e"), keras.Input((5, 6), name="d")
    _, h, c = L.LSTM(4, return_state=True)(e)
    y = L.LSTM(4, return_sequences=True)(d, initial_state=[h, c])
    model = exported(keras.Model([e, d], L.Dense(3)(y)), tmp_path / "m")
    made = converted(model)
    assert made.shapes == {}
    assert_agrees(model, made.content, *_batches(5, 6, names=("d", "e")))


def test_lists_become_tensors_in_the_loop_too():
    def loop(x):
        def step(i, out):
            return i + 1, out.write(i, x * tf.cast(i, tf.float32))

        out = tf.TensorArray(tf.float32, 3, element_shape=[None, 2])
        _, out = tf.while_loop(lambda i, _: i < 3, step, (0, out))
        return {"y": out.stack()}

    program = traced(loop, spec("x", (None, 2)))
    assert "TensorListSetItem" in ops(program)
    # Not run: TensorFlow has no XlaDynamicUpdateSlice on a CPU, LiteRT has.
    changed, changes = apply_and_check("lower_tensor_lists", program)
    left = ops(changed)
    assert not [op for op in left if op.startswith("TensorList")]
    assert left.count("XlaDynamicUpdateSlice") == 1
    assert {c.detail for c in changes} == {
        "TensorListReserve",
        "TensorListSetItem",
        "TensorListStack",
    }
    loops = [n for _, n in changed.nodes() if n.op in ("While", "StatelessWhile")]
    assert tf.variant.as_datatype_enum not in loops[0].attr["T"].list.type


def test_lists_of_static_elements_are_left_to_the_converter():
    program = traced(lambda x: {"y": tf.map_fn(lambda row: row * 2, x)}, spec("x", (3, 2)))
    assert not pipeline.all_passes()["lower_tensor_lists"].is_needed(program)


@pytest.mark.parametrize("half", [False, True])
def test_map_over_rows_needs_no_custom_op(half, tmp_path):
    model = half_model(
        tmp_path / "m",
        lambda x: tf.map_fn(lambda row: row[::2] * 2 + tf.reduce_sum(row), x),
        (None, 6),
    )
    made = converted(model, half=half)
    assert made.shapes == {}
    assert_agrees(model, made.content, *_batches(6))


def test_what_cannot_be_dynamic_is_fixed_to_one_with_a_note(tmp_path):
    # The converter needs the element's shape, and two inputs could give its batch.
    def stitch(x):
        return tf.dynamic_stitch([[0, 2], [1]], [tf.transpose(x)[:2], tf.transpose(x)[2:3]])

    model = half_model(tmp_path / "m", stitch, (None, 6))
    made = converted(model)
    assert made.shapes == {"x": (1, 6)}
    assert "fixed to 1; --batch N fixes another" in made.notes[0]
    assert_agrees(model, made.content, _batches(6)[0])


def test_outputs_and_inputs_of_one_shape_go_by_name(tmp_path):
    a, b = keras.Input((6,), name="zeta"), keras.Input((6,), name="alpha")
    p, q = L.Dense(6)(a), L.Dense(6)(b)
    outputs = {"z": L.Subtract()([p, q]), "m": L.Dense(6)(q), "a": L.Dense(6)(p)}
    model = exported(keras.Model([a, b], outputs), tmp_path / "m")
    made = converted(model)
    assert_agrees(model, made.content, *_batches(6, names=("alpha", "zeta")))


def _resized(policy, path):
    keras.mixed_precision.set_global_policy(policy)
    keras.backend.clear_session()
    x = keras.Input((9, 7, 3), name="x")
    y = L.Resizing(5, 11)(L.Conv2D(4, 3, groups=1, padding="same")(x))
    y = L.Conv2D(4, 3, groups=2)(y)
    return exported(keras.Model(x, L.Dense(3)(y)), path)


def test_the_file_has_the_ops_of_the_model_built_in_float32(tmp_path):
    mixed, plain = _resized("mixed_float16", tmp_path / "m"), _resized("float32", tmp_path / "p")
    made = converted(mixed)
    assert builtins(made.content) == builtins(converted(plain).content)
    assert_agrees(mixed, made.content, *_batches(9, 7, 3))


def test_only_the_clamp_of_a_saturating_cast_is_dropped():
    def clamps(x):
        wide = tf.saturate_cast(x, tf.float16)
        low, high = float(tf.float16.min), float(tf.float16.max)
        wide += tf.cast(tf.maximum(low, tf.minimum(x, high)), tf.float16)
        other = tf.cast(tf.clip_by_value(x, -65000.0, 65504.0), tf.float16)
        kept = tf.clip_by_value(x, low, high)
        return {"y": tf.cast(wide, tf.float32) + tf.cast(other, tf.float32) + kept}

    program = traced(clamps, spec("x", (None,)))
    inputs = {"x": np.float32([-7, 0.5, 65000])}
    changed, changes = apply_and_check("drop_saturating_casts", program, inputs, exact=True)
    assert [c.kind for c in changes] == ["clamp-removed"] * 2
    clamps = [[op for op in ops(p) if op in _CLAMPS] for p in (program, changed)]
    # Left: one with other bounds, and one that no Cast follows.
    assert (len(clamps[0]), len(clamps[1])) == (7, 4)


_CLAMPS = ("ClipByValue", "Maximum", "Minimum")


class _Counting(tf.Module):
    """A counter that the output depends on, or doesn't."""

    def __init__(self, is_used):
        super().__init__()
        self.count = tf.Variable(0.0)
        self.is_used = is_used

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def call(self, x):
        before = self.count.read_value()
        self.count.assign(before + 1)
        y = tf.cast(tf.cast(x, tf.float16) * 2, tf.float32)
        return {"y": y + before if self.is_used else y + 0 * tf.shape(x, tf.int32).dtype.max}


@pytest.mark.parametrize("is_used", [True, False])
def test_updates_that_no_output_depends_on_are_dropped(is_used):
    model = _Counting(is_used)
    program = concrete.take_apart({"f": model.call.get_concrete_function()})
    assert "AssignVariableOp" in ops(program)
    changed, changes = apply_and_check("drop_unused_state", program)
    assert ("AssignVariableOp" in ops(changed)) == is_used
    assert [c.kind for c in changes] == ([] if is_used else ["update-removed"])


def test_a_state_that_the_output_depends_on_agrees_at_every_call_or_is_refused(tmp_path):
    model = _Counting(True)
    tf.saved_model.save(model, str(tmp_path / "m"), signatures=model.call)
    with pytest.raises(ConversionError) as e:
        converted(normalized(tmp_path / "m"))
    assert "state" in e.value.hint


def test_a_float16_layer_and_a_float16_input_are_widened(tmp_path):
    keras.mixed_precision.set_global_policy("float32")
    x = keras.Input((6,), dtype="float16", name="x")
    y = L.Dense(10, dtype="float16")(L.Dense(4, dtype="float32")(x))
    model = exported(keras.Model(x, L.Dense(3)(y)), tmp_path / "m")
    made = converted(model)
    assert model.signature("serving_default").inputs[0].dtype == "float32"
    assert builtins(made.content)["CAST"] == 0
    assert_agrees(model, made.content, *_batches(6))


def test_the_policy_float16_computes_in_float32(tmp_path):
    keras.mixed_precision.set_global_policy("float16")
    x = keras.Input((9, 7, 3), name="x")
    y = L.BatchNormalization()(L.Permute((2, 1, 3))(L.Conv2D(4, 3)(x)))
    model = exported(keras.Model(x, L.Dense(3)(L.DepthwiseConv2D(3)(y))), tmp_path / "m")
    made = converted(model)
    assert builtins(made.content)["DEPTHWISE_CONV_2D"] == 1
    assert_agrees(model, made.content, *_batches(9, 7, 3))
    stored = converted(model, half=True).content
    assert builtins(stored)["DEQUANTIZE"] >= 4
    assert set(run_file(stored, _batches(9, 7, 3)[1])) == {"output_0"}


@pytest.mark.parametrize("time", [None, 5])
def test_causal_attention_at_any_length(time, tmp_path):
    x = keras.Input((time, 8), name="x")
    y = L.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
    model = exported(keras.Model(x, L.Dense(3)(y)), tmp_path / "m")
    made = converted(model)
    assert made.shapes == {}
    lengths = [*_batches(5, 8), *([] if time else _batches(9, 8))]
    assert_agrees(model, made.content, *lengths)


REFUSED = {
    "string": (
        lambda x: L.Hashing(10)(x),
        r"tf.AsString, tf.StringToHashBucketFast in layer hashing.* \(functional.*AsString\)",
        "do this preprocessing before the model",
    ),
    "random": (
        lambda x: L.RandomFlip()(L.Reshape((2, 3, 1))(x)),
        r"tf.StatelessRandom.* in layer random_flip",
        "training=False",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_tflite_lacks_is_refused_by_op_layer_and_way_out(kind, tmp_path):
    build, message, hint = REFUSED[kind]
    x = keras.Input((6,), name="x", dtype="int32" if kind == "string" else "float32")
    model = exported(keras.Model(x, build(x)), tmp_path / "m")
    with pytest.raises(ConversionError, match=message) as e:
        converted(model)
    assert e.value.exit_code == 5
    assert hint in e.value.hint
    assert e.value.details["ops"]


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (lambda x: tf.linalg.inv(tf.einsum("bi,bj->bij", x, x) + tf.eye(6)), "tf.MatrixInverse"),
        (lambda x: tf.math.zeta(x + 9, x), "tf.Zeta"),
        (lambda x: tf.einsum("bii->b", tf.einsum("bi,bj->bij", x, x)), "tf.Einsum"),
    ],
)
def test_every_failure_names_an_op_and_a_way_out(function, op, tmp_path):
    model = half_model(tmp_path / "m", function, (None, 6), tf.float32)
    with pytest.raises(ConversionError) as e:
        converted(model)
    assert op in e.value.message
    assert e.value.hint
    assert e.value.where


def test_a_node_in_a_refused_graph_keeps_its_place():
    program = traced(lambda x: {"y": tf.raw_ops.Asin(x=x, name="mine")}, spec("x", (None,)))
    changed, _ = apply_and_check("lower_math", program, {"x": np.float32([0.25, -0.5])})
    assert node(changed, "mine").op == "PartitionedCall"
