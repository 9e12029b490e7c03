"""Write an Einsum's ellipsis out in letters: ONNX Runtime and tf2onnx read letters only.

Given (``x`` of three axes)::

    y = Einsum{equation: "...x,xy->...y"}(x, w)

Result::

    y = PartitionedCall{f}(x, w)          f = Einsum{equation: "ABx,xy->ABy"}

Fires where the ranks are known and every operand's ellipsis stands for as many axes.
"""

from __future__ import annotations

import string
from typing import Any

import tensorflow as tf

from mpexport.findings import Change
from mpexport.tf.graph import Program, attr_value
from mpexport.tf.lowering import Site, lower
from mpexport.tf.pipeline import GraphPass, PassContext


def _einsum(site: Site) -> Any:
    equation = site.attr("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if "..." not in equation or not arrow:
        return None
    counts = set()
    for i, term in enumerate(terms):
        rank = site.shape(i).rank
        if rank is None:
            return None
        if "..." in term:
            counts.add(rank - len(term.replace("...", "")))
    if len(counts) != 1:
        return None
    free = [c for c in string.ascii_uppercase + string.ascii_lowercase if c not in equation]
    letters = "".join(free[: counts.pop()])
    written = ",".join(t.replace("...", letters) for t in terms)
    written += "->" + right.replace("...", letters)
    return lambda *inputs: tf.raw_ops.Einsum(inputs=list(inputs), equation=written)


_TABLE = {"Einsum": _einsum}


def _apply(program: Program, context: PassContext) -> list[Change]:
    return lower(program, PASS.name, _TABLE)


def _is_needed(program: Program) -> bool:
    return any(
        n.op == "Einsum" and b"..." in attr_value(n, "equation").s for _, n in program.nodes()
    )


PASS = GraphPass(name="onnx_einsum", stage="format", apply=_apply, is_needed=_is_needed)
