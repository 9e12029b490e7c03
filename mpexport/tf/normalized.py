"""The canonical form: promoted signatures over the original variables, ready for every format."""

from __future__ import annotations

import ctypes
import gc
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from mpexport.errors import ConversionError
from mpexport.findings import Change
from mpexport.signature import Signature
from mpexport.tf import concrete, pipeline, resources
from mpexport.tf.graph import HALF_TYPES, Program, attr_types, tensor_node, where
from mpexport.tf.host_ops import refuse_host_ops
from mpexport.tf.load import LoadedModel, reload
from mpexport.tf.passes.promote_compute_dtype import BITS_OPS

if TYPE_CHECKING:
    from mpexport.tf.to_tflite import Converted

_RESOURCES_OF_TF1 = frozenset(
    {
        "HashTable",
        "HashTableV2",
        "MutableDenseHashTable",
        "MutableDenseHashTableV2",
        "MutableHashTable",
        "MutableHashTableOfTensors",
        "MutableHashTableOfTensorsV2",
        "MutableHashTableV2",
        "Variable",
        "VariableV2",
    }
)


@dataclass
class NormalizedModel:
    """A loaded model after the passes.

    Attributes:
        source: What it was made from.
        original: The program as traced, untouched.
        program: The program after the passes; captures are widened.
        chosen: Signature key that single-signature formats use, or None (see `LoadedModel`).
        twins: float32 variables that stand for 16-bit ones.
        changes: Everything the passes changed.
        notes: What the user should know.
        functions: Signature key → promoted ConcreteFunction.
        io_dtype: As in `normalize`.
        is_last_use: Whether the conversion at hand is the last thing the model is needed for.
        written: Files that a format has written and may start from again, by what they depend on.
    """

    source: LoadedModel
    original: Program
    program: Program
    twins: list[Any]
    changes: list[Change]
    notes: list[str] = field(default_factory=list)
    functions: dict[str, Any] = field(default_factory=dict)
    io_dtype: str = "float32"
    is_last_use: bool = False
    written: dict[tuple[Any, ...], tuple[Path, Converted]] = field(default_factory=dict)

    def function(self, key: str) -> Any:
        """The promoted ConcreteFunction of one signature; made once."""
        if not self.functions:
            self.functions = concrete.put_together(self.program.copy(), "f32_")
        return self.functions[key]

    def signature(self, key: str) -> Signature:
        """Names, shapes and dtypes of one promoted signature."""
        entry = self.program.entries[key]
        return Signature(key, tuple(entry.inputs), tuple(entry.outputs))

    def captures(self, keys: list[str] | None = None) -> list[Any]:
        """All captured tensors of the given (default: all) signatures, each once."""
        entries = [self.program.entries[k] for k in keys or self.program.entries]
        return list({id(c): c for e in entries for c in e.captures}.values())

    def holder(self, keys: list[str] | None = None, captures: list[Any] | None = None) -> Any:
        """A new trackable that owns exactly what the signatures capture, or just ``captures``."""
        captures = self.captures(keys) if captures is None else captures
        holder = tf.Module()
        wanted = {id(c) for c in captures}
        twins = [t for t in self.twins if id(t.handle) in wanted]
        holder.resources = resources.owners(self.source.model, captures) + twins
        return holder

    def release(self) -> None:
        """Lets go of the weights; the model can only be asked for signatures afterwards.

        Converters hold a copy or two of their own. The C library keeps freed memory unless told.
        """
        self.source.model = None
        self.source.signatures = {}
        self.twins, self.functions = [], {}
        for entry in [*self.program.entries.values(), *self.original.entries.values()]:
            entry.captures = []
        gc.collect()
        if sys.platform == "linux":
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
            if trim is not None:  # absent in musl
                trim(0)

    def restored(self) -> NormalizedModel:
        """The model with its weights: itself, or loaded again after `release`."""
        if self.source.model is not None:
            return self
        return normalize(reload(self.source), self.io_dtype)

    def weight_bytes(self, keys: list[str] | None = None) -> int:
        """Bytes of all captured values."""
        return sum(resources.size_bytes(c) for c in self.captures(keys))


def normalize(source: LoadedModel, io_dtype: str = "float32") -> NormalizedModel:
    """Runs the normalization passes over all signatures of a model.

    Args:
        source: The loaded model; not changed.
        io_dtype: ``float32`` widens 16-bit inputs and outputs, ``keep`` keeps them.

    Raises:
        UnsafeModelError: A signature holds an op that acts outside the graph.
    """
    original = concrete.take_apart(source.signatures)
    refuse_host_ops(source.options.path, original.library.values(), source.options.allow_code)
    _refuse_resources_of_tf1(source.options.path, original)
    program = original.copy()
    context = pipeline.PassContext(io_dtype=io_dtype)
    pipeline.run(program, "normalize", context)
    twins, widened = resources.widen_captures(program)
    context.changes.extend(widened)
    notes = []
    if not any(c.pass_name == "promote_compute_dtype" for c in context.changes) and not twins:
        notes.append("nothing is in 16 bits: the model is exported as it is")
    return NormalizedModel(
        source, original, program, twins, context.changes, notes, io_dtype=io_dtype
    )


def _refuse_resources_of_tf1(path: str, program: Program) -> None:
    """Refuses variables and tables that are nodes: nothing saved anew would hold their values.

    Raises:
        ConversionError: Names the node.
    """
    for fdef, node in program.nodes():
        if node.op in _RESOURCES_OF_TF1:
            raise ConversionError(
                f"{path}: {node.name} is a {node.op} of TensorFlow 1, which lives in its graph",
                hint="save it with resource variables (tf.compat.v1.enable_resource_variables) "
                "and without tables",
                where=where(fdef, node),
            )


def half_tensors(program: Program) -> list[str]:
    """Every place of a program where a 16-bit tensor is left: the proof that none is.

    Ops whose bits mean something (Bitcast …) keep their 16-bit edge, and the Casts on it.
    """
    found = []
    for fdef in program.library.values():
        for arg in [*fdef.signature.input_arg, *fdef.signature.output_arg]:
            if arg.type in HALF_TYPES:
                found.append(f"{fdef.signature.name}/{arg.name}")
        bits = {n.name for n in fdef.node_def if n.op in BITS_OPS}
        fed = {tensor_node(r) for n in fdef.node_def if n.name in bits for r in n.input}
        for node in fdef.node_def:
            on_edge = node.name in fed or tensor_node(next(iter(node.input), "")) in bits
            if node.name in bits or (node.op == "Cast" and on_edge):
                continue
            if any(t in HALF_TYPES for value in node.attr.values() for t in attr_types(value)):
                found.append(where(fdef, node))
    return found
