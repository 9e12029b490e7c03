"""SavedModels without Keras: what ``tf.Module`` and ``tf.function`` let people write, in half."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.conformance.case import TARGETS, Build, Case, Saved, integers, normal, uniform

_TABLE = "hashes strings that a table lacks"
_CONVERTED = TARGETS[1:]
_STATE = "keeps state between calls"


class _Half:
    """Weights in float32 that are cast where they are used, as mixed precision does by hand."""

    def __init__(self, b: Build) -> None:
        import tensorflow as tf

        self.tf, self.rng, self.half = tf, b.rng, tf.as_dtype(b.half)
        self.module = tf.Module()
        self._count = 0

    def weight(self, *shape: int) -> Any:
        values = np.float32(self.rng.standard_normal(shape) / np.sqrt(shape[0]))
        variable = self.tf.Variable(values)
        setattr(self.module, f"w{self._count}", variable)
        self._count += 1
        return variable

    def cast(self, x: Any) -> Any:
        return self.tf.cast(x, self.half)

    def dense(self, x: Any, w: Any) -> Any:
        return self.tf.matmul(self.cast(x), self.cast(w))

    def save(self, function: Any, *specs: Any, **named: Any) -> Saved:
        """One signature of a function that gives a dict."""
        concrete = self.tf.function(function).get_concrete_function(*specs, **named)
        return Saved(self.module, {"serving_default": concrete})

    def spec(self, name: str, *shape: int | None, dtype: str = "float32") -> Any:
        return self.tf.TensorSpec(shape, dtype, name=name)


def _case(name: str, build: Callable[[_Half], Saved], **options: Any) -> Case:
    options.setdefault("literals", False)
    return Case(f"modules/{name}", lambda b: build(_Half(b)), keras="", **options)


def _mlp(m: _Half) -> Saved:
    w, v = m.weight(6, 8), m.weight(8, 3)
    return m.save(
        lambda x: {"y": m.tf.cast(m.dense(m.tf.nn.relu(m.dense(x, w)), v), "float32")},
        m.spec("x", None, 6),
    )


def _half_outputs(m: _Half) -> Saved:
    w = m.weight(6, 4)
    return m.save(lambda x: {"y": m.dense(x, w)}, m.spec("x", None, 6))


def _nested(m: _Half) -> Saved:
    w = m.weight(4, 3)

    def call(image: Any, size: Any) -> Any:
        y = m.dense(image, w) * m.cast(size)
        parts = m.tf.split(y, 3, -1)
        return {"z": parts[2], "a": parts[0] - 2 * parts[1], "m": y}

    return m.save(call, m.spec("image", None, 4), m.spec("size", None, 1))


def _equal_shapes(m: _Half) -> Saved:
    """Two inputs and three outputs of one shape, in no alphabetical order: none may be swapped."""
    w = m.weight(5, 5)

    def call(zulu: Any, alpha: Any) -> Any:
        a, z = m.dense(alpha, w), m.dense(zulu, w)
        return {"second": a - 2 * z, "first": 3 * a, "third": z + m.cast(7)}

    return m.save(call, m.spec("zulu", None, 5), m.spec("alpha", None, 5))


def _several_signatures(m: _Half) -> Saved:
    w, v = m.weight(6, 4), m.weight(4, 2)
    tf = m.tf
    x = m.spec("x", None, 6)
    return Saved(
        m.module,
        {
            "encode": tf.function(lambda x: {"code": m.dense(x, w)}).get_concrete_function(x),
            "score": tf.function(
                lambda x: {"score": m.dense(tf.tanh(m.dense(x, w)), v)}
            ).get_concrete_function(x),
        },
    )


def _optional(m: _Half) -> Saved:
    w = m.weight(6, 4)

    def call(x: Any, scale: Any = None, training: bool = False) -> Any:
        y = m.dense(x, w)
        y = y if scale is None else y * m.cast(scale)
        return {"y": m.tf.nn.dropout(y, 0.5) if training else y}

    return m.save(call, m.spec("x", None, 6))


def _while(m: _Half) -> Saved:
    w = m.weight(4, 4)

    def call(x: Any) -> Any:
        def step(i: Any, y: Any) -> Any:
            return i + 1, m.tf.tanh(m.dense(y, w))

        return {"y": m.tf.while_loop(lambda i, y: i < 5, step, (0, m.cast(x)))[1]}

    return m.save(call, m.spec("x", None, 4))


def _while_on_data(m: _Half) -> Saved:
    """Goes on until a half value falls below a limit: the number of rounds is the data's."""
    tf = m.tf

    def call(x: Any) -> Any:
        def step(i: Any, y: Any) -> Any:
            return i + 1, y * m.cast(0.5)

        start = (tf.constant(0), m.cast(tf.abs(x) + 1))
        i, y = tf.while_loop(lambda i, y: tf.reduce_max(y) > m.cast(0.37), step, start)
        return {"rounds": i[None], "y": y}

    return m.save(call, m.spec("x", None, 4))


def _cond(m: _Half) -> Saved:
    w, v = m.weight(4, 3), m.weight(4, 3)
    tf = m.tf

    def call(x: Any, flag: Any) -> Any:
        y = tf.cond(flag, lambda: m.dense(x, w), lambda: tf.nn.relu(m.dense(x, v)))
        return {"y": tf.cast(y, "float32")}

    return m.save(call, m.spec("x", None, 4), m.spec("flag", dtype="bool"))


def _autograph(m: _Half) -> Saved:
    """Python control flow that autograph turns into the graph's, one in the other."""
    w = m.weight(4, 4)
    tf = m.tf

    def call(x: Any) -> Any:
        y = m.cast(x)
        for i in tf.range(3):
            if i % 2 == 0:
                y = tf.nn.relu(m.dense(y, w)) + m.cast(1)
            else:
                y = y - m.cast(tf.cast(i, tf.float32))
        return {"y": y}

    return m.save(call, m.spec("x", None, 4))


def _tensor_array(m: _Half) -> Saved:
    w = m.weight(4, 4)
    tf = m.tf

    def call(x: Any) -> Any:
        steps = tf.unstack(tf.transpose(m.cast(x), [1, 0, 2]), 5)
        states = tf.TensorArray(m.half, 5, element_shape=[None, 4])
        y = tf.zeros_like(steps[0])
        inputs = tf.TensorArray(m.half, 5).unstack(tf.stack(steps))

        def step(i: Any, y: Any, states: Any) -> Any:
            y = tf.tanh(m.dense(y, w) + inputs.read(i))
            return i + 1, y, states.write(i, y)

        _, _, states = tf.while_loop(lambda i, *_: i < 5, step, (0, y, states))
        return {"y": tf.transpose(states.stack(), [1, 0, 2])}

    return m.save(call, m.spec("x", None, 5, 4))


def _map(m: _Half) -> Saved:
    w = m.weight(4, 3)

    def call(x: Any) -> Any:
        return {"y": m.tf.map_fn(lambda row: m.dense(row, w), m.cast(x), m.half)}

    return m.save(call, m.spec("x", None, 2, 4))


def _scan(m: _Half) -> Saved:
    w = m.weight(4, 4)

    def call(x: Any) -> Any:
        first = m.tf.zeros_like(m.cast(x)[:, 0])
        steps = m.tf.transpose(m.cast(x), [1, 0, 2])
        return {"y": m.tf.scan(lambda y, x: m.tf.tanh(m.dense(y, w) + x), steps, first)}

    return m.save(call, m.spec("x", None, 5, 4))


def _number_table(m: _Half) -> Saved:
    tf = m.tf
    keys, values = tf.constant([3, 7, 9], tf.int64), tf.constant([0, 1, 2], tf.int64)
    initializer = tf.lookup.KeyValueTensorInitializer(keys, values)
    m.module.table = table = tf.lookup.StaticHashTable(initializer, 3)
    w = m.weight(4, 6)

    def call(ids: Any) -> Any:
        return {"y": m.cast(tf.gather(w, table.lookup(ids)))}

    return m.save(call, m.spec("ids", None, 5, dtype="int64"))


def _string_table(m: _Half) -> Saved:
    tf = m.tf
    initializer = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([0, 1], tf.int64))
    m.module.table = table = tf.lookup.StaticVocabularyTable(initializer, 1)
    w = m.weight(3, 6)
    return m.save(
        lambda words: {"y": m.cast(tf.gather(w, table.lookup(words)))},
        m.spec("words", None, 5, dtype="string"),
    )


def _state(m: _Half) -> Saved:
    """Counts its calls, and gives the sum of what it has seen."""
    w = m.weight(4, 3)
    m.module.total = total = m.tf.Variable(m.tf.zeros([3]))

    def call(x: Any) -> Any:
        y = m.tf.reduce_sum(m.tf.cast(m.dense(x, w), "float32"), 0)
        return {"y": total.assign_add(y)}

    return m.save(call, m.spec("x", None, 4))


def _half_variable(m: _Half) -> Saved:
    values = m.rng.standard_normal((4, 3)).astype(np.float16)
    # Both 16-bit types and the twin's hold these numbers.
    m.module.kernel = kernel = m.tf.Variable(m.tf.cast(np.round(values * 8) / 8, m.half))
    return m.save(lambda x: {"y": m.tf.matmul(m.cast(x), kernel)}, m.spec("x", None, 4))


def _half_input(m: _Half) -> Saved:
    w = m.weight(4, 3)
    spec = m.spec("x", None, 4, dtype=m.half.name)
    return m.save(lambda x: {"y": m.dense(x, w), "same": x}, spec)


def _passed_through(m: _Half) -> Saved:
    """An output that is an input, one that is a constant, one that comes twice."""
    w = m.weight(4, 3)

    def call(x: Any) -> Any:
        y = m.dense(x, w)
        return {"x_again": m.tf.identity(x), "version": m.tf.constant([3.0]), "y": y, "z": y}

    return m.save(call, m.spec("x", None, 4))


def _numbers(m: _Half) -> Saved:
    """Outputs of integers and booleans, and 64-bit ids."""
    w = m.weight(9, 4)

    def call(ids: Any) -> Any:
        y = m.cast(m.tf.gather(w, ids))
        best = m.tf.argmax(y, -1)
        return {"best": best, "positive": m.tf.reduce_sum(y, -1) > m.cast(0), "y": y}

    return m.save(call, m.spec("ids", None, 3, dtype="int64"))


def _pixels(m: _Half) -> Saved:
    w = m.weight(12, 3)

    def call(image: Any) -> Any:
        y = m.cast(image) / m.cast(255) - m.cast(0.5)
        return {"y": m.dense(m.tf.reshape(y, [-1, 12]), w)}

    return m.save(call, m.spec("image", None, 2, 2, 3, dtype="uint8"))


def _scalar(m: _Half) -> Saved:
    w = m.weight(4, 3)

    def call(x: Any, temperature: Any) -> Any:
        return {"y": m.tf.nn.softmax(m.dense(x, w) / m.cast(temperature))}

    return m.save(call, m.spec("x", None, 4), m.spec("temperature"))


def _open_axes(m: _Half) -> Saved:
    w = m.weight(4, 3)

    def call(x: Any) -> Any:
        y = m.dense(m.tf.reshape(x, [-1, 4]), w)
        size = m.tf.shape(x)
        return {"y": m.tf.reshape(y, m.tf.concat([size[:2], [3]], 0))}

    return m.save(call, m.spec("x", None, None, 4))


def _odd_names(m: _Half) -> Saved:
    w = m.weight(4, 3)

    def call(input_1: Any, serving_default_x: Any) -> Any:
        y = m.dense(input_1 + 2 * serving_default_x, w)
        return {"logits/main:0": y, "größe": m.tf.reduce_sum(y, -1), "a b": -y}

    return m.save(call, m.spec("input_1", None, 4), m.spec("serving_default_x", None, 4))


def _big_ids(m: _Half) -> Saved:
    """Ids that half can't hold, kept as integers beside half numbers."""
    table = m.weight(5000, 4)

    def call(ids: Any, x: Any) -> Any:
        return {"y": m.cast(m.tf.gather(table, ids)) * m.cast(x)}

    return m.save(call, m.spec("ids", None, 3, dtype="int32"), m.spec("x", None, 1, 4))


def _large_sums(m: _Half) -> Saved:
    """Beyond 65504 in float16 on the way, not in the end: right in float32, infinite as trained."""
    w = m.weight(6, 4)

    def call(x: Any) -> Any:
        y = m.dense(x, w) * m.cast(30000)
        return {"y": m.tf.cast(y, "float32") * 1e-4}

    return m.save(call, m.spec("x", None, 6))


CASES = [
    _case("mlp", _mlp, fast=True),
    _case("half-outputs", _half_outputs),
    _case("nested", _nested),
    _case("equal-shapes", _equal_shapes, fast=True),
    _case("several-signatures", _several_signatures, signature="score"),
    _case("optional-arguments", _optional),
    _case("while", _while),
    _case("while-on-data", _while_on_data),
    _case("cond", _cond, feeds={"flag": lambda rng, batch: np.bool_(batch > 1)}),
    _case("autograph", _autograph),
    _case("tensor-array", _tensor_array),
    _case("map", _map),
    _case("scan", _scan),
    _case("number-table", _number_table, feeds={
        "ids": lambda rng, batch: rng.choice(np.int64([3, 7, 9]), (batch, 5))}),
    _case("string-table", _string_table, refused=dict.fromkeys(_CONVERTED, _TABLE), feeds={
        "words": lambda rng, batch: rng.choice(["a", "b", "other"], (batch, 5)).astype("S5")}),
    _case("state", _state, refused=dict.fromkeys(_CONVERTED, _STATE)),
    _case("half-variable", _half_variable),
    _case("half-input", _half_input, feeds={"x": normal(4)}),
    _case("passed-through", _passed_through),
    _case("numbers", _numbers, feeds={"ids": integers(0, 9, 3, dtype="int64")}),
    _case("pixels", _pixels, feeds={"image": integers(0, 256, 2, 2, 3, dtype="uint8")}),
    _case("scalar-input", _scalar, feeds={"temperature": lambda rng, batch: np.float32(0.7)}),
    _case("open-axes", _open_axes, feeds={"x": normal(3, 4)}),
    _case("odd-names", _odd_names),
    _case("big-ids", _big_ids, feeds={"ids": integers(0, 5000, 3)}),
    _case("large-sums", _large_sums, feeds={"x": uniform(1, 2, 6)}),
]  # fmt: skip
