"""Let converters inline every function.

Given::

    function conv { attr _noinline: true }

Result::

    function conv {}

Keras 3 puts a grouped convolution into a function of its own that is never inlined, so that
TensorFlow does not fuse it with its bias: it has no kernel for that. No converter knows calls.
Fires on every function with the attribute, but in no program that TensorFlow will run.
"""

from __future__ import annotations

from mpexport.findings import Change
from mpexport.tf.graph import Program
from mpexport.tf.pipeline import GraphPass, PassContext

_ATTR = "_noinline"


def _apply(program: Program, context: PassContext) -> list[Change]:
    changes = []
    for name, fdef in program.library.items():
        if _ATTR in fdef.attr:
            del fdef.attr[_ATTR]
            changes.append(Change(PASS.name, "attribute-removed", name, _ATTR))
    return changes


PASS = GraphPass(
    name="allow_inlining",
    stage="format",
    apply=_apply,
    is_needed=lambda program: any(_ATTR in f.attr for f in program.library.values()),
)
