"""What a written ONNX file holds in 16 bits, read back from disk, against what was promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from onnx import TensorProto

from mpexport.tf.onnx_precision import storage
from mpexport.tf.onnx_precision.regions import Key, Nest

_HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


def violations(model: Any, precision: str, promised: Any) -> list[str]:
    """What breaks the promise.

    Args:
        model: The ModelProto as read.
        precision: ``float32`` or ``float16-weights``.
        promised: The changes that the conversion recorded.
    """
    check: Callable[[Nest, Any], list[str]] = _CHECKS[precision]
    return check(Nest(model), promised)


def _sixteen_bits(nest: Nest) -> list[Key]:
    return [
        (region.index, name)
        for region in nest.regions
        for name, kind in region.types.items()
        if kind in _HALF
    ]


def _float32(nest: Nest, promised: Any) -> list[str]:
    return [f"tensor {name} is 16 bits" for _, name in _sixteen_bits(nest)]


def _float16_weights(nest: Nest, promised: Any) -> list[str]:
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
            if _widens(node):
                widened[key] += 1
            else:
                found.append(f"{node.op_type} {node.name} reads {name}, which is 16 bits")
    found += [
        f"weight {name} is widened {widened[i, name]} times"
        for i, name in stored
        if widened[i, name] != 1
    ]
    kept = {c.where for c in promised if c.kind == "weight-kept-float32"}
    found += [
        f"weight {name} is stored in float32"
        for _, name in storage.weights_of(nest)
        if name not in kept
    ]
    return found


def _widens(node: Any) -> bool:
    return node.op_type == "Cast" and any(
        a.name == "to" and a.i == TensorProto.FLOAT for a in node.attribute
    )


_CHECKS: dict[str, Callable[[Nest, Any], list[str]]] = {
    "float32": _float32,
    "float16-weights": _float16_weights,
}
