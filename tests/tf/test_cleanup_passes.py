"""drop_identity_casts, drop_dead_functions, strip_trace_attributes, signature_dtype."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from mpexport.tf import pipeline
from tests.tf.support import (
    FLOAT,
    HALF,
    apply_and_check,
    assert_same,
    entry_function,
    ops,
    run,
    spec,
    text_program,
    traced,
)

pytestmark = pytest.mark.tf

CASTS = """
function {
  signature { name: "f" input_arg { name: "x" type: DT_FLOAT }
    output_arg { name: "y" type: DT_FLOAT } output_arg { name: "z" type: DT_FLOAT }
    control_output: "p" }
  node_def { name: "a" op: "Cast" input: "x" %s }
  node_def { name: "b" op: "Cast" input: "a:y:0" %s }
  node_def { name: "r" op: "Relu" input: "b:y:0" attr { key: "T" value { type: DT_FLOAT } }
    attr { key: "_class" value { list { s: "loc:@b" s: "loc:@p" } } } }
  node_def { name: "c" op: "Cast" input: "r:activations:0" %s }
  node_def { name: "n" op: "NoOp" input: "^a" input: "^c" input: "^p" }
  node_def { name: "p" op: "NoOp" attr { key: "_class" value { list { s: "loc:@a" } } } }
  node_def { name: "d" op: "Cast" input: "x" input: "^n" %s }
  node_def { name: "h" op: "Cast" input: "d:y:0"
    attr { key: "SrcT" value { type: DT_FLOAT } } attr { key: "DstT" value { type: DT_INT32 } } }
  node_def { name: "s" op: "Square" input: "c:y:0" input: "^c" input: "^r" input: "^h"
    attr { key: "T" value { type: DT_FLOAT } } }
  ret { key: "y" value: "s:y:0" }
  ret { key: "z" value: "b:y:0" }
  control_ret { key: "p" value: "c" }
}
"""
SAME = """attr { key: "SrcT" value { type: DT_FLOAT } }
          attr { key: "DstT" value { type: DT_FLOAT } }"""


def test_casts_are_dropped_and_every_reader_reads_on():
    inputs = {"x": np.float32([-1, 2])}
    program, changes = apply_and_check(
        "drop_identity_casts", text_program(CASTS.replace("%s", SAME)), inputs, exact=True
    )
    fdef = entry_function(program)
    edges = {n.name: list(n.input) for n in fdef.node_def}
    assert edges == {
        "r": ["x"],  # past a chain of two
        "n": ["^r", "^p"],  # ^a led to an argument, which needs no control; ^c to r
        "p": [],
        "d": ["x", "^n"],  # an Identity now: it orders something
        "h": ["d:output:0"],
        "s": ["r:activations:0", "^r", "^h"],  # ^c became ^r, which stands there already
    }
    assert ops(program) == ["Relu", "NoOp", "NoOp", "Identity", "Cast", "Square"]
    assert dict(fdef.ret) == {"y": "s:y:0", "z": "x"}
    assert dict(fdef.control_ret) == {"p": "r"}
    nodes = {n.name: n for n in fdef.node_def}
    assert list(nodes["r"].attr["_class"].list.s) == [b"loc:@p"]
    assert "_class" not in nodes["p"].attr
    assert list(nodes["d"].attr) == ["T"]
    assert {(c.kind, c.where) for c in changes} == {
        ("cast-removed", "f/a"),
        ("cast-removed", "f/b"),
        ("cast-removed", "f/c"),
        ("cast-to-identity", "f/d"),
    }


def test_dead_functions_are_dropped_and_live_ones_are_not():
    call = """node_def { name: "%s" op: "%s" input: "x" %s }"""
    tin = 'attr { key: "%s" value { list { type: DT_FLOAT } } }'
    by_attr = tin % "Tin" + tin % "Tout" + 'attr { key: "f" value { func { name: "called" } } }'
    function = """
    function { signature { name: "%s" input_arg { name: "x" type: DT_FLOAT }
                           output_arg { name: "y" type: DT_FLOAT } }
               %s ret { key: "y" value: "%s" } }
    """
    text = (
        function % ("f", call % ("c", "PartitionedCall", by_attr), "c:output:0")
        + function % ("called", call % ("d", "by_name", ""), "d:y:0")
        + function % ("by_name", "", "x")
        + function % ("gradient", call % ("g", "only_there", ""), "g:y:0")
        + function % ("only_there", "", "x")
    )
    program, changes = apply_and_check("drop_dead_functions", text_program(text))
    assert list(program.library) == ["f", "called", "by_name"]
    assert [c.where for c in changes] == ["gradient", "only_there"]


def test_a_function_that_calls_itself_ends_the_walk():
    text = """
    function { signature { name: "f" input_arg { name: "x" type: DT_FLOAT }
                           output_arg { name: "y" type: DT_FLOAT } }
      node_def { name: "c" op: "f" input: "x" } ret { key: "y" value: "c:y:0" } }"""
    program, changes = apply_and_check("drop_dead_functions", text_program(text))
    assert list(program.library) == ["f"]
    assert changes == []


def test_trace_attributes_go():
    @tf.function(jit_compile=True)
    def compiled(x):
        return x * 2

    @tf.custom_gradient
    def odd(x):
        return x + 1, lambda d: d * 2

    program = traced(lambda x: {"y": compiled(x) + odd(x)}, spec("x", [None]))
    before = [(n.op, sorted(n.attr)) for _, n in program.nodes()]
    assert any("_XlaMustCompile" in attrs for _, attrs in before)
    assert any("_gradient_op_type" in attrs for _, attrs in before)
    inputs = {"x": np.float32([1, 2])}
    changed, changes = apply_and_check("strip_trace_attributes", program, inputs, exact=True)
    for fdef, node in changed.nodes():
        assert not {"_XlaMustCompile", "_gradient_op_type"} & {*node.attr, *fdef.attr}
        assert not node.HasField("experimental_type")
    assert {c.detail for c in changes} >= {"_XlaMustCompile", "_gradient_op_type"}


def test_what_a_cpu_runs_in_xla_only_stays_compiled_until_a_format_asks():
    @tf.function(jit_compile=True)
    def grouped(x, k):
        return tf.raw_ops.Conv3D(input=x, filter=k, strides=[1] * 5, padding="VALID")

    program = traced(
        lambda x, k: {"y": grouped(x, k)}, spec("x", [1, 3, 3, 3, 4]), spec("k", [2, 2, 2, 2, 4])
    )
    rng = np.random.default_rng(0)
    inputs = {n: rng.standard_normal(s).astype(np.float32)
              for n, s in (("x", (1, 3, 3, 3, 4)), ("k", (2, 2, 2, 2, 4)))}  # fmt: skip
    stripped, _ = apply_and_check("strip_trace_attributes", program, inputs, exact=True)

    def compiled(program):
        calls = [n for _, n in program.nodes() if "_XlaMustCompile" in n.attr]
        return len(calls), sum("_XlaMustCompile" in f.attr for f in program.library.values())

    assert compiled(stripped) == (1, 1)
    changes = pipeline.run(stripped, "none", pipeline.PassContext(), extra=["allow_inlining"])
    assert compiled(stripped) == (0, 0)
    assert {c.detail for c in changes} >= {"_XlaMustCompile"}


def test_inferred_types_go():
    text = """
    function { signature { name: "f" input_arg { name: "x" type: DT_FLOAT }
                           output_arg { name: "y" type: DT_FLOAT } }
      node_def { name: "r" op: "Relu" input: "x" attr { key: "T" value { type: DT_FLOAT } }
                 experimental_type { type_id: TFT_TENSOR } }
      ret { key: "y" value: "r:activations:0" } }"""
    program, changes = apply_and_check("strip_trace_attributes", text_program(text))
    assert changes == []
    assert not entry_function(program).node_def[0].HasField("experimental_type")


def half_in_half_out():
    program = traced(
        lambda x, i: {"same": x, "double": x * 2, "count": i},
        spec("x", [2], tf.float16),
        spec("i", [], tf.int32),
    )
    apply = pipeline.all_passes()["promote_compute_dtype"].apply
    apply(program, pipeline.PassContext())
    return program


def test_signatures_are_widened():
    program, changes = apply_and_check("signature_dtype", half_in_half_out())
    entry = program.entries["f"]
    assert [s.dtype for s in entry.inputs] == ["float32", "int32"]
    assert [(s.name, s.dtype) for s in entry.outputs] == [
        ("count", "int32"),
        ("double", "float32"),
        ("same", "float32"),
    ]
    assert [(c.kind, c.where) for c in changes] == [
        ("input-widened", "f/x"),
        ("output-widened", "f/double"),
        ("output-widened", "f/same"),
    ]
    assert "Cast" not in ops(program)


def test_signatures_can_be_kept():
    keep = pipeline.PassContext(io_dtype="keep")
    program, _ = apply_and_check("signature_dtype", half_in_half_out(), context=keep)
    entry = program.entries["f"]
    assert [s.dtype for s in entry.inputs] == ["float16", "int32"]
    fdef = entry_function(program)
    assert fdef.signature.input_arg[0].type == HALF
    widened = next(n for n in fdef.node_def if n.input == ["x"])
    assert (widened.op, widened.attr["DstT"].type) == ("Cast", FLOAT)
    assert ops(program).count("Cast") == 3
    values = np.float16([0.1, -3])
    outputs = run(program, "f", {"x": values, "i": np.int32(4)})
    assert outputs["same"].dtype == np.float16
    expected = {"same": values, "double": values * 2, "count": np.int32(4)}
    assert_same(expected, outputs, exact=True)


def test_two_signatures_may_be_one_function():
    """Casting its boundary twice would narrow a float32 that was narrowed before."""
    program = half_in_half_out()
    program.entries["g"] = program.copy().entries["f"]
    program.entries["g"].key = "g"
    keep = pipeline.PassContext(io_dtype="keep")
    changed, _ = apply_and_check("signature_dtype", program, context=keep)
    assert ops(changed).count("Cast") == 3
