"""Call the branch that a constant condition chooses.

Given (``tf.image.rot90`` makes such a Case of a number of turns that is known)::

    y = StatelessCase{branches: [f, g]}(1, x)

Result::

    y = PartitionedCall{g}(x)

Fires on If and Case in both forms, where the condition is a constant, or ``All(Pack(…, False, …))``
(a layer's ``training`` beside sizes that must fit). An index outside the branches means the last
one, as in TensorFlow.
"""

from __future__ import annotations

import numpy as np

from mpexport.findings import Change
from mpexport.tf.graph import BRANCHES, Program, tensor_node, where
from mpexport.tf.lowering import Site
from mpexport.tf.pipeline import GraphPass, PassContext


def _condition(site: Site) -> np.ndarray | None:
    value = site.const(0)
    all_of = site.producers.get(tensor_node(site.inputs[0]))
    if value is not None or all_of is None or all_of.op != "All":
        return value
    pack, axes = (site.producers.get(tensor_node(ref)) for ref in all_of.input[:2])
    # ``tf.reduce_all`` of a list: over its only axis, which is a Range from 0 to the rank 1.
    if pack is None or pack.op != "Pack" or axes is None or axes.op != "Range":
        return None
    parts = Site(site.fdef, pack, site.producers)
    values = [parts.const(i) for i in range(len(parts.inputs))]
    return np.array(False) if any(v is not None and not v.all() for v in values) else None


def _apply(program: Program, context: PassContext) -> list[Change]:
    changes = []
    for fdef in program.library.values():
        producers = {n.name: n for n in fdef.node_def}
        for node in fdef.node_def:
            if node.op not in BRANCHES:
                continue
            value = _condition(Site(fdef, node, producers))
            if value is None or value.size != 1:
                continue
            if node.op.endswith("If"):
                name = node.attr["then_branch" if bool(value.item()) else "else_branch"].func.name
            else:
                branches = node.attr["branches"].list.func
                index = int(value.item())
                name = branches[index if 0 <= index < len(branches) else -1].name
            for attr in [a for a in node.attr if a not in ("Tin", "Tout", "_output_shapes")]:
                del node.attr[attr]
            is_stateless = node.op.startswith("Stateless")
            node.op = "PartitionedCall" if is_stateless else "StatefulPartitionedCall"
            node.attr["f"].func.name = name
            del node.input[0]
            changes.append(Change(PASS.name, "branch-chosen", where(fdef, node)))
    return changes


PASS = GraphPass(
    name="choose_branches",
    stage="normalize",
    apply=_apply,
    is_needed=lambda program: any(n.op in BRANCHES for _, n in program.nodes()),
)
