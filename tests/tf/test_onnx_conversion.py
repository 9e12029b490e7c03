"""Whole graphs in ONNX: loops, branches, lists, convolutions, element types, opsets."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tensorflow as tf

from mpexport.errors import InconclusiveError, UsageError
from mpexport.formats.onnx import DEFAULT_OPSET, MAX_OPSET, MIN_OPSET, OnnxOptions
from mpexport.tf import reference
from mpexport.tf.onnx_ops.resize import exact_scale
from mpexport.tf.onnx_precision.regions import all_graphs
from tests.tf.onnx_support import convert_and_check, model_of, nodes, onnx_of, run_onnx

pytestmark = [pytest.mark.tf, pytest.mark.ort]

_RNG = np.random.default_rng(0)
ROWS = _RNG.standard_normal((3, 6)).astype(np.float32)
IMAGE = _RNG.standard_normal((3, 5, 4, 3)).astype(np.float32)
VOLUME = _RNG.standard_normal((3, 4, 5, 4, 4)).astype(np.float32)


def _network(x):
    """Something of everything that changed between opsets."""
    kernel = tf.constant(np.random.default_rng(1).standard_normal((3, 3, 3, 8)), tf.float32)
    y = tf.nn.conv2d(tf.cast(x, tf.float32), kernel, 1, "SAME")
    y = tf.nn.avg_pool2d(tf.nn.gelu(y, approximate=False), 2, 2, "SAME")
    y = tf.image.resize(y, [5, 7])
    y = tf.reduce_max(tf.pad(y, [[0, 0], [1, 0], [0, 1], [0, 0]]), [1])
    y = tf.split(y * tf.math.tanh(y), 2, -1)[0]
    values, places = tf.math.top_k(tf.squeeze(y[..., :1], -1), 3)
    return [tf.nn.softmax(y), values, tf.one_hot(places, 8)]


@pytest.mark.parametrize("opset", range(MIN_OPSET, MAX_OPSET + 1))
def test_every_opset(opset):
    found = convert_and_check(_network, IMAGE, opset=opset)
    assert (found["Gelu"], found["Erf"]) == ((1, 0) if opset >= 20 else (0, 1))
    proto = onnx_of(model_of(_network, IMAGE), opset)
    wanted = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)])
    assert wanted <= proto.ir_version <= wanted + 2


@pytest.mark.parametrize("opset", [MIN_OPSET - 1, MAX_OPSET + 1])
def test_opset_that_is_not_written(opset):
    with pytest.raises(UsageError, match=f"opset {opset}") as e:
        OnnxOptions(opset=opset)
    assert f"{MIN_OPSET} to {MAX_OPSET}" in e.value.hint


def test_default_opset_is_what_runtimes_of_2023_read():
    # The first ONNX Runtime of that year, 1.14, came with ONNX 1.13.
    versions = {onnx_version: opset for onnx_version, _, opset, *_ in onnx.helper.VERSION_TABLE}
    assert OnnxOptions().opset == DEFAULT_OPSET == versions["1.13.0"]


@pytest.mark.parametrize("half", [tf.float16, tf.bfloat16])
def test_no_16_bit_type_is_in_the_file(half):
    weight = tf.Variable(_RNG.standard_normal((6, 4)).astype(np.float32))

    def call(x):
        y = tf.nn.relu(tf.matmul(x, tf.cast(weight, half)))
        return tf.while_loop(lambda v: tf.reduce_sum(v) < 99, lambda v: [v * 2 + 1], [y])[0]

    proto = onnx_of(model_of(call, ROWS, half=half))
    forbidden = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
    seen = set()
    for graph in all_graphs(proto):
        seen |= {t.data_type for t in graph.initializer}
        for values in (graph.input, graph.output, graph.value_info):
            seen |= {v.type.tensor_type.elem_type for v in values}
        for node in graph.node:
            seen |= {a.i for a in node.attribute if a.name == "to"}
            seen |= {a.t.data_type for a in node.attribute if a.HasField("t")}
    assert onnx.TensorProto.FLOAT in seen
    assert not seen & forbidden
    # The weights are those of training, bit by bit: not rounded to 16 bits on the way.
    assert weight.numpy().tobytes() in proto.SerializeToString()


def _nested(x):
    def outer(i, y):
        inner = tf.while_loop(lambda j, v: j < i, lambda j, v: (j + 1, v * 0.5 + 1.0), [0, y])
        return i + 1, inner[1]

    return tf.while_loop(lambda i, y: i < 3, outer, [0, x])[1]


@pytest.mark.parametrize("attempt", range(3))
def test_nested_loops_whatever_their_functions_are_called(attempt):
    del attempt  # every trace gives other names, and the order of functions went by names
    assert convert_and_check(_nested, ROWS)["Loop"] == 2


LISTS = {
    "a list that grows": lambda x: tf.map_fn(lambda row: row * 2.0, x),
    "a running value beside the list": lambda x: tf.scan(lambda a, row: a + row, x),
    "a list of columns": lambda x: tf.scan(
        lambda a, column: a * 0.5 + column, tf.transpose(x), tf.zeros_like(x[:, 0])
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists(name):
    assert convert_and_check(LISTS[name], ROWS)["Loop"] == 1


def test_branches():
    def nested(x):
        return tf.cond(
            tf.reduce_sum(x) > 0,
            lambda: tf.cond(tf.reduce_max(x) > 1, lambda: x * 3, lambda: x),
            lambda: x - 1,
        )

    assert convert_and_check(nested, ROWS)["If"] == 2
    # Its branches are nested, and a constant decides each.
    assert convert_and_check(lambda x: tf.image.rot90(x, 3), IMAGE)["If"] == 0


@pytest.mark.parametrize("training", [False, True])
def test_a_branch_of_training(training):
    """``training`` beside what the sizes must be; a random branch would be refused."""

    def call(x):
        fits = tf.reduce_all((training, tf.shape(x)[0] >= 0, tf.shape(x)[1] >= 3))
        moved = (lambda: x * 2) if training else (lambda: x + tf.random.normal([6]))
        return tf.cond(fits, moved, lambda: x * 3)

    assert convert_and_check(call, ROWS)["If"] == training


@pytest.mark.parametrize(("offset", "branch"), [(0, "x"), (1, "expm1"), (2, "matmul"), (7, "-x")])
def test_choice_among_many_branches(offset, branch):
    weight = tf.Variable(_RNG.standard_normal((6, 6)).astype(np.float32))
    # One row gives each branch in turn, and a number without a branch means the last.
    expected = {
        "x": ROWS[:1],
        "expm1": np.expm1(ROWS[:1]),
        "matmul": ROWS[:1] @ weight.numpy(),
        "-x": -ROWS[:1],
    }

    def call(x):
        return tf.switch_case(
            tf.shape(x)[0] - 1 + offset,
            [lambda: x, lambda: tf.math.expm1(x), lambda: tf.matmul(x, weight), lambda: -x],
        )

    found = convert_and_check(call, ROWS)
    assert (found["If"], found["Equal"]) == (3, 3)
    np.testing.assert_allclose(
        run_onnx(onnx_of(model_of(call, ROWS)), {"x0": ROWS[:1]})["y0"],
        expected[branch],
        rtol=0,
        atol=32 * 2.0**-24 * np.abs(expected[branch]).max(),  # six products, an exponential
    )


KERNEL_2D = _RNG.standard_normal((3, 3, 4, 3)).astype(np.float32)
KERNEL_3D = _RNG.standard_normal((1, 2, 1, 3, 4)).astype(np.float32)
# Output sizes, kernel, padding → ``pads`` and ``output_padding`` of the ConvTranspose.
TRANSPOSED = {
    "exact": (IMAGE, KERNEL_2D, [11, 9], "VALID", [0] * 4, None),
    "beyond": (IMAGE, KERNEL_2D, [12, 10], "VALID", [0] * 4, [1, 1]),
    "cut": (IMAGE, KERNEL_2D, [10, 7], "SAME", [0, 1, 1, 1], None),
    "kernel below the stride": (IMAGE, KERNEL_2D[:1], [10, 8], "SAME", [0, 0, 0, 1], [1, 0]),
    "three axes": (VOLUME, KERNEL_3D, [8, 10, 8], "SAME", [0] * 6, [1, 0, 1]),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolution(name):
    x, kernel, sizes, padding, pads, beyond = TRANSPOSED[name]
    function = tf.nn.conv2d_transpose if x.ndim == 4 else tf.nn.conv3d_transpose

    def call(x):
        shape = [tf.shape(x)[0], *sizes, kernel.shape[-2]]
        return tf.nn.bias_add(function(x, kernel, shape, 2, padding), np.arange(shape[-1]) + 1.0)

    assert convert_and_check(call, x)["ConvTranspose"] == 1
    proto = onnx_of(model_of(call, x))
    (node,) = [n for n in proto.graph.node if n.op_type == "ConvTranspose"]
    attributes = {a.name: list(a.ints) for a in node.attribute}
    assert attributes.get("pads") == pads
    assert attributes.get("output_padding") == beyond


@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("is_computed", [False, True])
def test_transposed_convolution_of_open_size(padding, size, stride, is_computed):
    """What cannot be shared evenly is cut behind, as TensorFlow does it."""
    kernel = _RNG.standard_normal((size, size, 4, 3)).astype(np.float32)
    rows, columns = (
        n * stride if padding == "SAME" else (n - 1) * stride + size for n in IMAGE.shape[1:3]
    )

    def call(x):
        open_size = tf.tensordot(x, np.eye(3, dtype=np.float32), 1)  # as a Dense layer computes it
        shape = [tf.shape(x)[0], rows, columns, 4]
        if is_computed:
            given = tf.shape(open_size)
            for axis in (1, 2):
                shape[axis] = given[axis] * stride
                if padding == "VALID":
                    shape[axis] += size - stride
        return tf.nn.conv2d_transpose(open_size, kernel, shape, stride, padding)

    assert convert_and_check(call, IMAGE)["ConvTranspose"] == 1


def test_grouped_3d_convolution():
    kernel = _RNG.standard_normal((2, 2, 2, 2, 6)).astype(np.float32)

    def call(x):
        return tf.nn.conv3d(x, kernel, [1] * 5, "SAME")

    proto = onnx_of(model_of(call, VOLUME))
    assert nodes(proto)["Conv"] == 1
    parts = [
        tf.nn.conv3d(
            VOLUME[..., 2 * g : 2 * g + 2], kernel[..., 3 * g : 3 * g + 3], [1] * 5, "SAME"
        )
        for g in (0, 1)
    ]
    # A few hundred float32 products and sums on both sides.
    np.testing.assert_allclose(
        run_onnx(proto, {"x0": VOLUME})["y0"], np.concatenate(parts, -1), rtol=0, atol=300 * 2**-24
    )


def test_reference_that_no_cpu_computes_is_no_evidence():
    kernel = _RNG.standard_normal((2, 2, 5, 3)).astype(np.float32)
    model = model_of(lambda x: tf.nn.conv2d(x, kernel, 1, "VALID", data_format="NCHW"), IMAGE)
    judge = reference.make_reference(model, "f").function
    with pytest.raises(InconclusiveError, match="cannot run the reference") as e:
        reference.run(judge, ["x0"], {"x0": IMAGE})
    assert "--no-verify" in e.value.hint


@pytest.mark.parametrize(("old", "new"), [(7, 11), (3, 7), (49, 7), (6, 4), (5, 5)])
def test_scale_gives_the_size_asked_for(old, new):
    scale = exact_scale(old, new)
    assert scale.dtype == np.float32
    assert int(old * float(scale)) == new  # in double, as shape inference
    assert int(np.float32(old) * scale) == new  # in single, as ONNX Runtime
    assert abs(float(scale) - new / old) <= 2.0**-22 * new / old
    x = _RNG.standard_normal((3, old, 4, 2)).astype(np.float32)
    found = convert_and_check(lambda x: tf.image.resize(x, [new, 5]), x)
    assert found == {"Transpose": 2, "Resize": 1}


def test_names_are_those_of_the_model():
    def call(x):
        with tf.name_scope("net/dense/"):
            return tf.math.expm1(x)

    proto = onnx_of(model_of(call, ROWS))
    assert nodes(proto)["Tanh"] == 1
    assert all("net/dense/" in n.name for n in proto.graph.node)


def test_a_process_that_has_converted_before_writes_the_same_bytes():
    model = model_of(_network, IMAGE)
    first = onnx_of(model).SerializeToString(deterministic=True)
    onnx_of(model_of(lambda x: tf.pad(x, [[0, 0], [1, 1]]), ROWS))
    assert onnx_of(model).SerializeToString(deterministic=True) == first
