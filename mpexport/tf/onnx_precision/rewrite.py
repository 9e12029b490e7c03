"""Carries a `Plan` out: float16 nodes, and one Cast per tensor that both sides read.

Given a plan in which ``m`` and ``r`` compute in float16 and ``s`` does not::

    m = MatMul(x, W)      r = Relu(m)      s = Softmax(r)

Result::

    x_float16 = Cast(x)
    m_float16 = MatMul(x_float16, W_float16)    r_float16 = Relu(m_float16)
    r = Cast(r_float16)                         s = Softmax(r)

A float32 tensor keeps its name, its float16 form is called ``…_float16``, and the Cast between the
two stands right behind whatever makes the one that is made: so graphs stay sorted, bodies see both,
and inputs and outputs stay as they are. Masks are clipped to ±65504 first. Casts that were in the
graph read and give what they did.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto

from mpexport.findings import Change
from mpexport.tf.onnx_precision import regions, storage
from mpexport.tf.onnx_precision.ops import MOVES
from mpexport.tf.onnx_precision.plan import FLOAT, Plan, make_plan
from mpexport.tf.onnx_precision.regions import Key, Names, Nest, Region

_PASS = "compute_in_float16"
HALF_NODE, KEPT_NODE = "computed-in-float16", "kept-in-float32"


def compute_in_float16(
    model: Any,
    keep: tuple[str, ...] = (),
    trained_float32: frozenset[str] = frozenset(),
    *,
    clamp: bool = False,
) -> list[Change]:
    """Rewrites a float32 model, in place.

    Args:
        model: A ModelProto.
        keep: ``op:TYPE`` and ``layer:PATTERN`` that stay in float32.
        trained_float32: See `plan.make_plan`.
        clamp: Whether weights that float16 cannot hold are clamped.

    Returns:
        One change per node in float16, per node that could be and is not, and per clipped mask.

    Raises:
        UsageError: ``keep`` fits nothing.
        ConversionError: A weight does not fit float16.
    """
    regions.constants_to_initializers(model)
    _lift_invariants(Nest(model))
    nest = Nest(model)
    plan = make_plan(nest, keep, trained_float32, clamp=clamp)
    changes = _Rewriter(plan).run()
    return [*_promises(plan), *changes]


def _promises(plan: Plan) -> list[Change]:
    changes: list[Change] = []
    for region, i, node in plan.nest.nodes():
        site, name = (region.index, i), regions.identity(region, node)
        if site in plan.half:
            changes.append(Change(_PASS, HALF_NODE, name, node.op_type))
        elif site in plan.reasons and node.op_type not in MOVES:
            changes.append(Change(_PASS, KEPT_NODE, name, f"{node.op_type}: {plan.reasons[site]}"))
    changes += [
        Change(_PASS, "weight-clamped", name, "to ±65504") for _, name in sorted(plan.clamped)
    ]
    return changes


class _Rewriter:
    def __init__(self, plan: Plan) -> None:
        self._plan, self._nest = plan, plan.nest
        self._names = Names(plan.nest.names())
        self._half_names: dict[Key, str] = {}
        self._needs_half: set[Key] = set()
        self._needs_float: set[Key] = set()
        self._made_half: set[Key] = set()
        self._changes: list[Change] = []

    def run(self) -> list[Change]:
        """Edits the graphs and returns the changes beyond the plan itself."""
        self._note_needs()
        initializers = self._nest.initializers()
        contents = {r.index: self._rewritten(r) for r in self._nest.regions}
        for region in reversed(self._nest.regions):  # a body before the node that holds it
            self._replace(region, contents[region.index], initializers)
        return self._changes

    def _note_needs(self) -> None:
        for region, i, node in self._nest.nodes():
            is_half = (region.index, i) in self._plan.half
            half_in = set(self._plan.half_inputs(region, node)) if is_half else set()
            if is_half:
                for p in self._plan.half_outputs(region, node):
                    self._made_half.add((region.index, node.output[p]))
            for p, name in enumerate(node.input):
                if name and self._nest.elem_type(region, name) == FLOAT:
                    needs = self._needs_half if p in half_in else self._needs_float
                    needs.add(self._nest.find(region, name))
        for region in self._nest.regions:
            self._needs_float.update(self._nest.find(region, o.name) for o in region.graph.output)

    def _half_name(self, key: Key) -> str:
        if key not in self._half_names:
            self._half_names[key] = self._names.fresh(f"{key[1]}_float16")
        return self._half_names[key]

    def _rewritten(self, region: Region) -> list[tuple[Any, list[Any]]]:
        """The nodes of a region, each with the nodes to stand behind it; None is the beginning."""
        start: list[Any] = []
        for value in region.graph.input:
            start += self._casts((region.index, value.name))
        items: list[tuple[Any, list[Any]]] = [(None, start)]
        for i, node in enumerate(region.nodes):
            is_half = (region.index, i) in self._plan.half
            behind = [c for name in node.output for c in self._casts((region.index, name))]
            if is_half:
                for p in self._plan.half_inputs(region, node):
                    node.input[p] = self._half_name(self._nest.find(region, node.input[p]))
                for p in self._plan.half_outputs(region, node):
                    node.output[p] = self._half_name((region.index, node.output[p]))
            items.append((node, behind))
        return items

    def _casts(self, key: Key) -> list[Any]:
        """The Cast to the form of a tensor that is needed and not made."""
        name = key[1]
        if key in self._made_half:
            if key not in self._needs_float:
                return []
            return [self._cast(self._half_name(key), name, FLOAT)]
        if key not in self._needs_half:
            return []
        if key not in self._plan.wide:
            return [self._cast(name, self._half_name(key), TensorProto.FLOAT16)]
        limits = [self._limit(sign) for sign in (-1, 1)]
        clipped = self._names.fresh(f"{name}_clipped")
        self._changes.append(Change(_PASS, "mask-clipped", name, "to ±65504, before float16"))
        clip = onnx.helper.make_node("Clip", [name, *limits], [clipped], clipped)
        return [clip, self._cast(clipped, self._half_name(key), TensorProto.FLOAT16)]

    def _cast(self, source: str, target: str, to: int) -> Any:
        name = self._names.fresh(f"{target}_cast")
        return onnx.helper.make_node("Cast", [source], [target], name, to=to)

    def _limit(self, sign: int) -> str:
        key = (0, f"float16_limit_{'low' if sign < 0 else 'high'}")
        if key not in self._half_names:
            self._half_names[key] = self._names.fresh(key[1])
            value = np.array(sign * storage.LARGEST, np.float32)
            limit = onnx.numpy_helper.from_array(value, self._half_names[key])
            self._nest.model.graph.initializer.append(limit)
        return self._half_names[key]

    def _replace(
        self, region: Region, content: list[tuple[Any, list[Any]]], initializers: dict[Key, Any]
    ) -> None:
        graph = region.graph
        nodes = []
        for node, behind in content:
            if node is not None:
                nodes.append(NodeProto.FromString(node.SerializeToString()))
            nodes += behind
        del graph.node[:]
        graph.node.extend(nodes)
        del graph.value_info[:]  # of tensors that have other types or names now
        added, dropped = [], set()
        for key, tensor in initializers.items():
            if key[0] == region.index and key in self._needs_half:
                added.append(
                    storage.to_half(tensor, self._half_name(key), clamp=key in self._plan.clamped)
                )
                if key not in self._needs_float:
                    dropped.add(key[1])
        storage.drop_initializers(graph, dropped)
        graph.initializer.extend(added)


def _lift_invariants(nest: Nest) -> None:
    """Lets bodies of Loops read what they carry along unchanged from outside, in place.

    tf2onnx carries weights as state. As such each would be rounded to float16 in every iteration.
    """
    for region in reversed(nest.regions):
        for i, node in enumerate(region.nodes):
            if node.op_type != "Loop":
                continue
            body = region.bodies[i][0]
            read = {name for r, _, n in nest.nodes() for name in n.input}
            read |= {o.name for r in nest.regions for o in r.graph.output if r is not body}
            for state in range(len(node.input) - 3, -1, -1):
                inside = body.graph.input[2 + state].name
                result = node.output[state] if state < len(node.output) else ""
                if body.graph.output[1 + state].name != inside or result in read - {""}:
                    continue
                if [o.name for o in body.graph.output].count(inside) > 1:
                    continue  # given out as a sequence too
                outside = node.input[2 + state]
                for at, _, reader in nest.nodes():
                    for p, name in enumerate(reader.input):
                        if name == inside and nest.find(at, name) == (body.index, inside):
                            reader.input[p] = outside
                del node.input[2 + state]
                del body.graph.input[2 + state]
                del body.graph.output[1 + state]
                if state < len(node.output):
                    del node.output[state]
