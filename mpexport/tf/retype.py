"""The engine under promotion: give tensors another element type across a whole program.

Every attribute that holds an element type is rewritten, in nodes, function signatures, constants
and function attributes. Nodes that must keep their element types become *islands*: Casts are put
on their borders and the nodes themselves stay as they were.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tensorflow.core.framework import tensor_pb2, types_pb2

from mpexport.findings import Change
from mpexport.tf.graph import (
    FunctionDef,
    NodeDef,
    Program,
    input_types,
    map_attr_types,
    output_types,
    rename_readers,
    unique_name,
    where,
)

_NUMPY = {types_pb2.DT_FLOAT: np.dtype("<f4"), types_pb2.DT_DOUBLE: np.dtype("<f8")}
_FIELD = {types_pb2.DT_FLOAT: "float_val", types_pb2.DT_DOUBLE: "double_val"}


def _bits_to_float32(bits: np.ndarray, dtype: int) -> np.ndarray:
    """Widens raw 16-bit patterns (uint16) exactly."""
    if dtype == types_pb2.DT_HALF:
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def convert_tensor(tensor: tensor_pb2.TensorProto, target: int) -> None:
    """Widens the values of a float tensor in place; every value is kept exactly.

    A compressed tensor (fewer values than elements, the last one repeated) stays compressed.

    Args:
        tensor: Of DT_HALF, DT_BFLOAT16 or DT_FLOAT.
        target: DT_FLOAT or DT_DOUBLE.
    """
    source = tensor.dtype
    if source == types_pb2.DT_FLOAT:
        raw = np.frombuffer(tensor.tensor_content, "<f4") if tensor.tensor_content else None
        values = np.array(tensor.float_val, np.float32) if raw is None else raw
    else:
        raw = np.frombuffer(tensor.tensor_content, "<u2") if tensor.tensor_content else None
        bits = np.array(tensor.half_val, np.uint16) if raw is None else raw
        values = _bits_to_float32(bits, source)
    shape = tensor_pb2.TensorProto().tensor_shape
    shape.CopyFrom(tensor.tensor_shape)
    tensor.Clear()
    tensor.dtype = target
    tensor.tensor_shape.CopyFrom(shape)
    if raw is not None:
        tensor.tensor_content = values.astype(_NUMPY[target]).tobytes()
    else:
        getattr(tensor, _FIELD[target]).extend(values.astype(_NUMPY[target]).tolist())


def _retype_node(node: NodeDef, mapping: dict[int, int]) -> bool:
    changed = False
    for value in node.attr.values():
        changed |= map_attr_types(value, mapping)
        if value.WhichOneof("value") == "tensor" and value.tensor.dtype in mapping:
            convert_tensor(value.tensor, mapping[value.tensor.dtype])
            changed = True
    return changed


def _add_cast(fdef: FunctionDef, name: str, source: str, src: int, dst: int) -> str:
    cast = fdef.node_def.add(name=name, op="Cast", input=[source])
    cast.attr["SrcT"].type = src
    cast.attr["DstT"].type = dst
    return f"{name}:y:0"


def _make_island(
    fdef: FunctionDef, node: NodeDef, mapping: dict[int, int], taken: set[str]
) -> dict[str, str] | None:
    """Casts every retyped input back and every output forth.

    Returns:
        Output tensor → tensor its readers shall use; None when no border has a mapped type.
    """
    ins, outs = input_types(node), output_types(node)
    if ins is None or outs is None:
        return None
    if not any(t in mapping for t in ins) and not any(t in mapping for _, t in outs):
        return None
    name = node.name
    data = [r for r in node.input if not r.startswith("^")]
    for i, (ref, t) in enumerate(zip(data, ins)):
        if t in mapping:
            cast = unique_name(fdef, taken, f"{name}/island_in_{i}")
            node.input[i] = _add_cast(fdef, cast, ref, mapping[t], t)
    renamed = {}
    for i, (suffix, t) in enumerate(outs):
        if t in mapping:
            cast = unique_name(fdef, taken, f"{name}/island_out_{i}")
            source = f"{name}:{suffix}"
            renamed[source] = _add_cast(fdef, cast, source, t, mapping[t])
    return renamed


def retype(
    program: Program,
    mapping: dict[int, int],
    keep: Callable[[NodeDef], bool],
    pass_name: str,
) -> list[Change]:
    """Rewrites element types by ``mapping`` in all functions, in place.

    Args:
        program: The program. `EntryPoint` inputs, outputs and captures are left to the caller.
        mapping: DataType number → DataType number.
        keep: Whether a node must keep its element types (it becomes an island).
        pass_name: Name for the change records.

    Returns:
        One change per retyped node, signature and island.
    """
    changes = []
    for fdef in program.library.values():
        taken: set[str] = set()
        renamed: dict[str, str] = {}
        border: set[str] = set()
        for arg in [*fdef.signature.input_arg, *fdef.signature.output_arg]:
            arg.ClearField("experimental_full_type")
            if arg.type in mapping:
                changes.append(
                    Change(pass_name, "argument-retyped", f"{fdef.signature.name}/{arg.name}")
                )
                arg.type = mapping[arg.type]
        for attrs in fdef.arg_attr.values():
            for value in attrs.attr.values():
                map_attr_types(value, mapping)
        for node in list(fdef.node_def):
            if keep(node):
                island = _make_island(fdef, node, mapping, taken)
                if island is not None:
                    renamed.update(island)
                    border.update(tensor.partition(":")[0] for tensor in island.values())
                    changes.append(Change(pass_name, "island", where(fdef, node), node.op))
            elif _retype_node(node, mapping):
                changes.append(Change(pass_name, "node-retyped", where(fdef, node), node.op))
        rename_readers(fdef, renamed, skip=frozenset(border))
    return changes
