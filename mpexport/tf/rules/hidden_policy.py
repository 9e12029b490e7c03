"""Layers that compute in 16 bits inside a model whose outer policy says float32."""

from __future__ import annotations

from mpexport import dtypes
from mpexport.findings import Finding, Severity
from mpexport.tf.check import CheckContext, Rule


def _check(context: CheckContext) -> list[Finding]:
    half = [p for p in context.policies if dtypes.is_16_bit_float(p.compute_dtype)]
    findings = []
    for outer in context.policies:
        if dtypes.is_16_bit_float(outer.compute_dtype):
            continue
        inside = [p.layer for p in half if p.layer.startswith(f"{outer.layer}/")]
        if inside:
            shown = ", ".join(inside[:3]) + (" …" if len(inside) > 3 else "")
            findings.append(
                Finding(
                    RULE.name,
                    Severity.INFO,
                    outer.layer,
                    f"{len(inside)} layer(s) inside compute in 16 bits, the policy of "
                    f"{outer.layer} says {outer.policy}: {shown}",
                    "the policy of an outer layer does not reach the layers inside it",
                )
            )
    return findings


RULE = Rule("hidden-policy", _check)
