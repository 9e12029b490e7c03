"""TFLite: builtin ops only, float32 or float16 weights, dynamic batch where the runtime can."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from mpexport.errors import ConversionError, UsageError
from mpexport.formats import Contract, Conversion, FormatSpec, head, side_violations
from mpexport.signature import Shape, Signature, TensorSpec, batch_shapes

if TYPE_CHECKING:
    from mpexport.tf.normalized import NormalizedModel

# Offsets in a flatbuffer are 32 bits, signed.
LIMIT_BYTES = 2**31 - 1


@dataclass(frozen=True)
class TfliteOptions:
    """Options of the tflite format."""

    weights: str = field(
        default="float32",
        metadata={
            "help": "Stored element type of the weights; compute stays float32.",
            "choices": ("float32", "float16"),
        },
    )
    batch: Optional[int] = field(
        default=None, metadata={"help": "Fix the batch size of every input.", "metavar": "N"}
    )
    input_shape: tuple[str, ...] = field(
        default=(),
        metadata={"help": "Fix the shape of one input.", "metavar": "NAME:[1,28,28]"},
    )

    def __post_init__(self) -> None:
        """Raises `UsageError` for a batch below 1 or a shape that cannot be read."""
        if self.batch is not None and self.batch < 1:
            raise UsageError(f"batch {self.batch}: must be at least 1")
        parse_input_shapes(self.input_shape)


def parse_input_shapes(texts: tuple[str, ...]) -> dict[str, Shape]:
    """``name:[1,28,?]`` → shape by name; ``?`` or ``-1`` is a size unknown until run time.

    Raises:
        UsageError: A text has another form.
    """
    shapes: dict[str, Shape] = {}
    for text in texts:
        match = re.fullmatch(r"(.+):\[\s*((?:-1|\?|\d+)(?:\s*,\s*(?:-1|\?|\d+))*)?\s*\]", text)
        if match is None:
            raise UsageError(f"--input-shape {text}: expected NAME:[1,28,28]")
        sizes = [s.strip() for s in (match.group(2) or "").split(",") if s.strip()]
        shapes[match.group(1)] = tuple(None if s in ("?", "-1") else int(s) for s in sizes)
    return shapes


def _requested_shapes(signature: Signature, options: TfliteOptions) -> dict[str, Shape]:
    shapes = parse_input_shapes(options.input_shape)
    names = {s.name: s for s in signature.inputs}
    for name, shape in shapes.items():
        if name not in names:
            raise UsageError(
                f"--input-shape {name}: there is no such input", hint=f"inputs: {', '.join(names)}"
            )
        old = names[name].shape
        fits = old is None or (
            len(old) == len(shape) and all(o is None or o == n for o, n in zip(old, shape))
        )
        if not fits:
            raise UsageError(f"--input-shape {name}:{list(shape)} does not fit {names[name]}")
    if options.batch is not None:
        shapes = {**batch_shapes(signature, options.batch), **shapes}
    return shapes


def _convert(model: NormalizedModel, path: Path, options: TfliteOptions) -> Conversion:
    from mpexport.tf.to_tflite import convert_signature
    from mpexport.tf.weights import refuse_outside_float16

    key = model.source.choose()
    signature = model.signature(key)
    shapes = _requested_shapes(signature, options)
    half = options.weights == "float16"
    size = model.weight_bytes([key]) // (2 if half else 1)
    if size > LIMIT_BYTES:
        raise ConversionError(
            f"the weights take {size / 2**30:.2f} GiB; a TFLite file cannot exceed 2 GiB",
            hint="--float16 halves them" if not half and size // 2 < LIMIT_BYTES else "use onnx",
            where="weights",
        )
    if half:
        refuse_outside_float16(model, key)
    converted = convert_signature(model, key, shapes, half)
    path.write_bytes(converted.content)
    inputs = tuple(
        TensorSpec(s.name, converted.shapes.get(s.name, s.shape), s.dtype) for s in signature.inputs
    )
    precision = "float16-weights" if half else "float32"
    return Conversion(
        (Signature(key, inputs, signature.outputs),), precision, (*model.notes, *converted.notes)
    )


def _check(path: Path, promised: Conversion, options: TfliteOptions) -> Contract:
    from tensorflow.lite.python import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))
    names = {v: k for k, v in vars(schema.BuiltinOperator).items() if not k.startswith("_")}
    types = {v: k for k, v in vars(schema.TensorType).items() if not k.startswith("_")}
    violations: list[str] = []
    ops: Counter[str] = Counter()
    for graph in model.subgraphs:
        widened = set()
        for op in graph.operators:
            code = model.operatorCodes[op.opcodeIndex]
            builtin = max(code.builtinCode, code.deprecatedBuiltinCode)
            name = names.get(builtin, f"builtin {builtin}")
            if name == "CUSTOM":
                custom = (code.customCode or b"").decode(errors="replace")
                violations.append(f"custom op {custom}: a plain runtime cannot run it")
                name = custom
            ops[name] += 1
            if name == "DEQUANTIZE":
                widened.update(op.inputs.tolist())
        for i, tensor in enumerate(graph.tensors):
            kind = types.get(tensor.type, str(tensor.type))
            stored = promised.precision == "float16-weights" and i in widened
            if kind in ("FLOAT16", "BFLOAT16") and not stored:
                violations.append(f"tensor {tensor.name.decode(errors='replace')} is {kind}")
    violations += _signature_violations(model, promised.signatures[0], types)
    facts: dict[str, Any] = {"schema_version": model.version}
    for item in model.metadata or []:
        if item.name == b"min_runtime_version":
            raw = model.buffers[item.buffer].data
            facts["min_runtime_version"] = bytes(raw).rstrip(b"\0").decode()
    return Contract(tuple(violations), dict(sorted(ops.items())), facts)


def _signature_violations(model: Any, promised: Signature, types: dict[int, str]) -> list[str]:
    found = {s.signatureKey.decode(): s for s in model.signatureDefs or []}
    if promised.key not in found:
        return [f"signature {promised.key} is missing"]
    signature = found[promised.key]
    tensors = model.subgraphs[signature.subgraphIndex].tensors
    ins, outs = (
        {m.name.decode(): types[tensors[m.tensorIndex].type] for m in maps}
        for maps in (signature.inputs, signature.outputs)
    )
    # An input that no output depends on is left out by the converter.
    return [
        *side_violations("input", promised.inputs, ins, may_lack=True),
        *side_violations("output", promised.outputs, outs),
    ]


SPEC = FormatSpec(
    name="tflite",
    title="TFLite file of builtin ops",
    suffix=".tflite",
    is_directory=False,
    options=TfliteOptions,
    sniff=lambda path: head(path, 8)[4:8] == b"TFL3",
    modules=("tensorflow",),
    extra="tensorflow",
    convert=_convert,
    check=_check,
    variants={"tflite-float16": {"weights": "float16"}},
)
