"""The engine under promotion: give tensors another element type across a whole program.

Every attribute that holds an element type is rewritten, in nodes, function signatures, constants
and function attributes. Nodes that must keep their element types become *islands*: Casts are put
on their borders and the nodes themselves stay as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    tensor_node,
    unique_name,
    where,
)

_NUMPY: dict[int, np.dtype[Any]] = {
    types_pb2.DT_FLOAT: np.dtype("<f4"),
    types_pb2.DT_DOUBLE: np.dtype("<f8"),
}
_FIELD = {types_pb2.DT_FLOAT: "float_val", types_pb2.DT_DOUBLE: "double_val"}


def _bits_to_float32(bits: np.ndarray, dtype: int) -> np.ndarray:
    """Widens raw 16-bit patterns (uint16) exactly."""
    if dtype == types_pb2.DT_HALF:
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def stored_values(tensor: tensor_pb2.TensorProto) -> np.ndarray:
    """The values a float tensor stores, widened to float32 exactly.

    A compressed tensor stores fewer values than it has elements; the last one is repeated.

    Args:
        tensor: Of DT_HALF, DT_BFLOAT16 or DT_FLOAT.
    """
    if tensor.dtype == types_pb2.DT_FLOAT:
        if tensor.tensor_content:
            return np.frombuffer(tensor.tensor_content, "<f4")
        return np.array(tensor.float_val, np.float32)
    if tensor.tensor_content:
        bits = np.frombuffer(tensor.tensor_content, "<u2")
    else:
        bits = np.array(tensor.half_val, np.uint16)
    return _bits_to_float32(bits, tensor.dtype)


def convert_tensor(
    tensor: tensor_pb2.TensorProto, target: int, values: np.ndarray | None = None
) -> None:
    """Widens the values of a float tensor in place; every value is kept exactly.

    A compressed tensor stays compressed.

    Args:
        tensor: Of DT_HALF, DT_BFLOAT16 or DT_FLOAT.
        target: DT_FLOAT or DT_DOUBLE.
        values: What to store instead of `stored_values`; as many.
    """
    if values is None:
        values = stored_values(tensor)
    with np.errstate(invalid="ignore"):  # a signaling NaN
        values = values.astype(_NUMPY[target])
    is_raw = bool(tensor.tensor_content)
    shape = tensor_pb2.TensorProto().tensor_shape
    shape.CopyFrom(tensor.tensor_shape)
    tensor.Clear()
    tensor.dtype = target
    tensor.tensor_shape.CopyFrom(shape)
    if is_raw:
        tensor.tensor_content = values.tobytes()
    else:
        getattr(tensor, _FIELD[target]).extend(values.tolist())


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


def _border_casts(fdef: FunctionDef, mapping: dict[int, int], kept: set[str]) -> set[str]:
    """Casts that already join kept nodes to the rest: what an earlier run put there.

    They go from a mapped type's target to the type and are read by kept nodes only, or they read a
    kept node and go from the type to its target.
    """
    readers: dict[str, set[str]] = {}
    for node in fdef.node_def:
        for ref in node.input:
            readers.setdefault(tensor_node(ref), set()).add(node.name)
    for ref in fdef.ret.values():
        readers.setdefault(tensor_node(ref), set()).add("")
    found = set()
    for node in fdef.node_def:
        if node.op != "Cast" or node.name in kept:
            continue
        src, dst = node.attr["SrcT"].type, node.attr["DstT"].type
        leads_in = mapping.get(dst) == src and readers.get(node.name, {""}) <= kept
        leads_out = mapping.get(src) == dst and tensor_node(node.input[0]) in kept
        if leads_in or leads_out:
            found.add(node.name)
    return found


def _make_island(
    fdef: FunctionDef,
    node: NodeDef,
    mapping: dict[int, int],
    taken: set[str],
    border: set[str],
    read: set[str],
) -> dict[str, str] | None:
    """Casts every retyped input back and every output forth, unless a border Cast does.

    Args:
        fdef: The function, edited in place.
        node: The node that keeps its element types.
        mapping: DataType number → DataType number.
        taken: Names in use.
        border: Casts on the borders of islands; new ones are added.
        read: Tensors that others than border Casts read.

    Returns:
        Output tensor → tensor its readers shall use; None when no border has a mapped type.
    """
    ins, outs = input_types(node), output_types(node)
    if ins is None or outs is None:
        return None
    name = node.name
    data = [r for r in node.input if not r.startswith("^")]
    bare_ins = [
        (i, ref, t)
        for i, (ref, t) in enumerate(zip(data, ins))
        if t in mapping and tensor_node(ref) not in border
    ]
    bare_outs = [
        (i, f"{name}:{suffix}", t)
        for i, (suffix, t) in enumerate(outs)
        if t in mapping and f"{name}:{suffix}" in read
    ]
    if not bare_ins and not bare_outs:
        return None
    for i, ref, t in bare_ins:
        cast = unique_name(fdef, taken, f"{name}/island_in_{i}")
        node.input[i] = _add_cast(fdef, cast, ref, mapping[t], t)
    renamed = {}
    for i, source, t in bare_outs:
        cast = unique_name(fdef, taken, f"{name}/island_out_{i}")
        border.add(cast)
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
        kept = {node.name for node in fdef.node_def if keep(node)}
        border = _border_casts(fdef, mapping, kept) if kept else set()
        read = {r for n in fdef.node_def if n.name not in border for r in n.input}
        read.update(fdef.ret.values())
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
            if node.name in kept:
                island = _make_island(fdef, node, mapping, taken, border, read)
                if island is not None:
                    renamed.update(island)
                    changes.append(Change(pass_name, "island", where(fdef, node), node.op))
            elif node.name in border:
                continue
            elif _retype_node(node, mapping):
                changes.append(Change(pass_name, "node-retyped", where(fdef, node), node.op))
        rename_readers(fdef, renamed, skip=frozenset(border))
    return changes
