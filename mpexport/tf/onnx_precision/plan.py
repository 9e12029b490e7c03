"""Which nodes of an ONNX graph compute in float16, and why each of the others does not.

The schema of an op says what may be float16 at all. Of that, these compute in float32, the first
reason that applies being recorded:

- what the user keeps (``op:Softmax``, ``layer:encoder/*``);
- what the trained model computed in float32 although it was trained in 16 bits: layers with
  ``dtype="float32"``, and everything between a cast to float32 and the cast back;
- normalizations, softmaxes, reductions and resizing (`KEPT`);
- an op that reads a constant beyond ±65504 (a mask of -1e9) or a single number below 2^-14 (an
  epsilon), which in float16 would be infinite or 0; and what reads such a mask afterwards, up to an
  op with a bounded result, or one of `PRODUCTS`, in front of which it is clipped;
- an op whose result a kept reduction sums up: squares overflow first;
- what becomes an integer: sizes and indices above 2048 would be rounded;
- an element-wise op, or one that moves data, with nothing but float32 inputs: float16 would only
  add a rounding and casts.

A batch normalization that has become a factor and a summand per channel behind a float16
convolution is float16 even so: runtimes fold it into the convolution.

So float16 begins at matrix products, convolutions and recurrent ops (`PRODUCTS`) and at tables of
weights, and goes on from there. Loop, If and Scan hand values on in float32; inside their bodies
the same rules apply.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import TensorProto

from mpexport.errors import ConversionError, UsageError
from mpexport.plugins import did_you_mean
from mpexport.tf.onnx_precision import regions, storage
from mpexport.tf.onnx_precision.keep import (
    matches,
    original_name,
    parse_keep,
    suffixes,
    without_numbers,
)
from mpexport.tf.onnx_precision.ops import (
    BOUNDED,
    GROWING,
    KEPT,
    MOVES,
    PRODUCTS,
    SUMS,
    TYPED_OTHERWISE,
)
from mpexport.tf.onnx_precision.regions import Key, Nest, Region

_INTEGERS = frozenset(
    getattr(TensorProto, f"{sign}INT{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64)
)
_SMALLEST_NORMAL = 2.0**-14
FLOAT = TensorProto.FLOAT

Site = tuple[int, int]


@dataclass
class Plan:
    """The decision.

    Attributes:
        nest: The model it is about.
        half: Nodes that compute in float16, by numbers of region and node.
        reasons: Nodes that could, and do not → reason.
        wide: Tensors that may hold masks beyond ±65504 on purpose.
        clamped: Weights beyond that, clamped since the user allows it.
    """

    nest: Nest
    half: set[Site] = field(default_factory=set)
    reasons: dict[Site, str] = field(default_factory=dict)
    wide: set[Key] = field(default_factory=set)
    clamped: set[Key] = field(default_factory=set)

    def label(self, site: Site) -> str:
        """The name of a node, for people."""
        return self.nest.regions[site[0]].labels[site[1]]

    def is_known(self, region: Region, node: Any) -> bool:
        """Whether the element types of all tensors are known that a float16 form would change."""
        schema = self.nest.schema(node)
        able = regions.half_parameters(schema) if schema is not None else set()
        sides = ((schema.inputs, node.input), (schema.outputs, node.output)) if schema else ()
        return all(
            self.nest.elem_type(region, name) != 0
            for formals, names in sides
            for name, kind in zip(names, regions.type_names(formals, len(names)))
            if name and kind in able
        )

    def half_inputs(self, region: Region, node: Any) -> list[int]:
        """Positions of the float32 inputs that become float16 when the node does."""
        return self._positions(region, node, "inputs", node.input)

    def half_outputs(self, region: Region, node: Any) -> list[int]:
        """The same of the outputs."""
        return self._positions(region, node, "outputs", node.output)

    def _positions(self, region: Region, node: Any, side: str, names: Any) -> list[int]:
        schema = self.nest.schema(node)
        if schema is None or node.op_type in TYPED_OTHERWISE:
            return []
        able = regions.half_parameters(schema)
        types = regions.type_names(getattr(schema, side), len(names))
        return [
            i
            for i, name in enumerate(names)
            if name and types[i] in able and self.nest.elem_type(region, name) == FLOAT
        ]


def make_plan(
    nest: Nest,
    keep: tuple[str, ...] = (),
    trained_float32: frozenset[str] = frozenset(),
    *,
    clamp: bool = False,
) -> Plan:
    """Decides for every node.

    Args:
        nest: The model, its Constant nodes turned into initializers.
        keep: ``op:TYPE`` and ``layer:PATTERN``.
        trained_float32: TensorFlow names of nodes that were float32 in a 16-bit model.
        clamp: Whether weights of products may be clamped.

    Raises:
        UsageError: An op type does not exist, or a pattern fits no node.
        ConversionError: A weight of a product is beyond what float16 can hold.
    """
    return _Planner(nest, keep, trained_float32, clamp).plan


@dataclass(frozen=True)
class _Constant:
    """What the rules want to know of an initializer; its content is not kept.

    Attributes:
        size: Number of elements.
        fits: Whether no finite number is beyond float16.
        is_finite: Whether all are finite.
        single: The only element; 0 when there are others.
    """

    size: int
    fits: bool
    is_finite: bool
    single: float

    @classmethod
    def of(cls, value: Any) -> _Constant:
        single = float(value.reshape(-1)[0]) if value.size == 1 else 0.0
        return cls(value.size, storage.fits(value), bool(np.isfinite(value).all()), single)


class _Planner:
    def __init__(
        self, nest: Nest, keep: tuple[str, ...], trained: frozenset[str], clamp: bool
    ) -> None:
        self.plan = Plan(nest)
        self._clamp = clamp
        self._nest = nest
        self._constants = {
            key: _Constant.of(regions.values(tensor))
            for key, tensor in nest.initializers().items()
            if tensor.data_type == FLOAT
        }
        self._readers: dict[Key, list[Site]] = {}
        for region, i, node in nest.nodes():
            for name in filter(None, node.input):
                self._readers.setdefault(nest.find(region, name), []).append((region.index, i))
        self._user = self._kept_by_user(keep)
        self._trained = self._kept_by_training(trained)
        self._integers = self._giving_integers()
        self.plan.wide = {key for key, c in self._constants.items() if not c.fits}
        self._native_half: set[Key] = set()
        self._scaled: set[Key] = set()  # float16 convolutions, scaled and shifted by constants
        self._visit(nest.regions[0])

    def _kept_by_user(self, keep: tuple[str, ...]) -> set[Site]:
        ops, layers = parse_keep(keep)
        present = {node.op_type for _, _, node in self._nest.nodes()}
        kept = set()
        for op in ops:
            if op not in present:
                raise UsageError(
                    f"--keep-float32 op:{op}: the graph has no such op",
                    hint=did_you_mean(op, present),
                )
        for pattern in layers:
            found = {
                (r.index, i) for r, i, _ in self._nest.nodes() if matches(pattern, r.labels[i])
            }
            if not found:
                # The scopes of a trace are numbered: layer `dense` may be called `dense_1` there.
                found = {
                    (r.index, i)
                    for r, i, _ in self._nest.nodes()
                    if matches(pattern, without_numbers(r.labels[i]))
                }
            if not found:
                scopes = {
                    s for r in self._nest.regions for x in r.labels for s in x.split("/")[:-1]
                }
                raise UsageError(
                    f"--keep-float32 layer:{pattern}: fits no node",
                    hint=did_you_mean(pattern, scopes),
                )
            kept |= found
        return kept | {(r.index, i) for r, i, n in self._nest.nodes() if n.op_type in ops}

    def _kept_by_training(self, trained: frozenset[str]) -> set[Site]:
        return {
            (r.index, i)
            for r, i, _ in self._nest.nodes()
            if trained.intersection(suffixes(original_name(r.labels[i])))
        }

    def _giving_integers(self) -> set[Site]:
        """Element-wise nodes that lead to a Cast to integers: arithmetic of sizes and indices."""
        made = {
            (r.index, name): (r.index, i) for r, i, n in self._nest.nodes() for name in n.output
        }
        pending = [
            (r, n.input[0])
            for r, _, n in self._nest.nodes()
            if n.op_type == "Cast"
            and self._nest.elem_type(r, n.input[0]) == FLOAT
            and any(a.name == "to" and a.i in _INTEGERS for a in n.attribute)
        ]
        found: set[Site] = set()
        while pending:
            region, name = pending.pop()
            site = made.get(self._nest.find(region, name))
            if site is None or site in found:
                continue
            at = self._nest.regions[site[0]]
            node = at.nodes[site[1]]
            if node.op_type not in PRODUCTS | TYPED_OTHERWISE:
                found.add(site)
                pending += [(at, x) for x in node.input if self._nest.elem_type(at, x) == FLOAT]
        return found

    def _visit(self, region: Region) -> None:
        for i, node in enumerate(region.nodes):
            for body in region.bodies.get(i, ()):
                self._visit(body)
            inputs = self.plan.half_inputs(region, node)
            outputs = self.plan.half_outputs(region, node)
            site = (region.index, i)
            keys = [self._nest.find(region, node.input[p]) for p in inputs]
            reason = "no float16"
            if inputs or outputs:
                reason = self._reason(site, node, keys)
                if reason:
                    self.plan.reasons[site] = reason
                else:
                    self.plan.half.add(site)
                    self._native_half.update((region.index, node.output[p]) for p in outputs)
            if reason and self._passes_masks(node, keys):
                self.plan.wide.update((region.index, node.output[p]) for p in outputs)

    def _reason(self, site: Site, node: Any, keys: list[Key]) -> str:
        """Why a node stays in float32; empty when it does not."""
        op = node.op_type
        if not self.plan.is_known(self._nest.regions[site[0]], node):
            return "an element type is unknown"
        if site in self._user:
            return "kept by the user"
        if self._is_folded_norm(op, keys):
            self._scaled.update((site[0], name) for name in node.output)
            return ""
        if site in self._trained:
            return "float32 in the trained model"
        if op in KEPT:
            return "kept: normalization, softmax, reduction or resizing"
        if op in PRODUCTS:
            self._refuse_large_weights(site, node, keys)
            if op in ("Conv", "ConvTranspose"):
                self._scaled.update((site[0], name) for name in node.output)
            return ""
        if any(key in self.plan.wide for key in keys):
            return "reads numbers beyond 65504"
        if any(self._is_tiny(key) for key in keys):
            return "reads a number below 2^-14"
        if site in self._integers:
            return "gives integers"
        if op in GROWING and self._is_summed(site):
            return "gives what a reduction sums up"
        if not any(key in self._native_half or self._is_table(op, key) for key in keys):
            return "its inputs are float32"
        return ""

    def _refuse_large_weights(self, site: Site, node: Any, keys: list[Key]) -> None:
        for region_index, name in keys:
            constant = self._constants.get((region_index, name))
            if constant is None or (constant.fits and constant.is_finite):
                continue
            if self._clamp:
                self.plan.clamped.add((region_index, name))
            else:
                label = self.plan.label(site)
                raise ConversionError(
                    f"{node.op_type} {label} has weights that float16 cannot hold "
                    "(above 65504, NaN or Inf)",
                    hint=f"--keep-float32 layer:{label.rpartition('/')[0] or label}",
                    where=label,
                    details={"initializer": name},
                )

    def _is_folded_norm(self, op: str, keys: list[Key]) -> bool:
        """Whether a node is what a batch normalization leaves behind a float16 convolution."""
        if op not in ("Mul", "Add") or len(keys) != 2:
            return False
        constants = [self._constants[key] for key in keys if key in self._constants]
        is_vector = len(constants) == 1 and constants[0].size > 1 and constants[0].fits
        return is_vector and any(key in self._scaled for key in keys)

    def _is_tiny(self, key: Key) -> bool:
        constant = self._constants.get(key)
        return constant is not None and 0 < abs(constant.single) < _SMALLEST_NORMAL

    def _is_table(self, op: str, key: Key) -> bool:
        constant = self._constants.get(key)
        return op in MOVES and constant is not None and constant.size >= storage.MIN_ELEMENTS

    def _is_summed(self, site: Site) -> bool:
        region = self._nest.regions[site[0]]
        readers = [
            self._nest.regions[r].nodes[i].op_type
            for name in region.nodes[site[1]].output
            for r, i in self._readers.get((site[0], name), ())
        ]
        return any(op in SUMS for op in readers)

    def _passes_masks(self, node: Any, keys: list[Key]) -> bool:
        if node.op_type in BOUNDED | PRODUCTS or not any(key in self.plan.wide for key in keys):
            return False
        if node.op_type == "Clip":
            limits = [self._constants.get(key) for key in keys[1:]]
            known = [c for c in limits if c is not None]
            return not (len(known) == 2 and all(c.fits and c.is_finite for c in known))
        return True
