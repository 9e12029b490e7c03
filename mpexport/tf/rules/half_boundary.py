"""Inputs and outputs of a signature in 16 bits: servers and runtimes choke on them."""

from __future__ import annotations

from mpexport import dtypes
from mpexport.findings import Finding, Severity
from mpexport.tf.check import CheckContext, Rule


def _check(context: CheckContext) -> list[Finding]:
    findings = []
    for entry in context.program.entries.values():
        for side, specs in (("input", entry.inputs), ("output", entry.outputs)):
            for spec in specs:
                if dtypes.is_16_bit_float(spec.dtype):
                    findings.append(
                        Finding(
                            RULE.name,
                            Severity.WARNING,
                            f"{entry.key}/{spec.name}",
                            f"{side} {spec.name} is {spec.dtype}",
                            "exports widen it to float32; the savedmodel command can keep it: "
                            "--io-dtype keep",
                        )
                    )
    return findings


RULE = Rule("half-boundary", _check)
