"""Drop Casts that no longer change the element type.

Given::

    c = Cast{SrcT: float, DstT: float}(x:0)          r = Relu(c:y:0)

Result::

    r = Relu(x:0)

Fires when SrcT equals DstT. A Cast with control inputs becomes an Identity, so that the order it
imposes is kept.
"""

from __future__ import annotations

from mpexport.findings import Change
from mpexport.tf.graph import Program, remove_nodes, rename_readers, where
from mpexport.tf.pipeline import GraphPass, PassContext


def _apply(program: Program, context: PassContext) -> list[Change]:
    changes = []
    for fdef in program.library.values():
        replaced = {}
        identities = {}
        for node in fdef.node_def:
            if node.op != "Cast" or node.attr["SrcT"].type != node.attr["DstT"].type:
                continue
            if len(node.input) > 1:
                dtype = node.attr["SrcT"].type
                node.op = "Identity"
                node.attr.clear()
                node.attr["T"].type = dtype
                identities[f"{node.name}:y:0"] = f"{node.name}:output:0"
                changes.append(Change(PASS.name, "cast-to-identity", where(fdef, node)))
            else:
                replaced[node.name] = node.input[0]
                changes.append(Change(PASS.name, "cast-removed", where(fdef, node)))
        rename_readers(fdef, identities)
        remove_nodes(fdef, replaced)
    return changes


PASS = GraphPass(
    name="drop_identity_casts",
    stage="normalize",
    apply=_apply,
    after=("promote_compute_dtype", "signature_dtype"),
)
