"""Let converters inline every function.

Given::

    function conv { attr _noinline: true }

Result::

    function conv {}

Keras 3 puts a grouped convolution into a function of its own that is never inlined, so that
TensorFlow does not fuse it with its bias: it has no kernel for that. No converter knows calls.
A call that XLA must compile isn't inlined either: ``_XlaMustCompile`` goes from functions and
calls. Fires on every function with one of the attributes, but in no program that TensorFlow will
run.
"""

from __future__ import annotations

from mpexport.findings import Change
from mpexport.tf.graph import Program
from mpexport.tf.pipeline import GraphPass, PassContext

_ATTRS = ("_noinline", "_XlaMustCompile")


def _apply(program: Program, context: PassContext) -> list[Change]:
    changes = []
    for name, fdef in program.library.items():
        for attr in _ATTRS:
            if attr in fdef.attr:
                del fdef.attr[attr]
                changes.append(Change(PASS.name, "attribute-removed", name, attr))
        for node in fdef.node_def:
            node.attr.pop("_XlaMustCompile", None)
    return changes


PASS = GraphPass(
    name="allow_inlining",
    stage="format",
    apply=_apply,
    is_needed=lambda program: any(a in f.attr for f in program.library.values() for a in _ATTRS),
)
