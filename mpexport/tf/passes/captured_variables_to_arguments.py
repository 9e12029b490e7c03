"""Turn variable handles into plain tensors, so that weights can be fed or frozen from outside.

Given (``w`` is a captured variable handle)::

    v = ReadVariableOp{dtype: float}(w);  y = MatMul(x, v:value:0)
    g = ResourceGather{dtype: float}(w, ids)

Result (``w`` is the tensor itself, an argument of float)::

    v = Identity{T: float}(w);            y = MatMul(x, v:output:0)
    g = GatherV2{Tparams: float}(w, ids, axis)

Follows handles through calls, loops and branches. An op that writes a variable is refused: the
file would no longer compute what the model computes. Handles of other resources are left alone.
"""

from __future__ import annotations

from tensorflow.core.framework import tensor_shape_pb2, types_pb2
from tensorflow.python.framework import tensor_util

from mpexport.errors import ConversionError
from mpexport.findings import Change
from mpexport.tf.concrete import variable_dtype
from mpexport.tf.graph import (
    BRANCHES,
    FunctionDef,
    NodeDef,
    Program,
    is_call,
    rename_readers,
    where,
)
from mpexport.tf.pipeline import GraphPass, PassContext

_CALL_TYPE_LISTS = ("Tin", "T")
# Ops that hand a handle on, and their outputs; Enter and Switch make the loops and branches of TF1.
_PASS_ON = {
    "Identity": ("output",),
    "Enter": ("output",),
    "Switch": ("output_false", "output_true"),
}
_UNKNOWN = tensor_shape_pb2.TensorShapeProto(unknown_rank=True)


class _Rewriter:
    """Follows handles from function to function; an argument that is a value now was done."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.changes: list[Change] = []

    def function(self, name: str, arguments: dict[int, int]) -> None:
        """Retypes arguments (index → DataType) of a function and follows their readers."""
        fdef = self.program.library[name]
        fresh = {}
        for index, dtype in arguments.items():
            arg = fdef.signature.input_arg[index]
            if arg.type == types_pb2.DT_RESOURCE:
                arg.type = dtype
                arg.ClearField("experimental_full_type")
                fresh[arg.name] = dtype
        if fresh:
            self._follow(fdef, fresh)

    def _follow(self, fdef: FunctionDef, values: dict[str, int]) -> None:
        renamed: dict[str, str] = {}
        axes: list[tuple[str, int]] = []
        # Nodes may be listed before the nodes they read: repeat until no tensor is added.
        todo = dict(values)
        while todo:
            current, todo = todo, {}
            for node in fdef.node_def:
                hits = {i: current[r] for i, r in enumerate(node.input) if r in current}
                if hits:
                    todo.update(self._node(fdef, node, hits, renamed, axes))
            for key, ref in fdef.ret.items():
                if ref in current:
                    arg = next(a for a in fdef.signature.output_arg if a.name == key)
                    arg.type = current[ref]
                    arg.ClearField("experimental_full_type")
        rename_readers(fdef, renamed)
        for name, axis in axes:
            const = fdef.node_def.add(name=name, op="Const")
            const.attr["dtype"].type = types_pb2.DT_INT32
            const.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(axis))

    def _node(
        self,
        fdef: FunctionDef,
        node: NodeDef,
        hits: dict[int, int],
        renamed: dict[str, str],
        axes: list[tuple[str, int]],
    ) -> dict[str, int]:
        """Rewrites one reader; returns further tensors that are values now."""
        dtype = next(iter(hits.values()))
        if is_call(node):
            return self._call(node, hits)
        if node.op in _PASS_ON:
            node.attr["T"].type = dtype
            return {f"{node.name}:{output}:0": dtype for output in _PASS_ON[node.op]}
        if node.op == "ReadVariableOp":
            node.op = "Identity"
            node.attr.clear()
            node.attr["T"].type = dtype
            renamed[f"{node.name}:value:0"] = f"{node.name}:output:0"
        elif node.op in ("ResourceGather", "ResourceGatherNd"):
            indices = node.attr["Tindices"].type
            batch_dims = node.attr["batch_dims"].i
            nd = node.op == "ResourceGatherNd"
            node.op = "GatherNd" if nd else "GatherV2"
            node.attr.clear()
            node.attr["Tparams"].type = dtype
            node.attr["Tindices"].type = indices
            if not nd:
                node.attr["Taxis"].type = types_pb2.DT_INT32
                node.attr["batch_dims"].i = batch_dims
                axis = f"{node.name}/axis"
                node.input.insert(2, f"{axis}:output:0")
                axes.append((axis, batch_dims))
        elif node.op == "VariableShape":
            out_type = node.attr["out_type"].type
            node.op = "Shape"
            node.attr.clear()
            node.attr["T"].type = dtype
            node.attr["out_type"].type = out_type or types_pb2.DT_INT32
        else:
            reads = node.op in ("Merge", "NextIteration", "Exit", "VarIsInitializedOp")
            what = "carries a variable" if reads else "changes a variable at inference"
            raise ConversionError(
                f"{node.op} at {where(fdef, node)} {what}",
                hint="export a signature without state, or use the savedmodel format",
                where=where(fdef, node),
            )
        self.changes.append(Change(PASS.name, "read-replaced", where(fdef, node), node.op))
        return {}

    def _call(self, node: NodeDef, hits: dict[int, int]) -> dict[str, int]:
        types = next(node.attr[a].list.type for a in _CALL_TYPE_LISTS if a in node.attr)
        offset = 1 if node.op in BRANCHES else 0
        shapes = node.attr["output_shapes"].list.shape if "output_shapes" in node.attr else []
        for index, dtype in hits.items():
            types[index - offset] = dtype
            if node.op in ("While", "StatelessWhile") and len(shapes) == len(types):
                shapes[index].CopyFrom(_UNKNOWN)  # was that of a handle, a scalar
        arguments = {index - offset: dtype for index, dtype in hits.items()}
        for attr in ("f", "cond", "body", "then_branch", "else_branch"):
            if attr in node.attr:
                self.function(node.attr[attr].func.name, arguments)
        for branch in node.attr["branches"].list.func if "branches" in node.attr else []:
            self.function(branch.name, arguments)
        if node.op in ("While", "StatelessWhile"):
            return {f"{node.name}:output:{i}": dtype for i, dtype in arguments.items()}
        return {}


def _apply(program: Program, context: PassContext) -> list[Change]:
    rewriter = _Rewriter(program)
    for entry in program.entries.values():
        first = len(entry.inputs)
        arguments = {}
        for i, capture in enumerate(entry.captures):
            dtype = variable_dtype(capture)
            if dtype is not None:
                arguments[first + i] = dtype
        rewriter.function(entry.function, arguments)
    return rewriter.changes


PASS = GraphPass(
    name="captured_variables_to_arguments",
    stage="format",
    apply=_apply,
    after=("drop_identity_casts", "drop_unused_state"),
)
