"""Small programs for the tests of the graph passes, and the checks that hold for every pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework import function_pb2

from mpexport.dtypes import FLOAT16
from mpexport.findings import Change
from mpexport.signature import TensorSpec
from mpexport.sources import SourceOptions
from mpexport.tf import concrete, pipeline, reference, resources
from mpexport.tf.graph import (
    HALF_TYPES,
    EntryPoint,
    FunctionDef,
    NodeDef,
    Program,
    called_functions,
    input_types,
    output_types,
    tensor_node,
    where,
)
from mpexport.tf.load import LoadedModel, load
from mpexport.tf.lowering import with_shapes
from mpexport.tf.normalized import NormalizedModel, normalize

HALF = tf.float16.as_datatype_enum
BF16 = tf.bfloat16.as_datatype_enum
FLOAT = tf.float32.as_datatype_enum
DOUBLE = tf.float64.as_datatype_enum
RESOURCE = tf.resource.as_datatype_enum

# A handful of half operations, on values of about one.
HALF_ROUNDING = 8 * FLOAT16.unit_roundoff


def text_program(text: str, shape: tuple[int | None, ...] = (None,)) -> Program:
    """A program without captures whose entry point is the first function of a FunctionDefLibrary.

    Args:
        text: The library as protobuf text; keep ``ret`` in the order of the output arguments.
        shape: Of all inputs and outputs.
    """
    functions = text_format.Parse(text, function_pb2.FunctionDefLibrary()).function
    library = {f.signature.name: f for f in functions}
    first = functions[0].signature

    def specs(args: Any) -> list[TensorSpec]:
        return [TensorSpec(a.name, shape, tf.as_dtype(a.type).name) for a in args]

    entry = EntryPoint("f", first.name, specs(first.input_arg), specs(first.output_arg), [])
    return Program(library, {"f": entry})


def traced(function: Any, *specs: tf.TensorSpec) -> Program:
    """The program of a Python function that returns a dict; its only signature is ``f``.

    Specs need names. Variables that the function captures must be kept alive by the caller.
    """
    wrapped = tf.function(function, autograph=True)
    return concrete.take_apart({"f": wrapped.get_concrete_function(*specs)})


def annotated(function: Any) -> Program:
    """The program of a function of ``x``, float32 [None, 6], with the shapes that tracing knows."""
    call = tf.function(lambda x: {"y": function(x)}, autograph=False)
    return with_shapes("f", call.get_concrete_function(spec("x", (None, 6))))


def spec(name: str, shape: Iterable[int | None], dtype: Any = tf.float32) -> tf.TensorSpec:
    return tf.TensorSpec(list(shape), dtype, name=name)


def entry_function(program: Program, key: str = "f") -> FunctionDef:
    return program.library[program.entries[key].function]


def node(program: Program, name: str) -> NodeDef:
    """The node of this name in whichever function has it."""
    found = [n for _, n in program.nodes() if n.name == name]
    assert len(found) == 1, (name, [n.name for _, n in program.nodes()])
    return found[0]


def ops(program: Program) -> list[str]:
    return [n.op for _, n in program.nodes()]


def tensor_types(fdef: FunctionDef, functions: dict[str, FunctionDef]) -> dict[str, int]:
    """The element type of every tensor a function can read."""
    types = {a.name: a.type for a in fdef.signature.input_arg}
    for n in fdef.node_def:
        if n.op in functions:  # a call by name
            outputs = functions[n.op].signature.output_arg
            types.update({f"{n.name}:{a.name}:0": a.type for a in outputs})
        types.update({f"{n.name}:{suffix}": t for suffix, t in output_types(n) or []})
    return types


def assert_well_formed(program: Program) -> None:
    """Names are unique and known, callees exist, and both ends of every edge have one type."""
    for fdef in program.library.values():
        names = [n.name for n in fdef.node_def]
        assert len(set(names)) == len(names), names
        types = tensor_types(fdef, program.library)
        for n in fdef.node_def:
            data = [r for r in n.input if not r.startswith("^")]
            for ref in n.input:
                assert not ref.startswith("^") or ref[1:] in names, (where(fdef, n), ref)
            wanted = input_types(n)
            for i, ref in enumerate(data):
                assert ref in types, (where(fdef, n), ref)
                assert wanted is None or wanted[i] == types[ref], (where(fdef, n), ref)
            for callee in called_functions(n):
                assert callee in program.library, (where(fdef, n), callee)
            for hint in n.attr["_class"].list.s if "_class" in n.attr else []:
                assert hint.removeprefix(b"loc:@").decode() in names, (where(fdef, n), hint)
        for arg in fdef.signature.output_arg:
            assert types[fdef.ret[arg.name]] == arg.type, (fdef.signature.name, arg.name)
        for ref in fdef.control_ret.values():
            assert tensor_node(ref) in names, (fdef.signature.name, ref)


def frozen(program: Program) -> dict[str, bytes]:
    return {n: f.SerializeToString(deterministic=True) for n, f in program.library.items()}


def apply_and_check(
    pass_name: str,
    program: Program,
    inputs: dict[str, Any] | None = None,
    *,
    exact: bool = False,
    context: pipeline.PassContext | None = None,
) -> tuple[Program, list[Change]]:
    """Runs a pass on a copy and checks what holds for every pass.

    1. Keys and names of the signatures stay, and the copy is well formed.
    2. A second run changes nothing.
    3. With ``inputs``, the numbers agree: bit by bit when ``exact``, else within half rounding.

    Returns:
        The changed copy and what was changed.
    """
    changed = program.copy()
    step = pipeline.all_passes()[pass_name]
    assert step.name == pass_name
    before = frozen(program)
    changes = step.apply(changed, context or pipeline.PassContext())
    assert frozen(program) == before, "the original was touched"
    assert list(changed.entries) == list(program.entries)
    for key, entry in changed.entries.items():
        old = program.entries[key]
        assert [s.name for s in entry.inputs] == [s.name for s in old.inputs]
        assert [s.name for s in entry.outputs] == [s.name for s in old.outputs]
        assert len(entry.captures) == len(old.captures)
    assert_well_formed(changed)
    once = frozen(changed)
    assert step.apply(changed, context or pipeline.PassContext()) == []
    assert frozen(changed) == once, "a second run changes something"
    if inputs is not None:
        for key in program.entries:
            assert_same(run(program, key, inputs), run(changed, key, inputs), exact=exact)
    return changed, changes


def run(program: Program, key: str, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
    """Builds a ConcreteFunction of a program and runs it."""
    work = program.copy()
    twins = [] if _holds_16_bits(work) else resources.widen_captures(work)[0]
    function = concrete.put_together(work, "test")[key]
    outputs = reference.run(function, [s.name for s in program.entries[key].inputs], inputs)
    del twins  # nothing else kept them alive
    return outputs


def _holds_16_bits(program: Program) -> bool:
    return any(t in HALF_TYPES for f in program.library.values() for t in all_types(f))


def all_types(message: Any) -> Iterator[int]:
    """Every element type anywhere in a message: arguments, attributes, tensors, functions."""
    for descriptor, content in message.ListFields():
        is_map = descriptor.message_type and descriptor.message_type.GetOptions().map_entry
        many = content.values() if is_map else content if _is_list(content) else [content]
        for item in many:
            if descriptor.enum_type and descriptor.enum_type.name == "DataType":
                yield item
            elif descriptor.message_type and hasattr(item, "ListFields"):
                yield from all_types(item)


def _is_list(content: Any) -> bool:
    return not isinstance(content, (str, bytes)) and hasattr(content, "__len__")


def assert_same(
    expected: dict[str, np.ndarray], actual: dict[str, np.ndarray], *, exact: bool = False
) -> None:
    """Compares outputs by name; floats within half rounding of the largest value unless exact."""
    assert sorted(expected) == sorted(actual)
    for name, wanted in expected.items():
        got = actual[name]
        if not exact and got.dtype.kind in "fV":
            wanted, got = wanted.astype(np.float64), got.astype(np.float64)
            scale = max(1.0, float(np.abs(wanted).max(initial=0)))
            np.testing.assert_allclose(got, wanted, rtol=0, atol=HALF_ROUNDING * scale)
        elif isinstance(wanted, bytes):
            assert wanted == got
        else:
            np.testing.assert_array_equal(got, wanted)


def saved(model: Any, path: Path, signatures: Any = None) -> Path:
    """Writes a tf.Module as a SavedModel."""
    tf.saved_model.save(model, str(path), signatures=signatures)
    return path


def loaded(path: Path, **options: Any) -> LoadedModel:
    return load(SourceOptions(str(path), **options), path.parent)


def normalized(path: Path, io_dtype: str = "float32", **options: Any) -> NormalizedModel:
    return normalize(loaded(path, **options), io_dtype)


def resaved(model: NormalizedModel, path: Path) -> NormalizedModel:
    """Writes a normalized model, loads it and normalizes it once more."""
    functions = {key: model.function(key) for key in model.program.entries}
    tf.saved_model.save(model.holder(), str(path), signatures=functions)
    return normalized(path)


def promoted_run(model: NormalizedModel, key: str, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
    names = [s.name for s in model.program.entries[key].inputs]
    return reference.run(model.function(key), names, inputs)


def trained_run(model: NormalizedModel, key: str, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
    outputs, reason = reference.run_trained(model, key, inputs)
    assert outputs is not None, reason
    return outputs
