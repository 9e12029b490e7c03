"""Taking models apart and putting them together: nothing swapped, nothing lost, nothing left."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from mpexport.tf import concrete
from mpexport.tf.normalized import half_tensors
from tests.tf.support import (
    all_types,
    assert_same,
    entry_function,
    normalized,
    promoted_run,
    resaved,
    saved,
    spec,
    trained_run,
)

pytestmark = pytest.mark.tf

RNG = np.random.default_rng(0)
HALF_TYPES = {tf.float16.as_datatype_enum, tf.bfloat16.as_datatype_enum}


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def signature(*specs: tf.TensorSpec):
    return tf.function(input_signature=list(specs))


def no_half_left(model) -> bool:
    left = {t for f in model.program.library.values() for t in all_types(f)} & HALF_TYPES
    return not left and half_tensors(model.program) == []


class OddNames(tf.Module):
    """Inputs and outputs of one shape whose names are neither sorted nor Python identifiers."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable(floats(3, 3))

    @signature(spec("z", [None, 3]), spec("input-1", [None, 3]), spec("a/b", [None, 3]))
    def serve(self, first, second, third):
        product = tf.cast(first, tf.float16) @ tf.cast(self.w, tf.float16)
        return {"out-z": product, "b/a": second - 2 * third, "A 1": third, "_last": first}


def test_inputs_and_outputs_are_never_swapped(tmp_path):
    module = OddNames()
    model = normalized(saved(module, tmp_path / "m", {"serving_default": module.serve}))
    entry = model.program.entries["serving_default"]
    assert {s.name for s in entry.inputs} == {"z", "input-1", "a/b"}
    assert {s.name for s in entry.outputs} == {"out-z", "b/a", "A 1", "_last"}
    inputs = {"z": floats(2, 3), "input-1": floats(2, 3), "a/b": floats(2, 3)}
    outputs = promoted_run(model, "serving_default", inputs)
    assert_same(
        {"b/a": inputs["input-1"] - 2 * inputs["a/b"], "A 1": inputs["a/b"], "_last": inputs["z"]},
        {k: v for k, v in outputs.items() if k != "out-z"},
        exact=True,
    )
    np.testing.assert_allclose(outputs["out-z"], inputs["z"] @ module.w.numpy(), rtol=1e-5)
    assert_same(trained_run(model, "serving_default", inputs), outputs)
    assert no_half_left(model)
    again = resaved(model, tmp_path / "again")
    assert_same(outputs, promoted_run(again, "serving_default", inputs), exact=True)


class Names(tf.Module):
    @signature(spec("call", [2]), spec("arg_0", [2]), spec("arg_1", [2]), spec("capture_0", [2]))
    def serve(self, a, b, c, d):
        return {"call": a - b, "arg_0": c / d, "capture_0": a * d}


def test_names_that_we_use_ourselves(tmp_path):
    module = Names()
    model = normalized(saved(module, tmp_path / "m", {"serving_default": module.serve}))
    inputs = {n: floats(2) for n in ("call", "arg_0", "arg_1", "capture_0")}
    outputs = promoted_run(model, "serving_default", inputs)
    assert_same(trained_run(model, "serving_default", inputs), outputs, exact=True)


class SharedParts(tf.Module):
    """Two signatures over shared variables and a shared function; one of them under two keys."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable(floats(3, 3))
        self.half = tf.Variable(floats(3), dtype=tf.float16)

    @tf.function
    def core(self, x):
        product = tf.cast(x, tf.float16) @ tf.cast(self.w, tf.float16)
        return tf.nn.relu(product) + self.half

    @signature(spec("x", [None, 3]))
    def single(self, x):
        return {"y": tf.cast(self.core(x), tf.float32)}

    @signature(spec("u", [None, 3]), spec("x", [None, 3]))
    def pair(self, u, x):
        return {"y": tf.cast(self.core(x) - 2 * self.core(u), tf.float32)}


def test_signatures_share_variables_twins_and_functions(tmp_path):
    module = SharedParts()
    keys = {"serving_default": module.single, "alias": module.single, "pair": module.pair}
    model = normalized(saved(module, tmp_path / "m", keys))
    assert len(model.twins) == 1
    assert len(model.captures()) == 2
    assert model.weight_bytes() == 4 * (9 + 3)
    assert len(model.holder().resources) == 2
    inputs = {"x": floats(2, 3), "u": floats(2, 3)}
    again = resaved(model, tmp_path / "again")
    for key in keys:
        outputs = promoted_run(model, key, inputs)
        assert_same(trained_run(model, key, inputs), outputs)
        assert_same(outputs, promoted_run(again, key, inputs), exact=True)
    assert sorted(model.source.distinct()) == ["alias", "pair"]
    assert model.source.chosen is None


class HalfWeights(tf.Module):
    def __init__(self):
        super().__init__()
        bits = np.arange(2**16, dtype=np.uint16)
        finite = bits[np.isfinite(bits.view(np.float16))]
        self.h = tf.Variable(finite.view(np.float16))
        self.b = tf.Variable(tf.bitcast(bits[:0x7F80:7], tf.bfloat16))
        self.open = tf.Variable(tf.ones([2, 3], tf.float16), shape=tf.TensorShape([None, 3]))

    @signature()
    def serve(self):
        return {"h": self.h * 1, "b": self.b * 1, "o": self.open + 1, "count": tf.size(self.h)}


def test_twins_of_16_bit_variables_keep_every_value(tmp_path):
    """And a signature without inputs."""
    module = HalfWeights()
    model = normalized(saved(module, tmp_path / "m", {"serving_default": module.serve}))
    assert {str(t.dtype) for t in model.twins} == {"<dtype: 'float32'>"}
    outputs = promoted_run(resaved(model, tmp_path / "again"), "serving_default", {})
    assert outputs["h"].dtype == outputs["b"].dtype == np.float32
    np.testing.assert_array_equal(outputs["h"], module.h.numpy().astype(np.float32))
    wide = module.b.numpy().astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(outputs["b"], wide)
    np.testing.assert_array_equal(outputs["o"], np.full((2, 3), 2, np.float32))
    assert outputs["count"] == module.h.shape[0]
    assert no_half_left(model)


class Passengers(tf.Module):
    """Strings and integers that only travel along, and constants held as attributes."""

    def __init__(self):
        super().__init__()
        self.big = tf.constant(floats(30, 30), tf.float16)
        self.step = tf.constant(3)

    @signature(
        spec("id", [None], tf.string), spec("n", [], tf.int32), spec("x", [None, 30], tf.float16)
    )
    def serve(self, name, n, x):
        return {"id": name, "n": n + self.step, "x": x, "y": x @ self.big, "z": tf.identity(x)}


@pytest.mark.parametrize("io_dtype", ["float32", "keep"])
def test_inputs_that_pass_through(tmp_path, io_dtype):
    module = Passengers()
    path = saved(module, tmp_path / "m", {"serving_default": module.serve})
    model = normalized(path, io_dtype)
    inputs = {
        "id": np.array([b"a", b"\xff"], object),
        "n": np.int32(4),
        "x": floats(2, 30).astype(np.float16),
    }
    outputs = promoted_run(model, "serving_default", inputs)
    half = np.float16 if io_dtype == "keep" else np.float32
    assert {k: outputs[k].dtype.type for k in "xyz"} == dict.fromkeys("xyz", half)
    assert_same(trained_run(model, "serving_default", inputs), outputs)
    np.testing.assert_array_equal(outputs["x"], inputs["x"])
    assert outputs["id"].tolist() == [b"a", b"\xff"]
    assert outputs["n"] == 7
    shapes = {s.name: s.shape for s in model.program.entries["serving_default"].outputs}
    assert shapes == {"id": (None,), "n": (), "x": (None, 30), "y": (None, 30), "z": (None, 30)}
    assert bool(half_tensors(model.program)) == (io_dtype == "keep")


class Tables(tf.Module):
    def __init__(self, file):
        super().__init__()
        file.write_text("a\nb\nc\n")
        lines = tf.lookup.TextFileInitializer(
            str(file), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )  # fmt: skip
        self.index = tf.lookup.StaticVocabularyTable(lines, 2)
        pairs = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1.0, 2.0])
        self.score = tf.lookup.StaticHashTable(pairs, -1.0)
        self.e = tf.Variable(floats(5, 3))

    @signature(spec("word", [None], tf.string))
    def serve(self, word):
        rows = tf.cast(tf.gather(self.e, self.index.lookup(word)), tf.float16)
        return {"y": rows * tf.cast(self.score.lookup(word), tf.float16)[:, None]}


def test_tables_and_their_files(tmp_path):
    module = Tables(tmp_path / "words.txt")
    model = normalized(saved(module, tmp_path / "m", {"serving_default": module.serve}))
    inputs = {"word": np.array([b"a", b"c", b"unknown"], object)}
    outputs = promoted_run(model, "serving_default", inputs)
    assert_same(trained_run(model, "serving_default", inputs), outputs)
    again = resaved(model, tmp_path / "again")
    assert_same(outputs, promoted_run(again, "serving_default", inputs), exact=True)


class Loops(tf.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype
        self.w = tf.Variable(0.5 * np.eye(3, dtype=np.float32))
        self.h = tf.Variable(0.5 * np.eye(3), dtype=dtype)

    @signature(spec("x", [None, 3]), spec("k", [], tf.int32))
    def serve(self, x, k):
        def step(i, h):
            def inner():
                def body(j, q):
                    return j + 1, q @ tf.cast(self.w, self.dtype)

                shapes = [tf.TensorShape([]), tf.TensorShape([None, 3])]
                return tf.while_loop(lambda j, q: j < 2, body, [0, h], shape_invariants=shapes)[1]

            return i + 1, tf.cond(i % 2 == 0, lambda: h @ self.h + 1, inner)

        h = tf.cast(x, self.dtype)
        last = tf.while_loop(lambda i, h: i < k, step, [0, h])[1]
        return {"y": tf.cast(tf.cond(k > 2, lambda: last, lambda: h * 2), tf.float32)}


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_a_loop_in_a_branch_in_a_loop_in_a_branch(tmp_path, dtype):
    module = Loops(dtype)
    model = normalized(saved(module, tmp_path / "m", {"serving_default": module.serve}))
    assert no_half_left(model)
    x = floats(2, 3)
    outputs = promoted_run(model, "serving_default", {"x": x, "k": np.int32(5)})
    expected = x
    for i in range(5):
        expected = (
            expected @ module.h.numpy().astype(np.float32) + 1 if i % 2 == 0 else expected / 4
        )
    np.testing.assert_allclose(outputs["y"], expected, rtol=1e-6, atol=1e-6)


class Plain(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(floats(3, 3))

    @signature(spec("x", [None, None, 3]))
    def serve(self, x):
        return {"y": tf.nn.softmax(x @ self.w)}


def test_a_float32_model_is_left_alone(tmp_path):
    module = Plain()
    model = normalized(saved(module, tmp_path / "m", {"serving_default": module.serve}))
    assert {c.pass_name for c in model.changes} <= {"drop_dead_functions", "strip_trace_attributes"}
    assert "nothing is in 16 bits: the model is exported as it is" in model.notes
    assert model.twins == []
    assert entry_function(model.program, "serving_default") == entry_function(
        model.original, "serving_default"
    )
    entry = model.program.entries["serving_default"]
    assert [s.shape for s in entry.inputs] == [(None, None, 3)]
    inputs = {"x": floats(2, 4, 3)}
    outputs = promoted_run(model, "serving_default", inputs)
    assert_same(trained_run(model, "serving_default", inputs), outputs, exact=True)


@pytest.mark.parametrize("build", [OddNames, SharedParts, lambda: Loops(tf.float16)])
def test_normalizing_the_normalized_changes_nothing(tmp_path, build):
    module = build()
    serve = getattr(module, "serve", None) or module.pair
    model = normalized(saved(module, tmp_path / "m", {"serving_default": serve}))
    assert "promote_compute_dtype" in {c.pass_name for c in model.changes}
    again = resaved(model, tmp_path / "again")
    assert {c.pass_name for c in again.changes} <= {"drop_dead_functions", "strip_trace_attributes"}
    first, second = (m.program.entries["serving_default"] for m in (model, again))
    assert (first.inputs, first.outputs) == (second.inputs, second.outputs)


def test_the_weights_really_are_in_the_file(tmp_path):
    """Read by a stranger, without our code: a resource nobody tracks is written uninitialized."""
    module = SharedParts()
    model = normalized(saved(module, tmp_path / "m", {"pair": module.pair}))
    resaved(model, tmp_path / "again")
    inputs = {"x": floats(2, 3), "u": floats(2, 3)}
    outputs = promoted_run(model, "pair", inputs)
    del model
    stranger = tf.saved_model.load(str(tmp_path / "again"))
    feeds = {k: tf.constant(v) for k, v in inputs.items()}
    assert stranger.signatures["pair"](**feeds)["y"].numpy().tolist() == outputs["y"].tolist()
    reader = tf.train.load_checkpoint(str(tmp_path / "again" / "variables" / "variables"))
    stored = [reader.get_tensor(n) for n in reader.get_variable_to_shape_map() if "RIABLE" in n]
    assert any(np.array_equal(v, module.w.numpy()) for v in stored)
    assert any(np.array_equal(v, module.half.numpy().astype(np.float32)) for v in stored)


def test_a_program_can_be_put_together_again_and_again():
    """Function names are fresh each time: a rewritten function under its old name is ignored."""
    w = tf.Variable([2.0])
    function = tf.function(lambda x: {"y": x * w}).get_concrete_function(spec("x", [1]))
    program = concrete.take_apart({"f": function})
    factor = next(n for _, n in program.nodes() if n.op == "Mul")
    seen = set()
    for op, expected in (("Mul", 6.0), ("AddV2", 5.0), ("Sub", 1.0)):
        factor.op = op
        made = concrete.put_together(program.copy(), "test")["f"]
        assert made(tf.constant([3.0]))["y"].numpy() == [expected]
        seen.update(f.signature.name for f in made.graph.as_graph_def().library.function)
    assert len(seen) == 3
