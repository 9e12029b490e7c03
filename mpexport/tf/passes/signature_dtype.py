"""Decide the element type of 16-bit inputs and outputs of the signatures.

Given (an entry point after promotion; its signature still says ``output_0: float16``)::

    ret output_0 = y:activations:0                    # float

Result with ``io_dtype="float32"``: the signature says float32.

Result with ``io_dtype="keep"``: ``Cast{float → half}`` before the output, ``Cast{half → float}``
behind an input, and the signature stays.
"""

from __future__ import annotations

from tensorflow.core.framework import types_pb2

from mpexport import dtypes
from mpexport.findings import Change
from mpexport.signature import TensorSpec
from mpexport.tf.graph import EntryPoint, Program, rename_readers, unique_name
from mpexport.tf.pipeline import GraphPass, PassContext

_NUMBER = {"float16": types_pb2.DT_HALF, "bfloat16": types_pb2.DT_BFLOAT16}


def _widened(
    specs: list[TensorSpec], entry: EntryPoint, side: str
) -> tuple[list[TensorSpec], list[Change]]:
    new, changes = [], []
    for spec in specs:
        if dtypes.is_16_bit_float(spec.dtype):
            changes.append(
                Change(
                    PASS.name,
                    f"{side}-widened",
                    f"{entry.key}/{spec.name}",
                    f"{spec.dtype} → float32",
                )
            )
            spec = TensorSpec(spec.name, spec.shape, "float32")
        new.append(spec)
    return new, changes


def _keep(program: Program, entry: EntryPoint) -> list[Change]:
    fdef = program.library[entry.function]
    taken: set[str] = set()
    changes: list[Change] = []
    renamed: dict[str, str] = {}
    border: set[str] = set()

    def cast(base: str, source: str, src: int, dst: int) -> str:
        name = unique_name(fdef, taken, base)
        node = fdef.node_def.add(name=name, op="Cast", input=[source])
        node.attr["SrcT"].type, node.attr["DstT"].type = src, dst
        border.add(name)
        changes.append(Change(PASS.name, "boundary-cast", f"{entry.key}/{base}"))
        return f"{name}:y:0"

    # An argument that is 16 bits already was seen to: two signatures may share a function.
    for spec, arg in zip(entry.inputs, fdef.signature.input_arg):
        if spec.dtype in _NUMBER and arg.type == types_pb2.DT_FLOAT:
            arg.type = _NUMBER[spec.dtype]
            renamed[arg.name] = cast(f"{arg.name}/widened", arg.name, arg.type, types_pb2.DT_FLOAT)
    rename_readers(fdef, renamed, skip=frozenset(border))
    for spec, arg in zip(entry.outputs, fdef.signature.output_arg):
        if spec.dtype in _NUMBER and arg.type == types_pb2.DT_FLOAT:
            arg.type = _NUMBER[spec.dtype]
            fdef.ret[arg.name] = cast(
                f"{arg.name}/narrowed", fdef.ret[arg.name], types_pb2.DT_FLOAT, arg.type
            )
    return changes


def _apply(program: Program, context: PassContext) -> list[Change]:
    changes: list[Change] = []
    for entry in program.entries.values():
        if context.io_dtype == "keep":
            changes += _keep(program, entry)
            continue
        entry.inputs, widened = _widened(entry.inputs, entry, "input")
        changes += widened
        entry.outputs, widened = _widened(entry.outputs, entry, "output")
        changes += widened
    return changes


PASS = GraphPass(
    name="signature_dtype", stage="normalize", apply=_apply, after=("promote_compute_dtype",)
)
