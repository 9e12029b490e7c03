"""Which nodes of a model that was trained in 16 bits computed in float32."""

from __future__ import annotations

import tensorflow as tf

from mpexport.tf.graph import HALF_TYPES, Program, output_types

_NO_COMPUTATION = frozenset({"Cast", "Const", "Identity", "Placeholder", "ReadVariableOp"})


def float32_nodes(program: Program) -> frozenset[str]:
    """Names of the nodes that give float32 in a program with 16-bit nodes; empty for another.

    Such nodes are there because somebody wanted them so: a layer with ``dtype="float32"``, or the
    part of a layer between two casts. Promotion turns those casts into nothing, so it has to be
    read from the program as traced. Names without a scope may mean several nodes and are left out.

    Args:
        program: As traced.
    """
    single: set[str] = set()
    half: set[str] = set()
    for _, node in program.nodes():
        types = {kind for _, kind in output_types(node) or []}
        if types & HALF_TYPES:
            half.add(node.name)
        elif tf.float32.as_datatype_enum in types and node.op not in _NO_COMPUTATION:
            single.add(node.name)
    return frozenset(n for n in single - half if "/" in n) if half else frozenset()
