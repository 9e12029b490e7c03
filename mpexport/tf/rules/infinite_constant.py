"""A 16-bit constant that is infinite: a mask written as -1e9, which float16 cannot hold.

Or a variance of 1e6 that a normalization layer holds.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from mpexport.findings import Finding, Severity
from mpexport.tf import resources
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
    seen = set()
    for entry in context.program.entries.values():
        for capture in entry.captures:
            if capture.dtype not in (tf.float16, tf.bfloat16) or id(capture) in seen:
                continue
            seen.add(id(capture))
            if np.isinf(resources.read_value(capture).astype(np.float64)).any():
                findings.append(
                    Finding(
                        RULE.name,
                        Severity.WARNING,
                        "a captured constant",
                        "a 16-bit constant that a layer holds is infinite: what it divides is 0 in "
                        "the trained model, and what it multiplies infinite or NaN",
                        'give the layer dtype="float32", for example Normalization(...), and train '
                        "again; no export can bring back what the trained model never saw",
                    )
                )
    return findings


RULE = Rule("infinite-constant", _check)
