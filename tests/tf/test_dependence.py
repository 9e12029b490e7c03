"""Outputs that are the same whatever goes in."""

from __future__ import annotations

import pytest
import tensorflow as tf

from mpexport.tf.dependence import constant_outputs
from tests.tf.support import spec, traced

pytestmark = pytest.mark.tf

X = spec("x", [None, 3])


def test_what_no_input_leads_to_is_constant():
    @tf.function
    def both(x, y):
        return x + 1, y * 2

    @tf.function
    def inner(x):
        return both(x, tf.constant([1.0, 2.0]))

    def call(x):
        moved, fixed = inner(x)
        return {"moved": moved, "fixed": fixed, "version": tf.constant(3), "size": tf.shape(x)}

    assert constant_outputs(traced(call, X), "f") == ["fixed", "version"]


def test_what_is_drawn_or_counted_is_not():
    def call(x):
        drawn = tf.random.uniform([2])
        looped = tf.while_loop(lambda i: i < 3, lambda i: [i + 1], [tf.constant(0)])[0]
        return {"drawn": drawn, "looped": looped, "x": x}

    assert constant_outputs(traced(call, X), "f") == []


@pytest.mark.parametrize(("assigns", "expected"), [(False, ["weights"]), (True, [])])
def test_a_variable_is_constant_unless_something_is_assigned(assigns, expected):
    variable = tf.Variable([1.0, 2.0, 3.0])

    def call(x):
        if assigns:
            variable.assign_add([1.0, 1.0, 1.0])
        return {"weights": variable * 2, "y": x * variable}

    assert constant_outputs(traced(call, X), "f") == expected
