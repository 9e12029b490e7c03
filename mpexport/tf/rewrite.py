"""A promoted SavedModel without touching a weight: the graph is rewritten, the variables linked.

Converters that read a SavedModel from disk need one; saving the promoted functions would write all
weights and trace a saver for them first. The source's own file, with its functions promoted in
place and its variables linked beside it, is the same model at no cost.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import saved_model_pb2

from mpexport.tf import pipeline
from mpexport.tf.graph import HALF_TYPES, EntryPoint, Program, map_attr_types
from mpexport.tf.normalized import NormalizedModel
from mpexport.tf.passes.promote_compute_dtype import MAPPING

_PASSES = (
    "strip_trace_attributes",
    "drop_saturating_casts",
    "saturate_sentinels",
    "promote_compute_dtype",
    "drop_identity_casts",
)


def write_promoted(model: NormalizedModel, directory: Path) -> bool:
    """Writes the promoted twin of the source's SavedModel.

    Args:
        model: The normalized model; its source's directory must still be there.
        directory: Where to write; must not exist.

    Returns:
        Whether it could be done. It can't when variables or captured constants are 16 bits, when a
        signature is none of the file's own, or when functions capture tensors of other functions
        (the object graph knows those by name): then the functions have to be saved anew.
    """
    source = Path(model.source.directory)
    widened = model.twins or any(c.kind == "constant-widened" for c in model.changes)
    if widened or model.source.is_endpoint:
        return False
    message = saved_model_pb2.SavedModel()
    message.ParseFromString((source / "saved_model.pb").read_bytes())
    wanted = sorted(model.source.tags)
    meta = next(m for m in message.meta_graphs if sorted(m.meta_info_def.tags) == wanted)
    if any(node.HasField("captured_tensor") for node in meta.object_graph_def.nodes):
        return False
    functions = {f.signature.name: f for f in meta.graph_def.library.function}
    calls = _signature_calls(meta)
    if not calls:
        return False
    program = Program(functions, {k: EntryPoint(k, f, [], [], []) for k, f in calls.items()})
    pipeline.run(program, "none", pipeline.PassContext(), extra=_PASSES)
    inside = _signature_nodes(meta)
    for node in meta.graph_def.node:
        if node.name in inside:
            for value in node.attr.values():
                map_attr_types(value, MAPPING)
    _retype_signatures(meta)
    directory.mkdir()
    for child in source.iterdir():
        if child.name not in ("saved_model.pb", "fingerprint.pb"):
            (directory / child.name).symlink_to(child)
    (directory / "saved_model.pb").write_bytes(message.SerializeToString(deterministic=True))
    return True


def _signature_nodes(meta: Any) -> set[str]:
    """Top-level nodes that compute a signature: placeholders, calls, identities, handles."""
    nodes = {n.name: n for n in meta.graph_def.node}
    todo = [
        info.name
        for definition in meta.signature_def.values()
        for info in definition.outputs.values()
    ]
    found: set[str] = set()
    while todo:
        name = todo.pop().lstrip("^").partition(":")[0]
        if name in nodes and name not in found:
            found.add(name)
            todo.extend(nodes[name].input)
    return found


def _signature_calls(meta: Any) -> dict[str, str]:
    """Signature key → the function its outputs come from."""
    nodes = {n.name: n for n in meta.graph_def.node}
    calls = {}
    for key, definition in meta.signature_def.items():
        for info in definition.outputs.values():
            node = nodes.get(info.name.partition(":")[0])
            if node is not None and "f" in node.attr:
                calls[key] = node.attr["f"].func.name
    return calls


def _retype_signatures(meta: Any) -> None:
    for definition in meta.signature_def.values():
        for info in [*definition.inputs.values(), *definition.outputs.values()]:
            if info.dtype in HALF_TYPES:
                info.dtype = types_pb2.DT_FLOAT
    for function in meta.object_graph_def.concrete_functions.values():
        _retype_structure(function.canonicalized_input_signature)
        _retype_structure(function.output_signature)
    for node in meta.object_graph_def.nodes:
        if node.HasField("function"):
            _retype_structure(node.function.function_spec.input_signature)


def _retype_structure(value: Any) -> None:
    """Widens the dtypes in a StructuredValue, however it is nested."""
    for descriptor, content in value.ListFields():
        if descriptor.name in ("dtype", "tensor_dtype_value"):
            if content in HALF_TYPES:
                setattr(value, descriptor.name, types_pb2.DT_FLOAT)
        elif descriptor.message_type is None:
            continue
        elif hasattr(content, "ListFields"):
            _retype_structure(content)
        else:
            items = content.values() if hasattr(content, "values") else content
            for item in items:
                if hasattr(item, "ListFields"):
                    _retype_structure(item)
