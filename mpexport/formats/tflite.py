"""TFLite: builtin ops only, float32 or float16 weights, dynamic batch where the runtime can."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from mpexport import dtypes
from mpexport.errors import ConversionError, UsageError
from mpexport.formats import Contract, Conversion, FormatSpec, head, side_violations
from mpexport.signature import Shape, Signature, TensorSpec, batch_shapes

if TYPE_CHECKING:
    from mpexport.tf.normalized import NormalizedModel
    from mpexport.tf.to_tflite import Converted
    from mpexport.tflite_file.reader import TfliteFile

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

    allow_clamp: bool = field(
        default=False,
        metadata={"help": "Clamp weights that float16 cannot hold, instead of refusing them."},
    )

    float16_accumulation: bool = field(
        default=False,
        metadata={"help": "Let accelerators that can do so sum up in float16; needs --float16."},
    )
    min_runtime: Optional[str] = field(
        default=None,
        metadata={
            "help": "Oldest TFLite runtime that must run the file, for example 2.14.",
            "metavar": "VERSION",
        },
    )

    def __post_init__(self) -> None:
        """Raises `UsageError` for values that cannot be read, and for options without effect."""
        if self.batch is not None and self.batch < 1:
            raise UsageError(f"batch {self.batch}: must be at least 1")
        parse_input_shapes(self.input_shape)
        if self.min_runtime is not None:
            from mpexport.tflite_file.requirements import release

            release(self.min_runtime)
        if self.float16_accumulation and self.weights != "float16":
            raise UsageError(
                "--float16-accumulation means nothing without --float16",
                hint="accelerators compute in float16 only where weights are stored in it",
            )


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
    from mpexport.tf import weights

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
    damages = weights.float16_damage(model, key) if half else []
    found, changes = weights.accept(damages, allow_clamp=options.allow_clamp)
    if half:
        with weights.clamped(model, key, damages) as is_clamped:
            made = _write_float16(model, key, shapes, path, options, in_memory=is_clamped)
    else:
        made = _write_float32(model, key, shapes, path)
    if options.min_runtime is not None:
        _refuse_newer(path, options.min_runtime)
    inputs = tuple(
        TensorSpec(s.name, made.shapes.get(s.name, s.shape), s.dtype) for s in signature.inputs
    )
    return Conversion(
        (Signature(key, inputs, signature.outputs),),
        "float16-weights" if half else "float32",
        (*model.notes, *made.notes, *found),
        tuple(changes),
    )


def _write_float32(
    model: NormalizedModel, key: str, shapes: dict[str, Shape], path: Path
) -> Converted:
    from mpexport.tf.to_tflite import convert_signature

    cache_key = _written_key(key, shapes)
    if cache_key in model.written:
        source, made = model.written[cache_key]
        shutil.copyfile(source, path)
        return made
    converted = convert_signature(model, key, shapes)
    path.write_bytes(converted.content)
    model.written[cache_key] = (path, replace(converted, content=b""))
    return converted


def _write_float16(
    model: NormalizedModel,
    key: str,
    shapes: dict[str, Shape],
    path: Path,
    options: TfliteOptions,
    *,
    in_memory: bool,
) -> Converted:
    """Derives the file from the float32 one: the one written before, or one made for it."""
    from mpexport.tf.tflite_float16 import store_float16
    from mpexport.tf.to_tflite import convert_signature

    large = model.weight_bytes([key]) > LIMIT_BYTES
    marked = options.float16_accumulation
    cache_key = _written_key(key, shapes)
    if in_memory or large or (model.is_last_use and cache_key not in model.written):
        made = convert_signature(model, key, shapes, in_memory=in_memory, offsets=large)
        path.write_bytes(store_float16(made.content, accumulation=marked))
        return made
    if cache_key not in model.written:
        _write_float32(model, key, shapes, Path(tempfile.mkdtemp()) / "float32.tflite")
    source, made = model.written[cache_key]
    # Read, not mapped: the views of the packer would keep a map from being closed.
    path.write_bytes(store_float16(source.read_bytes(), accumulation=marked))
    return made


def _written_key(key: str, shapes: dict[str, Shape]) -> tuple[Any, ...]:
    return ("tflite", key, tuple(sorted(shapes.items())))


def _refuse_newer(path: Path, runtime: str) -> None:
    from mpexport.tflite_file.reader import open_tflite
    from mpexport.tflite_file.requirements import reasons

    with open_tflite(path) as file:
        found = reasons(file, runtime)
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise ConversionError(
            f"TFLite {runtime} does not run {found[0]}{more}",
            hint=found[0].way_out,
            where=found[0].tensor,
            details={"reasons": [str(r) for r in found]},
        )


def _check(path: Path, promised: Conversion, options: TfliteOptions) -> Contract:
    from mpexport.tflite_file.op_versions import CUSTOM
    from mpexport.tflite_file.reader import open_tflite
    from mpexport.tflite_file.requirements import minimum_runtime

    violations: list[str] = []
    ops: Counter[str] = Counter()
    used = set()
    with open_tflite(path) as file:
        for graph in file.subgraphs:
            widened = graph.widened()
            for op in graph.operators:
                custom = op.op.name.startswith(f"{CUSTOM}:")
                name = op.op.custom if custom else op.op.name
                if custom:
                    violations.append(f"custom op {name}: a plain runtime cannot run it")
                ops[name] += 1
                used.add((op.op.code, op.op.version))
            for i, tensor in enumerate(graph.tensors):
                stored = promised.precision == "float16-weights" and i in widened
                if dtypes.is_16_bit_float(tensor.dtype) and not stored:
                    violations.append(f"tensor {tensor.name} is {tensor.dtype}")
        violations += _signature_violations(file, promised.signatures[0])
        facts = {
            "schema_version": file.schema_version,
            "min_runtime_version": minimum_runtime(used),
        }
    return Contract(tuple(violations), dict(sorted(ops.items())), facts)


def _signature_violations(file: TfliteFile, promised: Signature) -> list[str]:
    for key, graph, inputs, outputs in file.signatures():
        if key == promised.key:
            ins, outs = (
                {name: graph.tensors[i].dtype for name, i in side.items()}
                for side in (inputs, outputs)
            )
            # An input that no output depends on is left out by the converter.
            return [
                *side_violations("input", promised.inputs, ins, may_lack=True),
                *side_violations("output", promised.outputs, outs),
            ]
    return [f"signature {promised.key} is missing"]


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
