"""Make TensorLists plain tensors, so that recurrent layers keep a batch that is unknown.

Given (a list of ``time`` elements of ``[batch, units]``, the batch unknown)::

    list = TensorListReserve([-1, 4], time)
    _, out = While(0, list):  list' = TensorListSetItem(list, i, h)
    y = TensorListStack(out)

Result::

    list = Fill([time, batch, 4], 0)
    _, y = While(0, list):    list' = XlaDynamicUpdateSlice(list, ExpandDims(h), [i, 0, 0])

Fires when an element shape has an unknown leading size and every list of the program is made,
written and read by the ops above, TensorListFromTensor, TensorListGetItem and TensorListLength;
lists with static elements are left to the converter. That the unknown size is the batch of the
signature's inputs is an assumption, which running the exported file confirms.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from mpexport.findings import Change
from mpexport.tf.concrete import fresh_suffix
from mpexport.tf.graph import FunctionDef, Program, attr_value, rename_readers, tensor_node, where
from mpexport.tf.lowering import SHAPES, Site, trace
from mpexport.tf.passes import drop_dead_functions
from mpexport.tf.pipeline import GraphPass, PassContext

_HANDLED = {
    "TensorListFromTensor": ("tensor", "output_handle"),
    "TensorListGetItem": ("input_handle", "item"),
    "TensorListLength": ("input_handle", "length"),
    "TensorListReserve": ("", "handle"),
    "TensorListSetItem": ("input_handle", "output_handle"),
    "TensorListStack": ("input_handle", "tensor"),
}
_LOOPS = ("While", "StatelessWhile")


def _element_shapes(program: Program) -> Iterator[Any]:
    """The constant element shape of each list that is made empty; None where it is no constant."""
    for fdef in program.library.values():
        producers = {n.name: n for n in fdef.node_def}
        for node in fdef.node_def:
            if node.op == "TensorListReserve":
                yield Site(fdef, node, producers).const(0)


def _is_needed(program: Program) -> bool:
    shapes = [s for s in _element_shapes(program) if s is not None]
    return any(s.ndim == 1 and s.size and s[0] < 0 for s in shapes)


def _is_possible(program: Program) -> bool:
    """Whether every list is of a kind that `_Rewriter` knows, its elements static but for one."""
    lists = [n.op for _, n in program.nodes() if "TensorList" in n.op]
    shapes = list(_element_shapes(program))
    return all(op in _HANDLED for op in lists) and all(
        s is not None and s.ndim == 1 and all(n >= 0 for n in s[1:]) for s in shapes
    )


def _call(program: Program, fdef: FunctionDef, node: Any, refs: list[str], made: Any) -> None:
    """Turns a list op into a call of ``made`` on ``refs``."""
    program.library[made.signature.name] = made
    suffix = _HANDLED[node.op][1]
    types = [a.type for a in made.signature.input_arg]
    controls = [r for r in node.input if r.startswith("^")]
    node.op = "PartitionedCall"
    del node.input[:]
    node.input.extend([*refs, *controls])
    node.attr.clear()
    node.attr["f"].func.name = made.signature.name
    node.attr["Tin"].list.type.extend(types)
    node.attr["Tout"].list.type.extend(a.type for a in made.signature.output_arg)
    rename_readers(fdef, {f"{node.name}:{suffix}:0": f"{node.name}:output:0"})


def _reserve(shape: Any, dtype: Any, batch: Any) -> FunctionDef:
    """``(number of elements, an input with the batch)`` → zeros."""

    def function(count: Any, source: Any) -> Any:
        leading = tf.shape(source)[:1] if shape.size and shape[0] < 0 else shape[:1]
        sizes = tf.concat([tf.reshape(count, [1]), leading, shape[1:]], 0)
        return tf.fill(sizes, tf.zeros([], dtype))

    return trace(function, [tf.TensorSpec([], tf.int32), tf.TensorSpec(None, batch)])


def _set_item(dtype: Any, element: tf.TensorShape) -> FunctionDef:
    def function(whole: Any, index: Any, item: Any) -> Any:
        start = tf.concat([tf.reshape(index, [1]), [0] * element.rank], 0)
        return gen_xla_ops.xla_dynamic_update_slice(
            input=whole, update=tf.expand_dims(item, 0), indices=start
        )

    # Shapes without their sizes: a list of one element is as good as one of a hundred.
    whole = tf.TensorShape([None]).concatenate(element)
    specs = [
        tf.TensorSpec(whole, dtype),
        tf.TensorSpec([], tf.int32),
        tf.TensorSpec(element, dtype),
    ]
    return trace(function, specs)


class _Rewriter:
    """Rewrites a function and the loops in it; knows the element type of each list."""

    def __init__(self, program: Program, batch: tuple[str, int]) -> None:
        self.program = program
        self.batch = batch
        self.changes: list[Change] = []

    def rewrite(self, fdef: FunctionDef, lists: dict[str, tuple[int, tf.TensorShape]]) -> None:
        """Rewrites one function.

        Args:
            fdef: Edited in place.
            lists: Tensor → element type and element shape, for arguments that are lists.
        """
        producers = {n.name: n for n in fdef.node_def}
        for node in _in_order(fdef):
            site = Site(fdef, node, producers)
            if node.op in _HANDLED:
                self._list_op(site, lists)
            elif node.op in _LOOPS:
                self._loop(fdef, node, lists)
            elif node.op == "Identity" and node.input[0] in lists:
                lists[f"{node.name}:output:0"] = lists[node.input[0]]
                node.attr["T"].type = lists[node.input[0]][0]
                node.attr.pop(SHAPES, None)

    def _list_op(self, site: Site, lists: dict[str, tuple[int, tf.TensorShape]]) -> None:
        fdef, node, op = site.fdef, site.node, site.node.op
        self.changes.append(Change(PASS.name, "list-to-tensor", where(fdef, node), op))
        refs = site.inputs
        dtype = tf.as_dtype(attr_value(node, "element_dtype").type)
        if op == "TensorListReserve":
            shape = site.const(0)
            assert shape is not None  # _is_possible
            made = _reserve(shape, dtype, tf.as_dtype(self.batch[1]))
            _call(self.program, fdef, node, [refs[1], self.batch[0]], made)
            sizes = [n if n >= 0 else None for n in shape]
            lists[f"{node.name}:output:0"] = (dtype.as_datatype_enum, tf.TensorShape(sizes))
            return
        if op == "TensorListFromTensor":
            shape = site.const(1)
            known = site.shape(0)
            element = tf.TensorShape(None)
            if shape is not None and shape.ndim == 1:
                element = tf.TensorShape([n if n >= 0 else None for n in shape.tolist()])
            if known.rank:
                element = known[1:]
            made = trace(lambda t: tf.identity(t), [tf.TensorSpec(known, dtype)])
            _call(self.program, fdef, node, refs[:1], made)
            lists[f"{node.name}:output:0"] = (dtype.as_datatype_enum, element)
            return
        held, element = lists[refs[0]]
        spec = tf.TensorSpec(tf.TensorShape([None]).concatenate(element), tf.as_dtype(held))
        if op == "TensorListGetItem":
            made = trace(lambda t, i: tf.gather(t, i), [spec, tf.TensorSpec([], tf.int32)])
            _call(self.program, fdef, node, refs[:2], made)
        elif op == "TensorListSetItem":
            _call(self.program, fdef, node, refs[:3], _set_item(dtype, element))
            lists[f"{node.name}:output:0"] = (held, element)
        elif op == "TensorListStack":
            _call(self.program, fdef, node, refs[:1], trace(lambda t: tf.identity(t), [spec]))
        else:
            _call(self.program, fdef, node, refs[:1], trace(lambda t: tf.shape(t)[0], [spec]))

    def _loop(
        self, fdef: FunctionDef, node: Any, lists: dict[str, tuple[int, tf.TensorShape]]
    ) -> None:
        carried = {i: lists[r] for i, r in enumerate(node.input) if r in lists}
        if not carried:
            return
        for branch in ("cond", "body"):
            inner = FunctionDef()
            inner.CopyFrom(self.program.library[node.attr[branch].func.name])
            inner.signature.name += fresh_suffix("lists")
            node.attr[branch].func.name = inner.signature.name
            self.program.library[inner.signature.name] = inner
            inside = {}
            for i, (dtype, element) in carried.items():
                inner.signature.input_arg[i].type = dtype
                inner.signature.input_arg[i].ClearField("handle_data")
                inner.arg_attr[i].attr.pop(SHAPES, None)
                inside[inner.signature.input_arg[i].name] = (dtype, element)
                if branch == "body":
                    inner.signature.output_arg[i].type = dtype
            self.rewrite(inner, inside)
        for i, (dtype, element) in carried.items():
            node.attr["T"].list.type[i] = dtype
            lists[f"{node.name}:output:{i}"] = (dtype, element)
            if i < len(node.attr["output_shapes"].list.shape):
                shape = tf.TensorShape([None]).concatenate(element).as_proto()
                node.attr["output_shapes"].list.shape[i].CopyFrom(shape)
        node.attr.pop(SHAPES, None)


def _in_order(fdef: FunctionDef) -> list[Any]:
    """The nodes, each after those it reads: a function may hold them in any order."""
    nodes = {n.name: n for n in fdef.node_def}
    done: dict[str, Any] = {}
    todo = list(reversed(fdef.node_def))
    while todo:
        node = todo[-1]
        missing = [
            nodes[tensor_node(r)]
            for r in node.input
            if tensor_node(r) in nodes and tensor_node(r) not in done
        ]
        if missing and node.name not in done:
            todo.extend(missing)
        else:
            done.setdefault(node.name, todo.pop())
    return list(done.values())


def rewrite_lists(program: Program, context: PassContext) -> list[Change]:
    """Makes every list of a program a tensor, or changes nothing where one is of another kind."""
    if len(program.entries) != 1 or not _is_possible(program):
        return []
    entry = next(iter(program.entries.values()))
    fdef = program.library[entry.function]
    source = next((i for i, s in enumerate(entry.inputs) if s.shape and s.shape[0] is None), None)
    if source is None and _is_needed(program):
        return []
    # Without an unknown size its place is not read, and any input will do.
    argument = fdef.signature.input_arg[source or 0]
    rewriter = _Rewriter(program, (argument.name, argument.type))
    rewriter.rewrite(fdef, {})
    drop_dead_functions.PASS.apply(program, context)  # what the loops have called before
    return rewriter.changes


def _apply(program: Program, context: PassContext) -> list[Change]:
    return rewrite_lists(program, context) if _is_needed(program) else []


PASS = GraphPass(
    name="lower_tensor_lists",
    stage="format",
    apply=_apply,
    is_needed=_is_needed,
)
