"""Write an Einsum in the letters that tf2onnx reads: no ellipsis, no letter twice in a term.

Given (``x`` of three axes)::

    y = Einsum{equation: "...x,xy->...y"}(x, w)          d = Einsum{equation: "bii->bi"}(m)

Result::

    y = PartitionedCall{f}(x, w)          f = Einsum{equation: "abx,xy->aby"}
    d = PartitionedCall{g}(m)             g = Sum(Where(row == column, m, 0), axis)

A result without letters is summed up to a scalar after the Einsum. Fires where the ranks are known
and every operand's ellipsis stands for as many axes. New letters are small ones not used yet, since
tf2onnx takes ``A`` for ``a``.
"""

from __future__ import annotations

import string
from typing import Any

import tensorflow as tf

from mpexport.findings import Change
from mpexport.tf.graph import Program, attr_value
from mpexport.tf.lowering import Site, lower
from mpexport.tf.pipeline import GraphPass, PassContext


def _written_out(equation: str, ranks: list[int | None]) -> str | None:
    """The equation without ellipsis."""
    terms = equation.partition("->")[0].split(",")
    counts = set()
    for term, rank in zip(terms, ranks):
        if "..." in term:
            if rank is None:
                return None
            counts.add(rank - len(term.replace("...", "")))
    if len(counts) > 1:
        return None
    free = [c for c in string.ascii_lowercase if c not in equation.lower()]
    count = counts.pop() if counts else 0
    return equation.replace("...", "".join(free[:count])) if count <= len(free) else None


def _diagonal(x: Any, term: str) -> tuple[Any, str]:
    """Keeps one axis of each letter."""
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            first, last = term.index(letter), term.rindex(letter)
            shape = [1] * len(term)
            sizes = tf.shape(x)
            places = []
            for axis in (first, last):
                shape[axis] = -1
                places.append(tf.reshape(tf.range(sizes[axis]), shape))
                shape[axis] = 1
            x = tf.where(tf.equal(*places), x, tf.zeros([], x.dtype))
            x = tf.reduce_sum(x, last)
            term = term[:last] + term[last + 1 :]
    return x, term


def _is_plain(equation: str) -> bool:
    left, _, right = equation.partition("->")
    once = all(len(set(term)) == len(term) for term in left.split(","))
    return "..." not in equation and once and bool(right)


def _einsum(site: Site) -> Any:
    equation = site.attr("equation").replace(" ", "")
    if _is_plain(equation):
        return None
    terms = equation.partition("->")[0].split(",")
    written = _written_out(equation, [site.shape(i).rank for i in range(len(terms))])
    if written is None:
        return None
    left, _, right = written.partition("->")
    if not left.replace(",", ""):
        return None

    def function(*inputs: Any) -> Any:
        parts = [_diagonal(x, term) for x, term in zip(inputs, left.split(","))]
        result = right or next(term[0] for _, term in parts if term)
        plain = ",".join(term for _, term in parts) + "->" + result
        y = tf.raw_ops.Einsum(inputs=[x for x, _ in parts], equation=plain)
        return y if right else tf.reduce_sum(y)

    return function


_TABLE = {"Einsum": _einsum}


def _apply(program: Program, context: PassContext) -> list[Change]:
    return lower(program, PASS.name, _TABLE)


def _is_needed(program: Program) -> bool:
    return any(
        n.op == "Einsum" and not _is_plain(attr_value(n, "equation").s.decode())
        for _, n in program.nodes()
    )


PASS = GraphPass(name="onnx_einsum", stage="format", apply=_apply, is_needed=_is_needed)
