"""Strip what tracing leaves in a graph and inference does not need."""

from __future__ import annotations

from mpexport.findings import Change
from mpexport.tf.graph import Program
from mpexport.tf.pipeline import GraphPass, PassContext

_XLA = "_XlaMustCompile"
# _XlaMustCompile: Keras 3 wraps some layers in jit-compiled functions; no export target compiles
# with XLA, and such calls are not inlined. _gradient_op_type and the forward/backward names point
# to functions by names that will not exist any more.
_NODE_ATTRS = (_XLA, "_gradient_op_type")
_FUNCTION_ATTRS = (
    _XLA,
    "forward_function_name",
    "backward_function_name",
)
# What runs on a CPU in XLA only, when it has groups; `allow_inlining` strips the rest for formats.
_NEEDS_XLA = frozenset({"Conv3D"})


def _apply(program: Program, context: PassContext) -> list[Change]:
    changes = []
    compiled = {
        name
        for name, fdef in program.library.items()
        if _XLA in fdef.attr and any(node.op in _NEEDS_XLA for node in fdef.node_def)
    }
    for name, fdef in program.library.items():
        for attr in _FUNCTION_ATTRS:
            if attr in fdef.attr and not (attr == _XLA and name in compiled):
                del fdef.attr[attr]
                changes.append(Change(PASS.name, "attribute-removed", fdef.signature.name, attr))
        for node in fdef.node_def:
            for attr in _NODE_ATTRS:
                called = node.attr["f"].func.name if "f" in node.attr else ""
                if attr in node.attr and not (attr == _XLA and called in compiled):
                    del node.attr[attr]
                    changes.append(
                        Change(
                            PASS.name,
                            "attribute-removed",
                            f"{fdef.signature.name}/{node.name}",
                            attr,
                        )
                    )
            # Inferred type information goes stale once element types change.
            node.ClearField("experimental_type")
    return changes


PASS = GraphPass(
    name="strip_trace_attributes", stage="normalize", apply=_apply, after=("drop_dead_functions",)
)
