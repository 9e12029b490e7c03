"""What a written ONNX file holds in 16 bits, read back from disk, against what was promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from onnx import TensorProto

from mpexport.findings import Change
from mpexport.tf.onnx_precision import rewrite, storage
from mpexport.tf.onnx_precision.keep import matches, parse_keep, without_numbers
from mpexport.tf.onnx_precision.regions import Key, Nest, Region, identity

_HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


@dataclass
class Found:
    """What a file holds.

    Attributes:
        violations: One line per broken promise.
        facts: How many nodes compute in float16, where any may.
    """

    violations: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


def check(
    model: Any, precision: str, promised: Sequence[Change], keep: Sequence[str] = ()
) -> Found:
    """Holds a file against its promise.

    Args:
        model: The ModelProto as read; the content of large weights may be missing.
        precision: ``float32``, ``float16-weights`` or ``float16``.
        promised: The changes that the conversion recorded.
        keep: What the user keeps in float32.
    """
    nest = Nest(model)
    if precision == "float16":
        return _float16(nest, promised, tuple(keep))
    if precision == "float16-weights":
        return Found(_float16_weights(nest, promised))
    return Found([f"tensor {name} is 16 bits" for _, name in _sixteen_bits(nest)])


def _sixteen_bits(nest: Nest) -> list[Key]:
    return [
        (region.index, name)
        for region in nest.regions
        for name, kind in region.types.items()
        if kind in _HALF
    ]


def _float16_weights(nest: Nest, promised: Sequence[Change]) -> list[str]:
    stored = {key for key, t in nest.initializers().items() if t.data_type == TensorProto.FLOAT16}
    found = [
        f"tensor {name} is computed in 16 bits"
        for index, name in _sixteen_bits(nest)
        if (index, name) not in stored
    ]
    widened: Counter[Key] = Counter()
    for region, _, node in nest.nodes():
        for name in node.input:
            key = nest.find(region, name)
            if key not in stored:
                continue
            if _cast_to(node) == TensorProto.FLOAT:
                widened[key] += 1
            else:
                found.append(f"{node.op_type} {node.name} reads {name}, which is 16 bits")
    found += [
        f"weight {key[1]} is widened {widened[key]} times"
        for key in sorted(stored)
        if widened[key] != 1
    ]
    kept = {c.where for c in promised if c.kind == "weight-kept-float32"}
    found += [
        f"weight {name} is stored in float32"
        for _, name in storage.weights_of(nest)
        if name not in kept
    ]
    return found


def _float16(nest: Nest, promised: Sequence[Change], keep: tuple[str, ...]) -> Found:
    """Exactly the promised nodes are in float16, and no tensor is cast to one type twice."""
    found = Found()
    half = {
        identity(region, node)
        for region, _, node in nest.nodes()
        if node.op_type != "Cast" and _touches_half(nest, region, node)
    }
    wanted = {c.where for c in promised if c.kind == rewrite.HALF_NODE}
    found.violations += [f"node {name} is not in float16" for name in sorted(wanted - half)]
    found.violations += [f"node {name} is in float16" for name in sorted(half - wanted)]
    found.violations += [
        f"tensor {name} is bfloat16"
        for region in nest.regions
        for name, kind in region.types.items()
        if kind == TensorProto.BFLOAT16
    ]
    found.violations += _kept_violations(nest, keep)
    casts: Counter[tuple[Key, int]] = Counter()
    for region, _, node in nest.nodes():
        if node.op_type == "Cast":
            casts[nest.find(region, node.input[0]), _cast_to(node)] += 1
    found.violations += [
        f"tensor {name} is cast {count} times"
        for ((_, name), to), count in casts.items()
        if to == TensorProto.FLOAT16 and count > 1
    ]
    found.facts["float16_nodes"] = len(half)
    return found


def _kept_violations(nest: Nest, keep: tuple[str, ...]) -> list[str]:
    ops, layers = parse_keep(keep)
    labels = [label for region in nest.regions for label in region.labels]
    names = {
        pattern: (lambda label: label)
        if any(matches(pattern, label) for label in labels)
        else without_numbers
        for pattern in layers
    }
    return [
        f"{node.op_type} {region.labels[i]} is in float16, though kept"
        for region, i, node in nest.nodes()
        if node.op_type != "Cast"
        and _touches_half(nest, region, node)
        and (node.op_type in ops or any(matches(p, f(region.labels[i])) for p, f in names.items()))
    ]


def _touches_half(nest: Nest, region: Region, node: Any) -> bool:
    kinds = [nest.elem_type(region, name) for name in (*node.input, *node.output) if name]
    return any(kind in _HALF for kind in kinds)


def _cast_to(node: Any) -> int:
    """What a Cast gives; 0 for another op."""
    if node.op_type != "Cast":
        return 0
    return next((a.i for a in node.attribute if a.name == "to"), 0)
