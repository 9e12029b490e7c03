"""A weight that is NaN or infinite: training has diverged, and converters crash on it."""

from __future__ import annotations

import numpy as np

from mpexport.findings import Finding, Severity
from mpexport.tf import concrete, resources
from mpexport.tf.check import CheckContext, Rule


def _check(context: CheckContext) -> list[Finding]:
    findings = []
    captures = {id(c): c for e in context.model.original.entries.values() for c in e.captures}
    model = context.model.source.model
    names = {
        id(v.handle): v.name
        for v in resources.owners(model, list(captures.values()))
        if hasattr(v, "handle")
    }
    for capture in captures.values():
        if concrete.variable_dtype(capture) is None:
            continue
        value = resources.read_value(capture)
        if value.dtype.kind not in "fV":
            continue
        # The sum is finite unless an element isn't; it needs no mask as large as the weight.
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(value.sum(dtype=np.float64)):
                continue
        bad = int((~np.isfinite(value)).sum())
        if bad == 0:  # finite float64 values may have an infinite sum
            continue
        findings.append(
            Finding(
                RULE.name,
                Severity.ERROR,
                names.get(id(capture), "a weight"),
                f"holds {bad} values that are NaN or infinite",
                "training has diverged: go back to an earlier checkpoint",
            )
        )
    return findings


RULE = Rule("nonfinite-weight", _check)
