"""A normalized signature → the bytes of a TFLite file, by TensorFlow's converter."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.python.lite import TFLiteSavedModelConverterV2

from mpexport.errors import ConversionError
from mpexport.signature import Shape, batch_shapes
from mpexport.tf import concrete, pipeline
from mpexport.tf.graph import in_layer
from mpexport.tf.inline import concrete_of, flatten
from mpexport.tf.lowering import with_shapes
from mpexport.tf.normalized import NormalizedModel
from mpexport.tf.rewrite import write_promoted

# What TFLite lacks, written in what it has.
PASSES = (
    "allow_inlining",
    "drop_unused_state",
    "lower_convolution",
    "lower_fourier",
    "lower_math",
    "lower_pooling",
    "lower_resize",
    "lower_selection",
    "lower_sign_bit",
    "lower_slices",
    "lower_tables",
    "lower_tensor_lists",
)


def keeps_state(content: bytes) -> bool:
    """Whether a file has variable tensors, which live from one call to the next."""
    model = schema.Model.GetRootAs(content, 0)
    graphs = [model.Subgraphs(i) for i in range(model.SubgraphsLength())]
    return any(g.Tensors(i).IsVariable() for g in graphs for i in range(g.TensorsLength()))


@dataclass(frozen=True)
class Converted:
    """What the converter made of one signature.

    Attributes:
        content: The bytes of the file.
        shapes: Input name → shape the file is made for, where it isn't the signature's.
        notes: What the user should know.
    """

    content: bytes
    shapes: dict[str, Shape]
    notes: tuple[str, ...]


def convert_signature(
    model: NormalizedModel,
    key: str,
    shapes: dict[str, Shape],
    *,
    in_memory: bool = False,
    offsets: bool = False,
) -> Converted:
    """Converts one signature; fixes the batch to 1 when no other way is left.

    Args:
        model: The normalized model.
        key: Signature key.
        shapes: Input name → shape that the user asked for; the batch is not touched then.
        in_memory: Whether the weights are those in memory, not those of the source's file.
        offsets: Whether the weights stand behind the flatbuffer, which lifts its limit of 2 GiB; no
            file for a runtime.

    Raises:
        ConversionError: TFLite has no builtin for an op; names it.
    """
    notes = []
    try:
        content = run_converter(model, key, shapes, in_memory, offsets)
    except ConversionError as e:
        fixed = batch_shapes(model.signature(key), 1)
        if shapes or not fixed or "ops" not in e.details:
            raise
        shapes = fixed
        try:
            content = run_converter(model.restored(), key, shapes, in_memory, offsets)
        except ConversionError:
            raise e from None  # it names what the model has, not what became of it
        notes.append(
            "the converter cannot keep the batch of this model dynamic: it is fixed to 1; "
            "--batch N fixes another"
        )
    if keeps_state(content):
        notes.append(
            "a fused LSTM keeps its state between calls and clips it to ±10: "
            "call reset_all_variables() before each new sequence"
        )
    return Converted(content, shapes, tuple(notes))


def _needs_lowering(model: NormalizedModel) -> bool:
    passes = pipeline.all_passes()
    return any(passes[name].is_needed(model.program) for name in PASSES)


def _lowered(model: NormalizedModel, key: str, shapes: dict[str, Shape]) -> Any:
    """The signature as ConcreteFunction, its ops written in those that TFLite has."""
    if not shapes and not _needs_lowering(model):
        return model.function(key)
    try:
        function = concrete_of(flatten(model.program, key, shapes))
    except ConversionError as e:
        raise _random_layer(e, model) or e from None
    program = with_shapes(key, function)
    pipeline.run(program, "none", pipeline.PassContext(), extra=PASSES)
    return concrete.put_together(program, "tflite_")[key]


def _random_layer(error: ConversionError, model: NormalizedModel) -> ConversionError | None:
    """What to say when the state that a layer updates is that of its random numbers."""
    path = error.where.partition("/")[2].rpartition("/")[0]
    for _, node in model.program.nodes():
        if path and node.op.startswith(_RANDOM) and node.name.startswith(f"{path}/"):
            return _no_builtin([f"tf.{node.op}"], node.name)
    return None


def run_converter(
    model: NormalizedModel,
    key: str,
    shapes: dict[str, Shape],
    in_memory: bool = False,
    offsets: bool = False,
) -> bytes:
    """Converts one signature, specialized to ``shapes`` when there are any."""
    with tempfile.TemporaryDirectory() as scratch:
        directory, tags = Path(scratch) / "model", set(model.source.tags)
        anew = shapes or in_memory or _needs_lowering(model)
        if anew or not write_promoted(model, directory):
            function = _lowered(model, key, shapes)
            holder = model.holder([key], function.captured_inputs)
            tf.saved_model.save(holder, str(directory), signatures={key: function})
            tags = {tf.saved_model.SERVING}
        elif model.is_last_use:
            model.release()
        # What TFLiteConverter.from_saved_model makes, less its loading of the model once more and
        # its renaming of the signature `serve`.
        converter = TFLiteSavedModelConverterV2(str(directory), tags, [key])
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        converter._experimental_use_buffer_offset = offsets
        try:
            content: bytes = converter.convert()
        except Exception as e:
            # The converter raises ConverterError, but also bare exceptions of MLIR and of Python.
            raise _explain(e) from e
    return content


# Op name or its beginning → what it does that TFLite can't, and the way out.
_RANDOM = (
    "StatelessRandom",
    "StatelessTruncated",
    "StatelessParameterized",
    "StatelessMultinomial",
    "Random",
    "Multinomial",
)
_WAYS_OUT = (
    (
        _RANDOM,
        "it draws random numbers at inference: call the layer with training=False or leave it out, "
        "or use savedmodel",
    ),
    (
        ("AsString", "String", "StaticRegex", "Regex", "SparseCross", "RaggedTensor", "Unicode"),
        "do this preprocessing before the model and feed what the layer gives, or use savedmodel",
    ),
    (
        ("HashTable", "LookupTable", "MutableHashTable"),
        "TFLite tables map strings to int64 and back; look the values up before the model, "
        "or use savedmodel",
    ),
    (
        ("FFT", "IFFT", "IRFFT", "Complex", "Angle", "Conj"),
        "compute with real and imaginary parts instead of complex numbers, or use savedmodel",
    ),
    (
        ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "VarHandleOp"),
        "make the state an input and an output of the model, or use savedmodel",
    ),
    (
        ("TensorList",),
        "fix the shapes of the inputs (--batch, --input-shape), unroll the loop, or use onnx",
    ),
)
_ANY_WAY_OUT = "replace the layer, fix its shapes (--batch, --input-shape), or use onnx"


def _way_out(ops: list[str]) -> str:
    for beginnings, hint in _WAYS_OUT:
        if any(op.removeprefix("tf.").startswith(beginnings) for op in ops):
            return hint
    return _ANY_WAY_OUT


def _explain(error: Exception) -> ConversionError:
    """The op (and where it comes from) out of kilobytes of converter output."""
    text = str(error)
    ops = re.findall(r"'(tfl?\.\w+)' op (?:is neither a custom op nor a flex op|requires)", text)
    ops += re.findall(r"failed to legalize operation '(tfl?\.\w+)'", text)
    ops = list(dict.fromkeys(ops or re.findall(r"error: .*'(tfl?\.\w+)' op ", text)))
    found = re.search(r'fused\["\w+:", "([^"@]+)@?', text)
    path = re.sub(r"^(call/)?(Func/)?((Stateful)?PartitionedCall/)*", "", found[1]) if found else ""
    if not ops:
        line = next((x.strip() for x in text.splitlines() if x.strip()), type(error).__name__)
        return ConversionError(
            f"the TFLite converter failed{in_layer(path)}: {line[:200]}",
            hint=_ANY_WAY_OUT,
            where=path,
            details={"ops": []},
        )
    return _no_builtin(ops, path)


def _no_builtin(ops: list[str], path: str) -> ConversionError:
    return ConversionError(
        f"TFLite has no builtin for {', '.join(ops)}{in_layer(path)}",
        hint=_way_out(ops),
        where=path or ops[0],
        details={"ops": sorted(ops)},
    )
