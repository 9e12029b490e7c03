"""Between ConcreteFunctions and programs: take a model apart, put the changed one together.

Variables and other resources are never copied: they stay captures, and the object that is saved
tracks the originals. Only 16-bit variables get float32 twins.
"""

from __future__ import annotations

import itertools
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.python.eager import context as eager_context
from tensorflow.python.framework import ops as framework_ops

from mpexport.errors import ConversionError
from mpexport.signature import Signature, TensorSpec
from mpexport.tf.graph import EntryPoint, FunctionDef, Program

_generation = itertools.count()
# What is several tensors; a signature knows its dense parts only.
_COMPOSITE = (tf.SparseTensor, tf.SparseTensorSpec, tf.RaggedTensor, tf.RaggedTensorSpec)


def spec_of(name: str, tensor: Any) -> TensorSpec:
    """A TensorSpec from anything that has a TensorFlow shape and dtype."""
    dims = tensor.shape.as_list() if tensor.shape.rank is not None else None
    return TensorSpec(name, None if dims is None else tuple(dims), tensor.dtype.base_dtype.name)


def variable_dtype(capture: Any) -> int | None:
    """DataType number of the variable behind a captured handle; None when it is no variable."""
    handle_data = getattr(capture, "_handle_data", None)
    if capture.dtype != tf.resource or handle_data is None or not handle_data.is_set:
        return None
    if len(handle_data.shape_and_type) != 1:  # a mutable table: types of its keys and values
        return None
    return int(handle_data.shape_and_type[0].dtype)


def capture_shape(capture: Any) -> list[int | None] | None:
    """Shape of the value behind a capture; None when unknown."""
    if variable_dtype(capture) is not None:
        shape = tf.TensorShape(capture._handle_data.shape_and_type[0].shape)
    else:
        shape = capture.shape
    return None if shape.rank is None else shape.as_list()


def value_of(capture: Any) -> Any:
    """Inside a graph: the tensor behind a capture (the variable's value, or the capture itself)."""
    dtype = variable_dtype(capture)
    inner = framework_ops.get_default_graph().capture(capture)
    if dtype is None:
        return inner
    value = tf.raw_ops.ReadVariableOp(resource=inner, dtype=tf.as_dtype(dtype))
    value.set_shape(capture_shape(capture))
    return value


def fresh_suffix(label: str) -> str:
    """A suffix no function name of this process has had yet."""
    return f"__{label}{next(_generation)}"


def register(fdef: FunctionDef) -> None:
    """Makes a function known to the runtime, so that graphs can call it by name."""
    eager_context.context().add_function_def(fdef)


def signature_of(key: str, concrete: Any) -> Signature:
    """Names, shapes and dtypes of a ConcreteFunction with named inputs and outputs.

    Inputs are in argument order, outputs in the flat order of the structured outputs (by name).
    """
    for name, output in concrete.structured_outputs.items():
        if isinstance(output, _COMPOSITE):
            kind = type(output).__name__.removesuffix("Spec")
            raise ConversionError(
                f"output {name} of signature {key} is a {kind}",
                hint="return its dense parts as outputs of their own",
                where=f"{key}/{name}",
            )
    keywords = concrete._arg_keywords  # the only place where TF keeps the names in argument order
    inputs = tuple(spec_of(n, t) for n, t in zip(keywords, concrete.inputs))
    outputs = tuple(
        spec_of(n, t) for n, t in zip(sorted(concrete.structured_outputs), concrete.outputs)
    )
    return Signature(key, inputs, outputs)


def identity(function: Any) -> tuple[Any, ...]:
    """What makes two signatures the same function: the called body, its captures, the names."""
    nodes = function.graph.as_graph_def().node
    body = tuple(n.attr["f"].func.name for n in nodes if "f" in n.attr) or id(function)
    captures = tuple(id(c) for c in function.captured_inputs)
    return (
        body,
        captures,
        tuple(function._arg_keywords),
        tuple(sorted(function.structured_outputs)),
    )


def with_names(function: Any) -> Any:
    """An endpoint's ConcreteFunction with named inputs and a flat dict of named outputs.

    Args:
        function: Any ConcreteFunction; nested inputs and outputs are flattened.
    """
    leaves = tf.nest.flatten(function.structured_input_signature)
    specs = [s for s in leaves if isinstance(s, tf.TensorSpec)]
    taken: dict[str, int] = {}
    names = []
    for i, spec in enumerate(specs):
        base = spec.name or f"input_{i}"
        taken[base] = taken.get(base, 0) + 1
        names.append(base if taken[base] == 1 else f"{base}_{taken[base] - 1}")
    named = [tf.TensorSpec(s.shape, s.dtype, name=n) for s, n in zip(specs, names)]

    def call(*args: Any) -> dict[str, Any]:
        tensors = iter(args)
        given = [next(tensors) if isinstance(s, tf.TensorSpec) else s for s in leaves]
        positional, keyword = tf.nest.pack_sequence_as(function.structured_input_signature, given)
        return named_outputs(function(*positional, **keyword))

    return tf.function(call, autograph=False).get_concrete_function(*named)


def named_outputs(outputs: Any) -> dict[str, Any]:
    """A flat dict; what is None is left out, and a name that comes twice gets a number."""
    flat: dict[str, Any] = {}
    if not (isinstance(outputs, dict) and all(isinstance(k, str) for k in outputs)):
        leaves = [t for t in tf.nest.flatten(outputs) if t is not None]
        return {f"output_{i}": t for i, t in enumerate(leaves)}
    for key, value in sorted(outputs.items()):
        inner = named_outputs(value) if isinstance(value, (dict, list, tuple)) else {"": value}
        for k, tensor in inner.items():
            base = f"{key}_{k}" if k else key
            numbers = (f"{base}_{i}" for i in itertools.count(1))
            name = base if base not in flat else next(n for n in numbers if n not in flat)
            if tensor is not None:
                flat[name] = tensor
    return flat


def take_apart(concretes: dict[str, Any]) -> Program:
    """Makes one program of ConcreteFunctions (by signature key) with named inputs and outputs."""
    program = Program()
    for key, concrete in concretes.items():
        signature = signature_of(key, concrete)
        fdef = concrete.function_def
        for inner in concrete.graph.as_graph_def().library.function:
            program.library.setdefault(inner.signature.name, inner)
        name = fdef.signature.name
        program.library[name] = fdef
        program.entries[key] = EntryPoint(
            key,
            name,
            list(signature.inputs),
            list(signature.outputs),
            list(concrete.captured_inputs),
        )
    return program


def rename_functions(program: Program, suffix: str) -> None:
    """Gives every function a fresh name, since the old ones are taken in the eager context."""
    names = {name: f"{name}{suffix}" for name in program.library}

    def fix(value: Any) -> None:
        kind = value.WhichOneof("value")
        for f in [value.func] if kind == "func" else value.list.func if kind == "list" else []:
            f.name = names.get(f.name, f.name)
            for inner in f.attr.values():
                fix(inner)

    library = {}
    for name, fdef in program.library.items():
        fdef.signature.name = names[name]
        for node in fdef.node_def:
            node.op = names.get(node.op, node.op)
            for value in node.attr.values():
                fix(value)
        library[names[name]] = fdef
    program.library = library
    for entry in program.entries.values():
        entry.function = names[entry.function]


def put_together(program: Program, label: str) -> dict[str, Any]:
    """Makes ConcreteFunctions of a program's entry points.

    Args:
        program: Consumed: its functions are renamed.
        label: Part of the fresh function names.

    Returns:
        Signature key → ConcreteFunction with the entry's input and output names. The variables
        behind the captures must be kept alive (and tracked) by the caller.
    """
    rename_functions(program, fresh_suffix(label))
    for fdef in program.library.values():
        register(fdef)
    return {key: _concrete(program, entry) for key, entry in program.entries.items()}


def _concrete(program: Program, entry: EntryPoint) -> Any:
    fdef = program.library[entry.function]
    graph_def = graph_pb2.GraphDef()
    graph_def.versions.producer = tf.version.GRAPH_DEF_VERSION
    graph_def.library.function.extend(program.library.values())
    call = node_def_pb2.NodeDef(name="call", op="StatefulPartitionedCall")
    call.attr["f"].func.name = entry.function
    types = [arg.type for arg in fdef.signature.input_arg]
    for i, dtype in enumerate(types):
        placeholder = graph_def.node.add(name=f"arg_{i}", op="Placeholder")
        placeholder.attr["dtype"].type = dtype
        call.input.append(f"arg_{i}")
    call.attr["Tin"].list.type.extend(types)
    call.attr["Tout"].list.type.extend(arg.type for arg in fdef.signature.output_arg)
    graph_def.node.append(call)
    specs = [
        tf.TensorSpec(s.shape, tf.as_dtype(types[i]), name=s.name)
        for i, s in enumerate(entry.inputs)
    ]
    names = [s.name for s in entry.outputs]
    shapes = [s.shape for s in entry.outputs]

    def call_entry(*args: Any) -> dict[str, Any]:
        graph = framework_ops.get_default_graph()
        inner = [graph.capture(c) for c in entry.captures]
        feeds = {f"arg_{i}:0": t for i, t in enumerate([*args, *inner])}
        outputs = tf.graph_util.import_graph_def(
            graph_def,
            input_map=feeds,
            return_elements=[f"call:{i}" for i in range(len(names))],
            name="",
        )
        for tensor, shape in zip(outputs, shapes):
            tensor.set_shape(shape)
        return dict(zip(names, outputs))

    return tf.function(call_entry, autograph=False).get_concrete_function(*specs)
