"""The precision check of a source: counts, Casts with their roles, literals, findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import tensorflow as tf
from tensorflow.python.framework import tensor_util

from mpexport import dtypes
from mpexport.findings import Finding
from mpexport.plugins import discover
from mpexport.precision import CastSite, DtypeCount, LayerPolicy, PrecisionReport, RoundedLiteral
from mpexport.tf import concrete, pipeline, resources
from mpexport.tf.graph import (
    BRANCHES,
    HALF_TYPES,
    FunctionDef,
    NodeDef,
    Program,
    called_functions,
    output_types,
    tensor_node,
    where,
)
from mpexport.tf.normalized import NormalizedModel
from mpexport.tf.passes.drop_dead_functions import PASS as DROP_DEAD_FUNCTIONS

_NOT_COMPUTE = frozenset({"Const", "Identity", "NoOp", "ReadVariableOp", "Cast", "VarHandleOp"})


@dataclass(frozen=True)
class CheckContext:
    """What a rule may look at.

    Attributes:
        program: The program as traced, without dead functions.
        model: The loaded and normalized model.
        policies: dtype policies of the layers; may be empty.
    """

    program: Program
    model: NormalizedModel
    policies: list[LayerPolicy]


@dataclass(frozen=True)
class Rule:
    """One check: a stable id and a function that returns findings."""

    name: str
    check: Callable[[CheckContext], list[Finding]]


@lru_cache(maxsize=1)
def all_rules() -> dict[str, Rule]:
    """All rules by id."""
    return discover("mpexport.tf.rules", "RULE")


def check(model: NormalizedModel) -> PrecisionReport:
    """Makes the precision report of a model."""
    program = model.original.copy()
    program.entries = {k: program.entries[k] for k in model.source.distinct()}
    DROP_DEAD_FUNCTIONS.apply(program, pipeline.PassContext())
    context = CheckContext(program, model, model.source.policies)
    findings = [f for rule in all_rules().values() for f in rule.check(context)]
    return PrecisionReport(
        source=model.source.options.path,
        signatures=tuple(
            concrete.signature_of(k, f) for k, f in sorted(model.source.signatures.items())
        ),
        counts=tuple(_counts(program, model)),
        casts=tuple(_casts(program)),
        policies=tuple(model.source.policies),
        literals=tuple(_literals(program)),
        findings=tuple(findings),
        notes=tuple(model.notes),
    )


def float_type(node: NodeDef) -> str | None:
    """The floating element type a node computes in (its first floating output), or None."""
    for _, number in output_types(node) or []:
        name = str(tf.as_dtype(number).name)
        if dtypes.canonical(name) in ("float16", "bfloat16", "float32", "float64"):
            return name
    return None


def _counts(program: Program, model: NormalizedModel) -> list[DtypeCount]:
    ops: Counter[str] = Counter()
    for _, node in program.nodes():
        dtype = float_type(node)
        if dtype is not None and node.op not in _NOT_COMPUTE:
            ops[dtype] += 1
    stored: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for capture in {id(c): c for e in model.original.entries.values() for c in e.captures}.values():
        number = concrete.variable_dtype(capture)
        if number is not None:
            name = str(tf.as_dtype(number).name)
            stored[name] += 1
            size[name] += resources.size_bytes(capture)
    rows = [DtypeCount(d, ops[d], stored[d], size[d]) for d in {*ops, *stored}]
    return sorted(rows, key=lambda r: (-r.ops, -r.variable_bytes, r.dtype))


def argument_kinds(program: Program) -> dict[tuple[str, str], str]:
    """What arrives at each function argument: ``input``, ``weight`` or ``activation``.

    Args:
        program: The program.

    Returns:
        (function, argument) → kind, followed from the entry points through all calls.
    """
    kinds: dict[tuple[str, str], str] = {}
    todo: list[tuple[str, list[str]]] = []
    for entry in program.entries.values():
        first = ["input"] * len(entry.inputs)
        todo.append((entry.function, first + ["weight"] * len(entry.captures)))
    while todo:
        name, given = todo.pop()
        fdef = program.library.get(name)
        if fdef is None:
            continue
        fresh = False
        for arg, kind in zip(fdef.signature.input_arg, given):
            fresh |= kinds.setdefault((name, arg.name), kind) == kind
        if not fresh:
            continue
        for node in fdef.node_def:
            data = [r for r in node.input if not r.startswith("^")]
            passed = [kinds.get((name, r), "activation") for r in data]
            if node.op in BRANCHES:
                passed = passed[1:]  # the condition, which the branches don't get
            for callee in called_functions(node):
                if (callee, "") not in kinds:
                    kinds[(callee, "")] = "visited"
                    todo.append((callee, passed))
    return kinds


def output_nodes(program: Program) -> set[tuple[str, str]]:
    """(function, node) that compute a signature's output, followed through calls and Identities."""
    found: set[tuple[str, str]] = set()
    seen: set[tuple[str, int]] = set()
    todo = [(e.function, i) for e in program.entries.values() for i in range(len(e.outputs))]
    while todo:
        name, position = todo.pop()
        fdef = program.library.get(name)
        if fdef is None or (name, position) in seen:
            continue
        seen.add((name, position))
        nodes = {n.name: n for n in fdef.node_def}
        ref = fdef.ret[fdef.signature.output_arg[position].name]
        node = nodes.get(tensor_node(ref))
        while node is not None and node.op == "Identity":
            ref = node.input[0]
            node = nodes.get(tensor_node(ref))
        if node is None:
            continue
        found.add((name, node.name))
        if node.op in BRANCHES or node.op in ("PartitionedCall", "StatefulPartitionedCall"):
            index = int(ref.rpartition(":")[2])
            todo.extend((callee, index) for callee in called_functions(node))
    return found


def _casts(program: Program) -> list[CastSite]:
    kinds = argument_kinds(program)
    outputs = output_nodes(program)
    sites = []
    for fdef in program.library.values():
        nodes = {n.name: n for n in fdef.node_def}
        for node in fdef.node_def:
            if node.op != "Cast":
                continue
            src, dst = node.attr["SrcT"].type, node.attr["DstT"].type
            if src not in HALF_TYPES and dst not in HALF_TYPES:
                continue
            role = _role(fdef, node, nodes, kinds)
            if role == "activation" and (fdef.signature.name, node.name) in outputs:
                role = "output"
            sites.append(
                CastSite(where(fdef, node), tf.as_dtype(src).name, tf.as_dtype(dst).name, role)
            )
    return sites


def _role(
    fdef: FunctionDef,
    node: NodeDef,
    nodes: dict[str, NodeDef],
    kinds: dict[tuple[str, str], str],
) -> str:
    types = (tf.as_dtype(node.attr["SrcT"].type), tf.as_dtype(node.attr["DstT"].type))
    if any(t.is_integer or t.is_bool for t in types):
        return "integer"
    source = tensor_node(node.input[0])
    while source in nodes and nodes[source].op in ("Identity", "Reshape", "ExpandDims"):
        source = tensor_node(nodes[source].input[0])
    if source in nodes:
        op = nodes[source].op
        if op == "Const":
            return "constant"
        return "weight" if op in ("ReadVariableOp", "ResourceGather") else "activation"
    return kinds.get((fdef.signature.name, source), "activation")


def _literals(program: Program) -> list[RoundedLiteral]:
    found = []
    for fdef, node in program.nodes():
        if node.op == "Const" and node.attr["dtype"].type in HALF_TYPES:
            value = tensor_util.MakeNdarray(node.attr["value"].tensor).astype("float32")
            shown = f"{value.ravel()[0]:.6g}" if value.size else "empty"
            if value.size > 1:
                shown += f" … ({value.size} values)"
            dtype = tf.as_dtype(node.attr["dtype"].type).name
            found.append(RoundedLiteral(where(fdef, node), dtype, shown))
    return found
