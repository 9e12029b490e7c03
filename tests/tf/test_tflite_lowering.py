"""Each lowering: what becomes of the op, and that LiteRT computes the same at every batch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from mpexport.errors import ConversionError
from mpexport.tf import pipeline
from mpexport.tf.passes.lower_math import _erf
from mpexport.tf.passes.lower_math import erfc as _erfc
from mpexport.tf.passes.lower_resize import bicubic_weights
from mpexport.tf.to_tflite import PASSES
from tests.tf.support import (
    annotated,
    apply_and_check,
    entry_function,
    normalized,
    ops,
    run,
    spec,
    traced,
)
from tests.tf.tflite_support import (
    assert_agrees,
    assert_close,
    builtins,
    converted,
    expected_of,
    half_model,
    run_file,
)

pytestmark = pytest.mark.tf

R = tf.raw_ops
FLOATS = np.float32([[-3.5, -1.25, -0.3, 0.0, 0.2, 0.45], [0.55, 1.0, 1.75, 2.5, 3.0, 5.25]])
POSITIVE = np.abs(FLOATS) + np.float32(1.125)
BELOW_ONE = FLOATS / np.float32(6)


def batches(values):
    """The rows as a batch of one and as one of three."""
    return {"x": values[:1]}, {"x": np.concatenate([values, values[1:, ::-1]])}


# name: (function, what its lowering consists of besides constants, values)
MATH = {
    "Acos": (tf.acos, {"Atan2": 1, "Sqrt": 1, "Mul": 1, "Sub": 1, "AddV2": 1}, BELOW_ONE),
    "Acosh": (tf.acosh, {"Log": 2, "Sqrt": 2}, POSITIVE),
    "Asin": (tf.asin, {"Atan2": 1, "Sqrt": 1}, BELOW_ONE),
    "Asinh": (tf.asinh, {"Log": 2, "Sqrt": 1}, FLOATS),
    "Atan": (tf.atan, {"Atan2": 1}, FLOATS),
    "Atanh": (tf.atanh, {"Log": 2}, BELOW_ONE),
    "Cosh": (tf.cosh, {"Exp": 2}, FLOATS),
    "Digamma": (tf.math.digamma, {"Log": 1, "Sin": 1, "Cos": 1}, FLOATS + np.float32(0.06)),
    "Erf": (tf.math.erf, {"Exp": 1}, FLOATS),
    "Erfc": (tf.math.erfc, {"Exp": 1}, FLOATS),
    "FakeQuantWithMinMaxArgs": (
        lambda x: tf.quantization.fake_quant_with_min_max_args(tf.cast(x, tf.float32), -1, 1.5),
        {"Floor": 1},
        FLOATS,
    ),
    "Lgamma": (tf.math.lgamma, {"Log": 3, "Sin": 1}, FLOATS + np.float32(0.06)),
    "Sinh": (tf.sinh, {"Exp": 2}, FLOATS),
    "Tan": (tf.tan, {"Sin": 1, "Cos": 1}, FLOATS),
    "TruncateMod": (lambda x: tf.truncatemod(x, x[:, ::-1] + 0.25), {"FloorMod": 1}, FLOATS),
}
SELECTION = {
    "Cross": (lambda x: tf.linalg.cross(x[:, :3], x[:, 3:]), {"Mul": 6, "Sub": 3}, FLOATS),
    "Cumprod": (
        lambda x: tf.math.cumprod(x, 1, exclusive=True, reverse=True),
        {"Prod": 1, "Less": 1},
        FLOATS,
    ),
    "CumulativeLogsumexp": (
        lambda x: tf.math.cumulative_logsumexp(x, 1),
        {"Exp": 1, "Log": 1, "LessEqual": 1},
        FLOATS,
    ),
    "DenseBincount": (
        lambda x: tf.math.bincount(tf.cast(tf.abs(x), tf.int32), minlength=4, maxlength=4, axis=-1),
        {"OneHot": 1},
        FLOATS,
    ),
    "DenseBincount with weights": (
        lambda x: tf.math.bincount(tf.cast(tf.abs(x), tf.int32), x + 1, 4, 4, axis=-1),
        {"Equal": 1, "SelectV2": 1, "Sum": 1},
        FLOATS,
    ),
    "DynamicPartition": (
        lambda x: tf.dynamic_partition(tf.transpose(x), [0, 1, 0, 1, 1, 0], 2)[1],
        {"Where": 2, "GatherV2": 2},
        FLOATS,
    ),
    "EuclideanNorm": (lambda x: tf.math.reduce_euclidean_norm(x, 1), {"Sqrt": 1, "Sum": 1}, FLOATS),
    "InTopKV2": (
        lambda x: (
            tf.cast(
                tf.math.in_top_k(tf.argmax(x[:, ::-1], 1), tf.cast(x, tf.float32), 3), tf.float32
            )
            + x[:, 0]
        ),
        {"OneHot": 1, "Greater": 1},
        FLOATS,
    ),
    "LowerBound": (
        lambda x: R.LowerBound(sorted_inputs=tf.sort(x), values=x[:, ::-2]),
        {"Less": 1, "Sum": 1},
        FLOATS,
    ),
    "UpperBound": (
        lambda x: R.UpperBound(sorted_inputs=tf.sort(x), values=x[:, ::-2]),
        {"LessEqual": 1, "Sum": 1},
        FLOATS,
    ),
    "MatrixDiagPartV3": (
        lambda x: tf.linalg.diag_part(tf.einsum("bi,bj->bij", x, x[:, 2:])),
        {"Equal": 1, "Sum": 1},
        FLOATS,
    ),
    "NthElement": (lambda x: R.NthElement(input=x, n=2, reverse=True), {"TopKV2": 1}, FLOATS),
    "Roll": (lambda x: tf.roll(x, [7, -1], [1, 0]), {"GatherV2": 2}, FLOATS),
    "SegmentMean": (
        lambda x: tf.math.segment_mean(tf.transpose(x), [0, 0, 1, 1, 1, 2]),
        {"SegmentSum": 2},
        FLOATS,
    ),
    "SparseSoftmaxCrossEntropyWithLogits": (
        lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits(tf.argmax(x[:, ::-1], 1), x),
        {"OneHot": 1, "LogSoftmax": 1},
        FLOATS,
    ),
    "TopKV2": (
        lambda x: R.TopKV2(input=x, k=3, index_type=tf.int64)[1],
        {"TopKV2": 1, "Cast": 1},
        FLOATS,
    ),
}
IMAGE = np.random.default_rng(0).standard_normal((2, 7, 9, 4)).astype(np.float32)
VOLUME = np.random.default_rng(1).standard_normal((2, 5, 7, 6, 4)).astype(np.float32)


@pytest.mark.parametrize("axes", [4, 5])
def test_division_by_zero_of_many_axes(axes, tmp_path):
    """Five axes of open size, as a group normalization has them; four can stay."""

    def call(x):
        shape = [-1, 2, *[1] * (axes - 4), 3, 1]
        y = tf.nn.relu(tf.reshape(x, shape))  # zeros among them
        return R.DivNoNan(x=tf.reshape(x - 1.0, shape), y=y)

    program = annotated(call)
    changed, changes = apply_and_check("lower_math", program)
    assert [c.kind for c in changes] == ([] if axes == 4 else ["divnonan-lowered"])
    values = np.float32([[-1, 0, 2, 3, 0, 5], [7, -2, 0, 1, 4, 0], [0, 0, 0, 1, 2, 9]])
    assert_close(run(program, "f", {"x": values}), run(changed, "f", {"x": values}))
    model = half_model(tmp_path / "m", lambda x: call(tf.cast(x, tf.float32)), (None, 6))
    made = converted(model)
    assert made.shapes == {}
    assert_agrees(model, made.content, {"x": values[:1]}, {"x": values})


@pytest.mark.parametrize("op", [*MATH, *SELECTION])
def test_op_is_written_in_others(op):
    function, wanted, values = {**MATH, **SELECTION}[op]
    op = op.partition(" ")[0]
    program = annotated(function)
    assert ops(program).count(op) == 1
    name = "lower_math" if op in MATH else "lower_selection"
    changed, changes = apply_and_check(name, program)
    assert [c.kind for c in changes] == [f"{op.lower()}-lowered"]
    call = next(n for n in entry_function(changed).node_def if n.op == "PartitionedCall")
    lowered = changed.library[call.attr["f"].func.name]
    found = [n.op for n in lowered.node_def]
    assert {k: found.count(k) for k in wanted} == wanted
    inputs = batches(values)[1]
    assert_close(run(program, "f", inputs), run(changed, "f", inputs))


@pytest.mark.parametrize("group", ["math", "selection"])
def test_litert_agrees_with_the_reference(group, tmp_path):
    table = {"math": MATH, "selection": SELECTION}[group]
    table = {n.replace(" ", "_"): row for n, row in table.items()}  # names of arguments
    module = tf.Module()
    # One file holds them all: converting takes longer than computing.
    names = sorted(table)

    def call(**inputs):
        return {
            n: table[n][0](tf.cast(inputs[f"in_{n}"], tf.float16 if n in MATH else tf.float32))
            for n in names
        }

    specs = {f"in_{n}": tf.TensorSpec([None, 6], tf.float32, name=f"in_{n}") for n in names}
    module.call = tf.function(call, autograph=False)
    signature = module.call.get_concrete_function(**specs)
    tf.saved_model.save(module, str(tmp_path / "m"), signatures=signature)
    model = normalized(tmp_path / "m")
    made = converted(model)
    assert made.shapes == {}
    assert made.notes == ()
    rows = [{f"in_{n}": batches(table[n][2])[i]["x"] for n in names} for i in (0, 1)]
    assert_agrees(model, made.content, rows[1])
    run_file(made.content, rows[0])


@pytest.mark.parametrize("pool", ["max", "avg"])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_3d_pooling(pool, padding, tmp_path):
    function = {"max": tf.nn.max_pool3d, "avg": tf.nn.avg_pool3d}[pool]
    model = half_model(
        tmp_path / "m",
        lambda x: function(tf.cast(x, tf.float32), [2, 3, 2], [2, 2, 1], padding),
        (None, 5, 7, 6, 4),
    )
    made = converted(model)
    assert builtins(made.content)["MAX_POOL_2D" if pool == "max" else "AVERAGE_POOL_2D"] == 2
    assert_agrees(model, made.content, {"x": VOLUME[:1]}, {"x": VOLUME})


def test_max_pooling_with_explicit_padding_and_unread_positions(tmp_path):
    pads = [[0, 0], [1, 0], [0, 2], [0, 0]]
    model = half_model(
        tmp_path / "m",
        lambda x: (
            tf.nn.max_pool2d(x, 3, 2, pads)
            + tf.nn.max_pool_with_argmax(x[:, :6], 2, 2, "SAME")[0][:, :, :5]
        ),
        (None, 7, 9, 4),
    )
    made = converted(model)
    assert builtins(made.content)["MAX_POOL_2D"] == 2
    # Negative numbers only: padding with 0 would show.
    assert_agrees(model, made.content, {"x": IMAGE - 9})


@pytest.mark.parametrize("method", ["bicubic", "area", "lanczos3", "gaussian", "mitchellcubic"])
def test_resizing_up_and_down(method, tmp_path):
    def both(x):
        up = tf.image.resize(x, [5, 13], method)
        down = tf.image.resize(x, [3, 4], method, antialias=method != "area")
        return tf.concat([tf.reshape(up, [-1, 260]), tf.reshape(down, [-1, 48])], 1)

    model = half_model(tmp_path / "m", both, (None, 7, 9, 4))
    made = converted(model)
    assert not made.shapes
    assert_agrees(model, made.content, {"x": IMAGE[:1]}, {"x": IMAGE})


@pytest.mark.parametrize(("align", "half"), [(False, False), (True, False), (False, True)])
def test_weights_of_the_bicubic_are_those_of_tensorflow(align, half):
    # The image of unit vectors: each output row is a row of weights.
    rows = R.ResizeBicubic(
        images=np.eye(7, dtype=np.float32)[None, :, None, :],
        size=[12, 1],
        align_corners=align,
        half_pixel_centers=half,
    )
    unit = 2.0**-24
    found = bicubic_weights(7, 12, align, half)
    np.testing.assert_allclose(found, rows[0, :, 0, :], rtol=0, atol=8 * unit)


def _transposed(x, kernel, rate, stride):
    """A transposed convolution by its definition: each input pixel stamps the kernel."""
    batch, height, width, _ = x.shape
    rows, columns = ((k - 1) * rate + 1 for k in kernel.shape[:2])
    out = np.zeros(
        (batch, (height - 1) * stride + rows, (width - 1) * stride + columns, kernel.shape[2])
    )
    for i in range(height):
        for j in range(width):
            for a in range(kernel.shape[0]):
                for b in range(kernel.shape[1]):
                    stamp = x[:, i, j].astype(np.float64) @ kernel[a, b].T
                    out[:, i * stride + a * rate, j * stride + b * rate] += stamp
    return out


def test_dilated_transposed_convolution_stamps_a_dilated_kernel(tmp_path):
    # TensorFlow has no kernel for it on a CPU, and the reference is lowered too: the definition is
    # the judge of both.
    kernel = np.random.default_rng(2).standard_normal((3, 2, 5, 4)).astype(np.float16)

    def transposed(x):
        shape = [tf.shape(x)[0], 11, 11, 5]
        return R.Conv2DBackpropInput(
            input_sizes=shape,
            filter=kernel,
            out_backprop=x,
            strides=[1, 1, 1, 1],
            padding="VALID",
            dilations=[1, 2, 2, 1],
        )

    model = half_model(tmp_path / "m", transposed, (None, 7, 9, 4))
    made = converted(model)
    assert builtins(made.content)["TRANSPOSE_CONV"] == 1
    expected = {"y": _transposed(IMAGE, kernel.astype(np.float64), 2, 1)}
    assert_close(expected, expected_of(model, {"x": IMAGE}))
    assert_close(expected, run_file(made.content, {"x": IMAGE}))


def test_grouped_3d_convolution_is_one_per_group(tmp_path):
    kernel = np.random.default_rng(2).standard_normal((2, 2, 2, 2, 6)).astype(np.float16)
    model = half_model(
        tmp_path / "m", lambda x: tf.nn.conv3d(x, kernel, [1] * 5, "VALID"), (None, 5, 7, 6, 4)
    )
    made = converted(model)
    assert builtins(made.content)["CONV_3D"] == 2
    wide = kernel.astype(np.float32)
    halves = [
        tf.nn.conv3d(VOLUME[..., 2 * g : 2 * g + 2], wide[..., 3 * g : 3 * g + 3], [1] * 5, "VALID")
        for g in (0, 1)
    ]
    expected = {"y": np.concatenate(halves, -1)}
    assert_close(expected, expected_of(model, {"x": VOLUME}))
    assert_close(expected, run_file(made.content, {"x": VOLUME}))


def test_dilated_3d_convolution(tmp_path):
    kernel = np.random.default_rng(2).standard_normal((2, 2, 2, 4, 3)).astype(np.float16)
    model = half_model(
        tmp_path / "m",
        lambda x: tf.nn.convolution(x, kernel, padding="SAME", dilations=[2, 1, 3]),
        (None, 5, 7, 6, 4),
    )
    made = converted(model)
    assert made.shapes == {}
    assert builtins(made.content)["CONV_3D"] == 1
    assert_agrees(model, made.content, {"x": VOLUME[:1]}, {"x": VOLUME})


def test_slice_that_adds_axes_of_unknown_sizes(tmp_path):
    model = half_model(
        tmp_path / "m", lambda x: x[None, ..., None, 1:] * x[:, None, None, 0], (None, None)
    )
    made = converted(model)
    assert not made.shapes
    assert_agrees(model, made.content, {"x": FLOATS[:1]}, {"x": FLOATS[:, :4]})


@pytest.mark.parametrize("size", [12, 20])
def test_fourier_transform_of_any_length(size, tmp_path):
    def parts(x):
        z = tf.signal.rfft(tf.cast(x, tf.float32), [size])
        return tf.concat([tf.math.real(z), tf.math.imag(z), tf.abs(z)], -1)

    model = half_model(tmp_path / "m", parts, (None, 3, 16))
    made = converted(model)
    assert builtins(made.content)["RFFT2D"] == 0
    x = np.random.default_rng(0).standard_normal((2, 3, 16)).astype(np.float32)
    assert_agrees(model, made.content, {"x": x[:1]}, {"x": x})


def test_fourier_transform_that_would_run_nowhere_is_refused(tmp_path):
    model = half_model(
        tmp_path / "m", lambda x: tf.abs(tf.signal.fft(tf.cast(x, tf.complex64))), (None, 6)
    )
    with pytest.raises(ConversionError, match=r"powers of two only; .*FFT has 6") as e:
        converted(model)
    assert "pad the frames" in e.value.hint


def test_integer_table_is_compared_with_all_keys(tmp_path):
    module = tf.Module()
    module.table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(
            tf.constant([30, 5, 7], tf.int64), tf.constant([2, 9, 4], tf.int64)
        ),
        default_value=-1,
    )

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.int64, name="x")])
    def call(x):
        return {"y": module.table.lookup(x)}

    module.call = call
    tf.saved_model.save(module, str(tmp_path / "m"), signatures=call)
    content = converted(normalized(tmp_path / "m")).content
    assert not [name for name in builtins(content) if "HASHTABLE" in name]
    found = run_file(content, {"x": np.int64([[5, 6, 30], [7, 7, -1]])})
    np.testing.assert_array_equal(found["y"], [[9, -1, 2], [4, 4, -1]])


def test_error_function_holds_far_out():
    x = np.linspace(-6, 6, 1201, dtype=np.float32)
    erf = np.array([math.erf(v) for v in x])
    erfc = np.array([math.erfc(v) for v in x])
    unit = 2.0**-24
    np.testing.assert_allclose(_erf(tf.constant(x)), erf, rtol=8 * unit, atol=0)
    # The argument of exp reaches 36: its rounding is that many times the unit roundoff.
    np.testing.assert_allclose(_erfc(tf.constant(x)), erfc, rtol=100 * unit, atol=0)


def test_every_format_pass_names_the_ops_it_needs():
    """A program of plain layers takes the way that copies no weights."""
    program = traced(
        lambda x: {"y": tf.nn.relu(tf.nn.conv2d(x, tf.ones([3, 3, 4, 2]), 1, "SAME"))[:, ::2]},
        spec("x", (None, 7, 9, 4)),
    )
    assert not [n for n in PASSES if pipeline.all_passes()[n].is_needed(program)]
