"""Nodes that keep their element types: what stands on the borders of an island."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from mpexport.tf import pipeline
from tests.tf.support import (
    FLOAT,
    HALF,
    apply_and_check,
    entry_function,
    node,
    ops,
    spec,
    text_program,
    traced,
)

pytestmark = pytest.mark.tf

PASS = "promote_compute_dtype"


def library(nodes: str, ret: str, x: str = "DT_HALF", y: str = "DT_HALF") -> str:
    return f"""function {{
      signature {{ name: "f" input_arg {{ name: "x" type: {x} }}
                  output_arg {{ name: "y" type: {y} }} }}
      {nodes}
      ret {{ key: "y" value: "{ret}" }} }}"""


def op(name: str, kind: str, *inputs: str, **types: str) -> str:
    reads = " ".join(f'input: "{i}"' for i in inputs)
    attrs = " ".join(f'attr {{ key: "{k}" value {{ type: {v} }} }}' for k, v in types.items())
    return f'node_def {{ name: "{name}" op: "{kind}" {reads} {attrs} }}'


def bitcast(name: str, source: str, t: str, to: str) -> str:
    return op(name, "Bitcast", source, T=t, type=to)


def edges(program) -> dict[str, list[str]]:
    return {n.name: list(n.input) for n in entry_function(program).node_def}


def test_bits_are_read_from_16_bits_again():
    text = library(
        op("r", "Relu", "x", T="DT_HALF") + bitcast("b", "r:activations:0", "DT_HALF", "DT_UINT16"),
        "b:output:0",
        y="DT_UINT16",
    )
    values = np.float16([1, -2, 65504, 6e-8])
    program, changes = apply_and_check(PASS, text_program(text), {"x": values}, exact=True)
    assert edges(program) == {
        "r": ["x"],
        "b": ["b/island_in_0:y:0"],
        "b/island_in_0": ["r:activations:0"],
    }
    cast = node(program, "b/island_in_0").attr
    assert (cast["SrcT"].type, cast["DstT"].type) == (FLOAT, HALF)
    assert node(program, "r").attr["T"].type == FLOAT
    assert node(program, "b").attr["T"].type == HALF
    assert [c.where for c in changes if c.kind == "island"] == ["f/b"]


def test_bits_become_values_before_they_are_read():
    nodes = bitcast("b", "x", "DT_UINT16", "DT_HALF") + op("r", "Relu", "b:output:0", T="DT_HALF")
    text = library(nodes, "b:output:0", x="DT_UINT16")
    program, _ = apply_and_check(
        PASS, text_program(text), {"x": np.uint16([0x3C00, 0xC000])}, exact=True
    )
    fdef = entry_function(program)
    assert edges(program)["r"] == ["b/island_out_0:y:0"]
    assert fdef.ret["y"] == "b/island_out_0:y:0"
    assert fdef.signature.output_arg[0].type == FLOAT


def test_two_islands_in_a_row():
    nodes = (
        bitcast("a", "x", "DT_HALF", "DT_UINT16")
        + bitcast("b", "a:output:0", "DT_UINT16", "DT_HALF")
        + bitcast("c", "b:output:0", "DT_HALF", "DT_UINT16")
        + bitcast("d", "c:output:0", "DT_UINT16", "DT_HALF")
    )
    inputs = {"x": np.float16([0.1, 3, -np.inf])}
    program, _ = apply_and_check(
        PASS, text_program(library(nodes, "d:output:0")), inputs, exact=True
    )
    assert edges(program)["c"] == ["c/island_in_0:y:0"]
    assert edges(program)["c/island_in_0"] == ["b/island_out_0:y:0"]
    assert edges(program)["b"] == ["a:output:0"]


def test_a_cast_that_leads_in_or_out_already_is_enough():
    nodes = (
        op("h", "Cast", "x", SrcT="DT_FLOAT", DstT="DT_HALF")
        + bitcast("a", "h:y:0", "DT_HALF", "DT_UINT16")
        + bitcast("b", "a:output:0", "DT_UINT16", "DT_HALF")
        + op("w", "Cast", "b:output:0", SrcT="DT_HALF", DstT="DT_FLOAT")
    )
    text = library(nodes, "w:y:0", x="DT_FLOAT", y="DT_FLOAT")
    program, changes = apply_and_check(
        PASS, text_program(text), {"x": np.float32([0.1])}, exact=True
    )
    assert changes == []
    assert ops(program) == ["Cast", "Bitcast", "Bitcast", "Cast"]


def test_a_cast_that_others_read_too_is_promoted():
    nodes = (
        op("h", "Cast", "x", SrcT="DT_FLOAT", DstT="DT_HALF")
        + bitcast("a", "h:y:0", "DT_HALF", "DT_UINT16")
        + op("r", "Relu", "h:y:0", T="DT_HALF")
        + op("k", "Cast", "a:output:0", SrcT="DT_UINT16", DstT="DT_HALF")
        + op("s", "AddV2", "r:activations:0", "k:y:0", T="DT_HALF")
    )
    text = library(nodes, "s:z:0", x="DT_FLOAT")
    program, _ = apply_and_check(PASS, text_program(text), {"x": np.float32([0.25, -1])})
    assert edges(program)["a"] == ["a/island_in_0:y:0"]
    assert edges(program)["r"] == ["h:y:0"]
    assert node(program, "h").attr["DstT"].type == FLOAT


def test_names_that_are_taken_are_not_taken_again():
    nodes = bitcast("b", "b/island_in_0", "DT_HALF", "DT_UINT16")
    text = library(nodes, "b:output:0", y="DT_UINT16").replace('name: "x"', 'name: "b/island_in_0"')
    program, _ = apply_and_check(PASS, text_program(text))
    assert [n.name for _, n in program.nodes()] == ["b", "b/island_in_0_1"]


def test_control_inputs_of_an_island_stay():
    nodes = op("n", "NoOp") + bitcast("b", "x", "DT_HALF", "DT_UINT16").replace(
        'input: "x"', 'input: "x" input: "^n"'
    )
    program, _ = apply_and_check(PASS, text_program(library(nodes, "b:output:0", y="DT_UINT16")))
    assert edges(program)["b"] == ["b/island_in_0:y:0", "^n"]


@pytest.mark.parametrize("function", [tf.io.serialize_tensor, tf.fingerprint])
def test_other_ops_on_bits(function):
    program = traced(
        lambda x: {"y": function(tf.cast(x, tf.float16)[:, None] * 2)}, spec("x", [None])
    )
    changed, changes = apply_and_check(PASS, program, {"x": np.float32([0.1, 7])}, exact=True)
    assert [c.detail for c in changes if c.kind == "island"]
    assert "Cast" in ops(changed)


def test_a_table_keeps_its_element_type():
    """Its values were put in as they are; only what is looked up is widened."""
    text = library(
        op("t", "AnonymousHashTable", key_dtype="DT_INT64", value_dtype="DT_HALF")
        + op(
            "l", "LookupTableFindV2", "t:table_handle:0", "x", "d", Tin="DT_INT64", Tout="DT_HALF"
        ),
        "l:values:0",
        x="DT_INT64",
    ).replace("output_arg", 'input_arg { name: "d" type: DT_HALF } output_arg')
    program, changes = apply_and_check(PASS, text_program(text))
    assert node(program, "t").attr["value_dtype"].type == HALF
    assert node(program, "l").attr["Tout"].type == HALF
    assert edges(program)["l"] == ["t:table_handle:0", "x", "l/island_in_2:y:0"]
    assert entry_function(program).ret["y"] == "l/island_out_0:y:0"
    assert [c.where for c in changes if c.kind == "island"] == ["f/l"]


def test_the_whole_stage_leaves_only_the_islands_in_16_bits():
    def f(x):
        h = tf.cast(x, tf.float16) * 2
        return {"y": tf.cast(tf.bitcast(tf.bitcast(h, tf.uint16) | 1, tf.float16) + h, tf.float32)}

    program = traced(f, spec("x", [None]))
    pipeline.run(program, "normalize", pipeline.PassContext())
    casts = [n.name for _, n in program.nodes() if n.op == "Cast"]
    assert casts == ["Bitcast/island_in_0", "Bitcast_1/island_out_0"]
    context = pipeline.PassContext()
    assert pipeline.run(program, "normalize", context) == context.changes == []
