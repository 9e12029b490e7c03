"""Weights stored in float16 and widened by a Cast: half the size, the same float32 computation.

Given::

    W: float[256, 128] (initializer)         y = MatMul(x, W)

Result::

    W_float16: float16[256, 128] (initializer)
    W = Cast{to: FLOAT}(W_float16)           y = MatMul(x, W)

Fires on float32 initializers of at least `MIN_ELEMENTS` that an op reads as data, wherever they
stand; those of the body of a Loop, If or Scan move to the main graph, which the body can see, so
that they are widened once. Runtimes fold the Casts when they load the file.

It leaves alone what is a parameter rather than data, by use: an input whose type the op's schema
fixes to float32 (the scales of a Resize), and the inputs of `PARAMETERS`. A constant that float16
cannot hold (a table of masks) stays in float32 too; weights are counted before it comes to that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from mpexport.dtypes import FLOAT16
from mpexport.findings import Change
from mpexport.tf.onnx_precision import regions
from mpexport.tf.onnx_precision.regions import Key, Names, Nest

# A Cast takes about 60 bytes without its names, and float16 saves 2 per element: below this,
# nothing is gained.
MIN_ELEMENTS = 32

# Op → inputs that are settings, though their type may be float16. Control flow hands on what its
# body reads, so that is data; these are not.
PARAMETERS: dict[str, frozenset[int]] = {
    "BatchNormalization": frozenset(),
    "Clip": frozenset({1, 2}),
    "DequantizeLinear": frozenset({1}),
    "Dropout": frozenset({1}),
    "OneHot": frozenset({2}),
    "Pad": frozenset({2}),
    "QuantizeLinear": frozenset({1}),
    "Range": frozenset({0, 1, 2}),
    "Resize": frozenset({1, 2}),
    "Upsample": frozenset({1}),
}
_PASS = "store_weights_float16"
LARGEST = FLOAT16.max_finite or 0.0


def fits(value: Any) -> bool:
    """Whether no finite number of an array is beyond what float16 can hold."""
    size = np.abs(value[np.isfinite(value)])
    return bool((size <= LARGEST).all())


def is_parameter(nest: Nest, node: Any, position: int) -> bool:
    """Whether an input is a setting of the op and not data."""
    if position in PARAMETERS.get(node.op_type, frozenset()):
        return True
    schema = nest.schema(node)
    if schema is None:
        return True  # nothing is known of it
    return regions.type_names(schema.inputs, position + 1)[position] == "tensor(float)"


def _read_as_parameter(nest: Nest) -> set[Key]:
    return {
        nest.find(region, name)
        for region, _, node in nest.nodes()
        for position, name in enumerate(node.input)
        if name and is_parameter(nest, node, position)
    }


def weights_of(nest: Nest) -> dict[Key, Any]:
    """The float32 initializers that this module would store in float16."""
    settings = _read_as_parameter(nest)
    return {
        key: tensor
        for key, tensor in nest.initializers().items()
        if tensor.data_type == TensorProto.FLOAT
        and regions.elements(tensor) >= MIN_ELEMENTS
        and key not in settings
    }


def weight_bytes(model: Any) -> int:
    """Bytes of all initializers; of a model too large to be serialized, too."""
    return sum(len(t.raw_data) for g in regions.all_graphs(model) for t in g.initializer)


def to_half(tensor: Any, name: str, *, clamp: bool = False) -> Any:
    """A float32 TensorProto in float16, each number rounded once.

    Args:
        tensor: The float32 tensor.
        name: Of the new one.
        clamp: Whether numbers beyond the range become the largest finite ones.
    """
    value = regions.values(tensor)
    if clamp:
        value = np.clip(value, -LARGEST, LARGEST)
    with np.errstate(over="ignore"):
        return onnx.numpy_helper.from_array(value.astype(np.float16), name)


def store_float16(model: Any, *, clamp: bool = False) -> list[Change]:
    """Stores the weights of a model in float16, in place.

    Args:
        model: A ModelProto.
        clamp: Whether weights that float16 cannot hold are clamped rather than kept.
    """
    regions.constants_to_initializers(model)
    nest = Nest(model)
    names = Names(nest.names())
    changes, casts, moved = [], [], []
    gone: dict[int, set[str]] = {}
    for (index, name), tensor in weights_of(nest).items():
        region = nest.regions[index]
        holds = fits(regions.values(tensor))
        if not holds and not clamp:
            changes.append(
                Change(_PASS, "weight-kept-float32", name, "holds numbers that float16 cannot")
            )
            continue
        shown = name
        if region.parent is not None:
            shown = names.fresh(f"{name}_shared")
            _rename_reads(nest, region, name, shown)
        half = to_half(tensor, names.fresh(f"{shown}_float16"), clamp=clamp)
        moved.append(half)
        node = onnx.helper.make_node(
            "Cast", [half.name], [shown], names.fresh(f"{shown}_widen"), to=TensorProto.FLOAT
        )
        casts.append(node)
        gone.setdefault(index, set()).add(name)
        kind = "weight-stored-float16" if holds else "weight-clamped"
        changes.append(Change(_PASS, kind, name, f"{list(tensor.dims)}"))
    for index, dropped in gone.items():
        drop_initializers(nest.regions[index].graph, dropped)
    model.graph.initializer.extend(moved)
    _prepend(model.graph, casts)
    return changes


def _rename_reads(nest: Nest, region: regions.Region, old: str, new: str) -> None:
    """Lets everything that reads a tensor of a body read another one instead."""
    for inside, _, node in nest.nodes():
        for position, name in enumerate(node.input):
            if name == old and nest.find(inside, name) == (region.index, old):
                node.input[position] = new
    outputs = [o for o in region.graph.output if o.name == old]
    if outputs:  # a body's output must be made in the body
        region.graph.node.add(op_type="Identity", name=f"{new}_out", input=[new], output=[old])


def drop_initializers(graph: Any, names: set[str]) -> None:
    """Removes initializers by name."""
    kept = [t for t in graph.initializer if t.name not in names]
    copies = [TensorProto.FromString(t.SerializeToString()) for t in kept]
    del graph.initializer[:]
    graph.initializer.extend(copies)


def _prepend(graph: Any, nodes: list[Any]) -> None:
    for node in reversed(nodes):
        graph.node.insert(0, node)
