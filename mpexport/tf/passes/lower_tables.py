"""Write lookups in tables of whole numbers as comparisons with all keys.

Given (``table`` is a captured resource that maps int64 to int64)::

    y = LookupTableFindV2(table, keys, default)

Result (the table is no longer captured when nothing else uses it)::

    y = PartitionedCall{f}(keys, default)

where f compares with the table's keys, which are constants in it. TFLite's own tables map strings
to int64 and back; those stay. Fires where the table is captured by the signature.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from mpexport.findings import Change
from mpexport.tf.graph import EntryPoint, FunctionDef, Program, remove_nodes, rename_readers, where
from mpexport.tf.lowering import Site, trace
from mpexport.tf.pipeline import GraphPass, PassContext

_WHOLE = (types_pb2.DT_INT32, types_pb2.DT_INT64)


def _find(keys: Any, values: Any) -> Any:
    def function(wanted: Any, default: Any) -> Any:
        same = tf.equal(wanted[..., None], keys)
        # Keys are unique, so the sum has one term.
        found = tf.reduce_sum(tf.where(same, values, tf.zeros_like(values)), -1)
        return tf.where(tf.reduce_any(same, -1), found, default)

    return function


def _wants(node: Any) -> bool:
    return (
        node.op == "LookupTableFindV2"
        and node.attr["Tin"].type in _WHOLE
        and node.attr["Tout"].type in _WHOLE
    )


def _contents(capture: Any, node: Any) -> tuple[Any, Any]:
    keys, values = tf.raw_ops.LookupTableExportV2(
        table_handle=capture,
        Tkeys=tf.as_dtype(node.attr["Tin"].type),
        Tvalues=tf.as_dtype(node.attr["Tout"].type),
    )
    order = np.argsort(keys.numpy(), kind="stable")  # a table has no order of its own
    return keys.numpy()[order], values.numpy()[order]


def _drop_unused_captures(entry: EntryPoint, fdef: FunctionDef, tables: set[int]) -> None:
    used = {r for n in fdef.node_def for r in n.input} | set(fdef.ret.values())
    first = len(entry.inputs)
    for position in sorted(tables, reverse=True):
        if fdef.signature.input_arg[position].name not in used:
            del fdef.signature.input_arg[position]
            del entry.captures[position - first]
            attrs = {i: a for i, a in fdef.arg_attr.items() if i != position}
            kept = {
                i - (i > position): type(a).FromString(a.SerializeToString())
                for i, a in attrs.items()
            }
            fdef.arg_attr.clear()
            for i, attr in kept.items():
                fdef.arg_attr[i].CopyFrom(attr)


def _apply(program: Program, context: PassContext) -> list[Change]:
    changes = []
    for entry in program.entries.values():
        fdef = program.library[entry.function]
        arguments = {a.name: i for i, a in enumerate(fdef.signature.input_arg)}
        if not any(_wants(node) for node in fdef.node_def):
            continue
        handles = [a.name for a in fdef.signature.input_arg if a.type == types_pb2.DT_RESOURCE]
        # Inlining leaves an Identity at each argument of what was a call.
        remove_nodes(
            fdef,
            {
                node.name: node.input[0]
                for node in fdef.node_def
                if node.op == "Identity" and node.input[0] in handles
            },
        )
        producers = {n.name: n for n in fdef.node_def}
        tables = set()
        for node in fdef.node_def:
            position = arguments.get(node.input[0], 0) if _wants(node) else 0
            if position < len(entry.inputs):
                continue
            site = Site(fdef, node, producers)
            keys, values = _contents(entry.captures[position - len(entry.inputs)], node)
            dtypes = [tf.as_dtype(node.attr[a].type) for a in ("Tin", "Tout")]
            specs = [tf.TensorSpec(site.shape(1), dtypes[0]), tf.TensorSpec([], dtypes[1])]
            made = trace(_find(keys, values), specs)
            program.library[made.signature.name] = made
            changes.append(Change(PASS.name, "table-to-constants", where(fdef, node)))
            tables.add(position)
            del node.input[0]
            node.op = "PartitionedCall"
            node.attr.clear()
            node.attr["f"].func.name = made.signature.name
            node.attr["Tin"].list.type.extend(d.as_datatype_enum for d in dtypes)
            node.attr["Tout"].list.type.append(dtypes[1].as_datatype_enum)
            rename_readers(fdef, {f"{node.name}:values:0": f"{node.name}:output:0"})
        _drop_unused_captures(entry, fdef, tables)
    return changes


PASS = GraphPass(
    name="lower_tables",
    stage="format",
    apply=_apply,
    is_needed=lambda program: any(_wants(node) for _, node in program.nodes()),
)
