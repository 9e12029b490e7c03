"""Write a choice among many branches as choices between two, which ONNX has.

Given::

    y = StatelessCase{branches: [f, g, h]}(i, x)

Result::

    c = Equal(i, 0)          y = StatelessIf{then: f', else: rest}(c, i, x)

    rest(i, x) = StatelessIf{then: g', else: h'}(Equal(i, 1), i, x)

where f' is f with an index that it doesn't read. An index outside the branches means the last one,
as in TensorFlow. Fires on Case in both forms.
"""

from __future__ import annotations

from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import tensor_util

from mpexport.findings import Change
from mpexport.tf.concrete import fresh_suffix
from mpexport.tf.graph import FunctionDef, NodeDef, Program, where
from mpexport.tf.pipeline import GraphPass, PassContext

_CASES = ("Case", "StatelessCase")


def _shell(program: Program, branch: str) -> FunctionDef:
    """A function without nodes: the arguments of a branch after an index, and its outputs."""
    like = program.library[branch].signature
    fdef = FunctionDef()
    fdef.signature.name = f"{branch}_chosen{fresh_suffix('')}"
    fdef.signature.is_stateful = like.is_stateful
    fdef.signature.input_arg.add(name="index", type=types_pb2.DT_INT32)
    for i, arg in enumerate(like.input_arg):
        fdef.signature.input_arg.add(name=f"x{i}", type=arg.type)
    for i, arg in enumerate(like.output_arg):
        fdef.signature.output_arg.add(name=f"y{i}", type=arg.type)
        fdef.ret[f"y{i}"] = f"chosen:output:{i}"
    program.library[fdef.signature.name] = fdef
    return fdef


def _call(fdef: FunctionDef, op: str, inputs: list[str]) -> NodeDef:
    """The one node that gives a shell's outputs."""
    node: NodeDef = fdef.node_def.add(name="chosen", op=op, input=inputs)
    node.attr["Tout"].list.type.extend(a.type for a in fdef.signature.output_arg)
    return node


def _types(fdef: FunctionDef) -> list[int]:
    return [a.type for a in fdef.signature.input_arg]


def _compared(fdef: FunctionDef, name: str, index: str, number: int) -> str:
    """Adds ``index == number`` to a function; the tensor that says so."""
    const = fdef.node_def.add(name=f"{name}/number", op="Const")
    const.attr["dtype"].type = types_pb2.DT_INT32
    const.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(number))
    equal = fdef.node_def.add(name=f"{name}/is", op="Equal")
    equal.input.extend([index, f"{name}/number:output:0"])
    equal.attr["T"].type = types_pb2.DT_INT32
    return f"{name}/is:z:0"


def _direct(program: Program, branch: str, prefix: str) -> str:
    """A branch that takes an index, too."""
    fdef = _shell(program, branch)
    inputs = [a.name for a in fdef.signature.input_arg][1:]
    node = _call(fdef, f"{prefix}PartitionedCall", inputs)
    node.attr["f"].func.name = branch
    node.attr["Tin"].list.type.extend(_types(fdef)[1:])
    return str(fdef.signature.name)


def _rest(program: Program, branches: list[str], first: int, prefix: str) -> str:
    """The choice among the branches from ``first`` on, by an index that counts all of them."""
    if first == len(branches) - 1:
        return _direct(program, branches[first], prefix)
    fdef = _shell(program, branches[first])
    condition = _compared(fdef, "case", "index", first)
    names = [a.name for a in fdef.signature.input_arg]
    node = _call(fdef, "If" if prefix else "StatelessIf", [condition, *names])
    _choose(program, node, branches, first, prefix, _types(fdef))
    return str(fdef.signature.name)


def _choose(
    program: Program, node: NodeDef, branches: list[str], first: int, prefix: str, types: list[int]
) -> None:
    """Sets the attributes of the If between one branch and the rest."""
    node.attr["Tcond"].type = types_pb2.DT_BOOL
    node.attr["Tin"].list.type.extend(types)
    node.attr["then_branch"].func.name = _direct(program, branches[first], prefix)
    node.attr["else_branch"].func.name = _rest(program, branches, first + 1, prefix)


def _apply(program: Program, context: PassContext) -> list[Change]:
    changes = []
    for fdef in list(program.library.values()):
        for node in [n for n in fdef.node_def if n.op in _CASES]:
            branches = [f.name for f in node.attr["branches"].list.func]
            if len(branches) < 2:
                continue
            prefix = "Stateful" if node.op == "Case" else ""
            index, types = node.input[0], list(node.attr["Tin"].list.type)
            del node.attr["branches"]
            del node.attr["Tin"]
            node.op = "If" if prefix else "StatelessIf"
            node.input.insert(0, _compared(fdef, f"{node.name}/case", index, 0))
            _choose(program, node, branches, 0, prefix, [types_pb2.DT_INT32, *types])
            changes.append(Change(PASS.name, "case-nested", where(fdef, node)))
    return changes


PASS = GraphPass(
    name="onnx_cases",
    stage="format",
    apply=_apply,
    after=("choose_branches",),
    is_needed=lambda program: any(n.op in _CASES for _, n in program.nodes()),
)
