"""A softmax, or another op that a loss is made of, computed in 16 bits.

Probabilities lose their small values, and a loss on them its gradient. The usual remedy is a last
layer with ``dtype="float32"``.
"""

from __future__ import annotations

from mpexport import dtypes
from mpexport.findings import Finding, Severity
from mpexport.tf.check import CheckContext, Rule, float_type
from mpexport.tf.graph import where

_HEADS = frozenset(
    {
        "LogSoftmax",
        "Softmax",
        "SoftmaxCrossEntropyWithLogits",
        "SparseSoftmaxCrossEntropyWithLogits",
    }
)


def _check(context: CheckContext) -> list[Finding]:
    findings = []
    for fdef, node in context.program.nodes():
        dtype = float_type(node) or ""
        if node.op in _HEADS and dtypes.is_16_bit_float(dtype):
            findings.append(
                Finding(
                    RULE.name,
                    Severity.WARNING,
                    where(fdef, node),
                    f"{node.op} is computed in {dtype}",
                    'train with the last layer in float32: Dense(..., dtype="float32"); '
                    "exports compute it in float32",
                )
            )
    return findings


RULE = Rule("half-head", _check)
