"""ONNX, through tf2onnx: names as in the signature, checked in full, weights in a stable order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpexport.errors import UsageError
from mpexport.findings import Change
from mpexport.formats import Contract, Conversion, FormatSpec, head, side_violations

if TYPE_CHECKING:
    from mpexport.tf.normalized import NormalizedModel

# A protobuf message cannot exceed 2 GiB; larger weights go to a file beside the model.
EXTERNAL_DATA_BYTES = 2**31 - 2**20
# Up to 22 no op that tf2onnx writes changed its meaning, only the element types it takes.
MIN_OPSET, MAX_OPSET = 13, 22
# The newest that ONNX Runtime reads since 1.14. Later opsets have one op more that is of use here,
# Gelu (20); ONNX Runtime fuses what stands for it below 20 when it loads a file.
DEFAULT_OPSET = 18


@dataclass(frozen=True)
class OnnxOptions:
    """Options of the onnx format."""

    opset: int = field(
        default=DEFAULT_OPSET,
        metadata={"help": f"Opset of the standard domain, {MIN_OPSET} to {MAX_OPSET}."},
    )
    weights: str = field(
        default="float32",
        metadata={
            "help": "Stored element type of the weights; compute stays float32.",
            "choices": ("float32", "float16"),
        },
    )
    precision: str = field(
        default="float32",
        metadata={
            "help": "Element type of the computation; inputs and outputs stay float32.",
            "choices": ("float32", "float16"),
        },
    )
    keep_float32: tuple[str, ...] = field(
        default=(),
        metadata={
            "help": "With --precision float16: ops and layers that compute in float32 still.",
            "metavar": "op:TYPE,layer:PATTERN",
        },
    )
    allow_clamp: bool = field(
        default=False,
        metadata={"help": "Clamp weights that float16 cannot hold, instead of refusing them."},
    )

    def __post_init__(self) -> None:
        """Raises `UsageError` for what tf2onnx does not write, and for options without effect."""
        from mpexport.tf.onnx_precision.keep import parse_keep

        if not MIN_OPSET <= self.opset <= MAX_OPSET:
            raise UsageError(
                f"opset {self.opset}: not supported", hint=f"choose {MIN_OPSET} to {MAX_OPSET}"
            )
        parse_keep(self.keep_float32)
        if self.keep_float32 and self.precision != "float16":
            raise UsageError(
                "--keep-float32 means nothing without --precision float16",
                hint="everything computes in float32 already",
            )


def _convert(model: NormalizedModel, path: Path, options: OnnxOptions) -> Conversion:
    from mpexport.tf import weights
    from mpexport.tf.onnx_precision import rewrite, storage, trained
    from mpexport.tf.to_onnx import build_onnx

    key = model.source.choose()
    computes_half, stores_half = options.precision == "float16", options.weights == "float16"
    damages: list[weights.Damage] = []
    changes: list[Change] = []
    notes = list(model.notes)
    # With layers kept in float32, only the weights of the others matter: `rewrite` looks at those.
    if (computes_half or stores_half) and not options.keep_float32:
        damages = weights.float16_damage(model, key)
        found, changes = weights.accept(damages, allow_clamp=options.allow_clamp)
        notes += found
    with weights.clamped(model, key, damages):
        proto, signature = build_onnx(model, key, options.opset)
    clamps = options.allow_clamp and bool(options.keep_float32)
    if computes_half:
        keep, single = tuple(options.keep_float32), trained.float32_nodes(model.original)
        made = rewrite.compute_in_float16(proto, keep, single, clamp=clamps)
        if not any(c.kind == rewrite.HALF_NODE for c in made):
            notes.append("nothing computes in float16: every op is kept in float32")
        changes += made
    if stores_half:
        changes += storage.store_float16(proto, clamp=clamps)
    late = [c.where for c in changes if c.kind == "weight-clamped"] if clamps else []
    if late:
        notes.append(f"weights were clamped to ±65504: {', '.join(late)}")
    _save(proto, path, external=storage.weight_bytes(proto) > EXTERNAL_DATA_BYTES)
    stored = "float16-weights" if stores_half else "float32"
    precision = "float16" if computes_half else stored
    return Conversion((signature,), precision, tuple(notes), tuple(changes))


def _save(proto: Any, path: Path, *, external: bool) -> None:
    import onnx

    if external:
        # The location is relative to the model file and is kept when both are renamed together.
        onnx.save_model(
            proto,
            str(path),
            save_as_external_data=True,
            all_tensors_to_one_file=True,
            location=f"{path.name}.data",
            size_threshold=1024,
        )
    else:
        onnx.save_model(proto, str(path))


def _check(path: Path, promised: Conversion, options: OnnxOptions) -> Contract:
    import onnx

    from mpexport.tf.onnx_precision import contract

    violations: list[str] = []
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as e:
        violations.append(f"onnx.checker: {str(e).strip().splitlines()[0]}")
    model = onnx.load(str(path), load_external_data=False)
    opsets = {o.domain: o.version for o in model.opset_import}
    ops: Counter[str] = Counter()
    graphs = [model.graph]
    while graphs:
        graph = graphs.pop()
        for node in graph.node:
            ops[node.op_type] += 1
            if node.domain not in ("", "ai.onnx", "ai.onnx.ml"):
                violations.append(f"op {node.op_type} is of domain {node.domain}")
            for attribute in node.attribute:
                graphs += [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
    found = contract.check(model, promised.precision, promised.changes, options.keep_float32)
    violations += found.violations
    signature = promised.signatures[0]
    violations += side_violations("input", signature.inputs, _types(model.graph.input))
    violations += side_violations("output", signature.outputs, _types(model.graph.output))
    if opsets.get("") != options.opset:
        violations.append(f"opset is {opsets.get('')}, not {options.opset}")
    return Contract(
        tuple(violations), dict(sorted(ops.items())), {"opset": opsets.get(""), **found.facts}
    )


def _types(values: Any) -> dict[str, str]:
    import onnx

    kind = onnx.TensorProto.DataType.Name
    return {v.name: kind(v.type.tensor_type.elem_type) for v in values}


def _sniff(path: Path) -> bool:
    # An ONNX file is a bare protobuf: field 1 (ir_version, varint) comes first in every writer.
    start = head(path, 2)
    return len(start) == 2 and start[0] == 0x08 and 1 <= start[1] <= 30


SPEC = FormatSpec(
    name="onnx",
    title="ONNX file for onnxruntime and others",
    suffix=".onnx",
    is_directory=False,
    options=OnnxOptions,
    sniff=_sniff,
    modules=("tensorflow", "tf2onnx", "onnx"),
    extra="onnx",
    convert=_convert,
    check=_check,
    variants={"onnx-float16": {"weights": "float16"}},
)
