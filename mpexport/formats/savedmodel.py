"""The normalized SavedModel: original names, dynamic dimensions and all signatures, no 16 bits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpexport import dtypes
from mpexport.formats import Contract, Conversion, FormatSpec, side_violations
from mpexport.signature import Signature

if TYPE_CHECKING:
    from mpexport.tf.normalized import NormalizedModel


@dataclass(frozen=True)
class SavedModelOptions:
    """Options of the savedmodel format."""

    io_dtype: str = field(
        default="float32",
        metadata={
            "help": "Element type of 16-bit inputs and outputs: float32 widens them.",
            "choices": ("float32", "keep"),
        },
    )


def _convert(model: NormalizedModel, path: Path, options: SavedModelOptions) -> Conversion:
    import tensorflow as tf

    keys = list(model.program.entries)
    functions = {key: model.function(key) for key in keys}
    tf.saved_model.save(model.holder(), str(path), signatures=functions)
    return Conversion(tuple(model.signature(key) for key in keys), notes=tuple(model.notes))


def _check(path: Path, promised: Conversion, options: SavedModelOptions) -> Contract:
    import tensorflow as tf
    from tensorflow.core.protobuf import saved_model_pb2

    from mpexport.tf.graph import Program
    from mpexport.tf.normalized import half_tensors

    message = saved_model_pb2.SavedModel()
    message.ParseFromString((path / "saved_model.pb").read_bytes())
    violations = []
    graph = message.meta_graphs[0].graph_def
    program = Program({f.signature.name: f for f in graph.library.function})
    ops = Counter(node.op for _, node in program.nodes())
    if options.io_dtype != "keep":
        violations += [f"16-bit tensor left at {place}" for place in half_tensors(program)]
        reader = tf.train.load_checkpoint(str(path / "variables" / "variables"))
        for name, dtype in reader.get_variable_to_dtype_map().items():
            if dtypes.is_16_bit_float(dtype.name):
                violations.append(f"variable {name} is stored in {dtype.name}")
    definitions = message.meta_graphs[0].signature_def
    for signature in promised.signatures:
        violations += _signature_violations(definitions, signature)
    size = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    return Contract(tuple(violations), dict(sorted(ops.items())), {"size_bytes": size})


def _signature_violations(definitions: Any, signature: Signature) -> list[str]:
    import tensorflow as tf

    if signature.key not in definitions:
        return [f"signature {signature.key} is missing"]
    found = definitions[signature.key]
    ins, outs = (
        {name: tf.as_dtype(info.dtype).name for name, info in infos.items()}
        for infos in (found.inputs, found.outputs)
    )
    wrong = side_violations("input", signature.inputs, ins)
    wrong += side_violations("output", signature.outputs, outs)
    return [f"{signature.key}: {text}" for text in wrong]


SPEC = FormatSpec(
    name="savedmodel",
    title="normalized TensorFlow SavedModel",
    suffix="_savedmodel",
    is_directory=True,
    options=SavedModelOptions,
    sniff=lambda path: (path / "saved_model.pb").is_file(),
    modules=("tensorflow",),
    extra="tensorflow",
    convert=_convert,
    check=_check,
    aliases=("normalize",),
)
