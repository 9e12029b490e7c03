"""A 16-bit constant that is infinite: a mask written as -1e9, which float16 cannot hold."""

from __future__ import annotations

import numpy as np

from mpexport.findings import Finding, Severity
from mpexport.tf.check import CheckContext, Rule
from mpexport.tf.graph import HALF_TYPES, where
from mpexport.tf.retype import stored_values


def _check(context: CheckContext) -> list[Finding]:
    findings = []
    for fdef, node in context.program.nodes():
        if node.op != "Const" or node.attr["dtype"].type not in HALF_TYPES:
            continue
        if np.isinf(stored_values(node.attr["value"].tensor)).any():
            findings.append(
                Finding(
                    RULE.name,
                    Severity.WARNING,
                    where(fdef, node),
                    "a 16-bit constant is infinite; 0 times it is NaN in the trained model",
                    "write masks with a value the compute dtype holds; exports saturate it to 1e9",
                )
            )
    return findings


RULE = Rule("infinite-constant", _check)
