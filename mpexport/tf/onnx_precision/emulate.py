"""What float16 does to the outputs of an ONNX file, on a machine that computes it in float32.

ONNX Runtime on x86 computes float16 ops in float32 and merges the casts between them: neither the
rounding nor an overflow shows. So a file is turned into two float32 twins:

- the *widened* twin: all float16 tensors are float32. It computes what the file's graph and rounded
  constants mean, without the rounding of activations. That the graph is the model's own shows here.
- the *rounded* twin: besides, every tensor that is float16 in the file is rounded to float16 where
  it is made, by arithmetic that no optimizer takes for superfluous. Products are summed up in
  float32 and rounded once, as the matrix units of accelerators do.

Rounding x to 11 significant bits: with c = (2^13 + 1)·x, it is c - (c - x) (Veltkamp 1968; Dekker,
"A floating-point technique for extending the available precision", 1971). Below 2^-14 the spacing
is constant, 2^-24, which is the spacing of float32 in [0.5, 1): there it is (x + 0.75) - 0.75. From
65520 on, half way to what would be the next number, it is infinite.

An overflow is a tensor of the rounded twin that is not finite where the widened twin's is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from mpexport.errors import VerificationError
from mpexport.tensors import TensorSet
from mpexport.tf.onnx_precision.ops import MOVES
from mpexport.tf.onnx_precision.regions import Names, Nest, Region, all_graphs, values

_DOMAIN = "mpexport.emulation"
_ROUND = "RoundToFloat16"
_HALF, _FLOAT = TensorProto.FLOAT16, TensorProto.FLOAT

Run = Callable[[Path, list[TensorSet]], list[TensorSet]]

_CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})


@dataclass(frozen=True)
class Emulation:
    """Outputs of both twins on some cases.

    Attributes:
        widened: Without rounding of activations, per case.
        rounded: With it.
    """

    widened: list[TensorSet]
    rounded: list[TensorSet]


def emulate(path: Path, cases: list[TensorSet], scratch: Path, run: Run) -> Emulation:
    """Runs both twins of a file.

    Args:
        path: An ONNX file with float16 nodes.
        cases: Inputs by name.
        scratch: For the twins.
        run: Runs a float32 file on the cases.

    Raises:
        VerificationError: A tensor overflows; names the node.
    """
    widened, rounded = (scratch / f"{kind}.onnx" for kind in ("widened", "rounded"))
    probes = _write_twin(path, widened, is_rounded=False)
    _write_twin(path, rounded, is_rounded=True)
    plain, narrow = run(widened, cases), run(rounded, cases)
    for before, after in zip(plain, narrow):
        for probe, (label, op) in probes.items():
            if np.isfinite(before[probe]) and not np.isfinite(after[probe]):
                raise _overflow(path, label, op)
    for outputs in (*plain, *narrow):
        for probe in probes:
            del outputs[probe]
    return Emulation(plain, narrow)


def _overflow(path: Path, label: str, op: str) -> VerificationError:
    scope = label.rpartition("/")[0] or label
    inside = " (in its body)" if op in _CONTROL_FLOW else ""
    return VerificationError(
        f"{op} {label}{inside} overflows float16: a value it reads or gives is beyond 65504",
        hint=f"keep it in float32: --keep-float32 layer:{scope}",
        where=label,
        details={"path": str(path)},
    )


def _write_twin(path: Path, twin: Path, *, is_rounded: bool) -> dict[str, tuple[str, str]]:
    """Writes one twin.

    Returns:
        Name of an additional output, 0 while a tensor is finite → label and op of its node.
    """
    model = onnx.load(str(path))
    nest = Nest(model)
    names = Names(nest.names())
    watched = _watched(nest.regions[0])
    if is_rounded:
        for region in reversed(nest.regions):  # a body before the node that holds it
            _round_results(region, names)
        model.functions.append(_rounding(nest.opsets[""]))
        model.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
        model.ir_version = max(model.ir_version, 8)  # the first with functions
    probes = _add_probes(model.graph, watched, names)
    _widen(model)
    onnx.save_model(
        model,
        str(twin),
        save_as_external_data=True,
        location=f"{twin.name}.data",
        size_threshold=1024,
    )
    return probes


def _halves(region: Region, node: Any) -> list[int]:
    return [i for i, name in enumerate(node.output) if region.types.get(name) == _HALF]


def _round_results(region: Region, names: Names) -> None:
    """Rounds each float16 result right behind the node that makes it."""
    nodes = []
    for node in region.nodes:
        added = []
        # What only moves numbers moves rounded ones.
        for i in _halves(region, node) if node.op_type not in MOVES else ():
            exact = names.fresh(f"{node.output[i]}_exact")
            added.append(helper.make_node(_ROUND, [exact], [node.output[i]], exact, domain=_DOMAIN))
            node.output[i] = exact
        nodes += [onnx.NodeProto.FromString(node.SerializeToString()), *added]
    del region.graph.node[:]
    region.graph.node.extend(nodes)


def _watched(main: Region) -> dict[str, tuple[str, str]]:
    """Float16 tensors, and float32 tensors that a body hands out → label and op of their node."""
    found: dict[str, tuple[str, str]] = {}
    readers: dict[str, tuple[str, str]] = {}
    for node, label in zip(main.nodes, main.labels):
        for name in node.input:
            readers.setdefault(name, (label, node.op_type))
    for node, label in zip(main.nodes, main.labels):
        results = [node.output[i] for i in _halves(main, node)]
        if node.op_type in _CONTROL_FLOW:
            results += [name for name in node.output if main.types.get(name) == _FLOAT]
        for name in results:
            # A Cast is there for what reads it.
            is_cast = node.op_type == "Cast" and name in readers
            found[name] = readers[name] if is_cast else (label, node.op_type)
    return found


def _add_probes(
    graph: Any, watched: dict[str, tuple[str, str]], names: Names
) -> dict[str, tuple[str, str]]:
    """Adds an output for each tensor: 0 while it is finite."""
    zero = names.fresh("probe_zero")
    graph.initializer.append(onnx.numpy_helper.from_array(np.float32(0), zero))
    probes = {}
    for i, (name, origin) in enumerate(watched.items()):
        probe, product = names.fresh(f"probe_{i}"), names.fresh(f"probe_product_{i}")
        # 0 times anything finite is 0, and NaN otherwise; so is the sum.
        graph.node.append(helper.make_node("Mul", [name, zero], [product], product))
        graph.node.append(helper.make_node("ReduceSum", [product], [probe], probe, keepdims=0))
        graph.output.append(helper.make_tensor_value_info(probe, _FLOAT, []))
        probes[probe] = origin
    return probes


def _widen(model: Any) -> None:
    """Makes every float16 of a model a float32: tensors, types, and what Casts give."""
    for graph in all_graphs(model):
        for tensor in graph.initializer:
            _widen_tensor(tensor)
        for value in [*graph.input, *graph.output, *graph.value_info]:
            if value.type.tensor_type.elem_type == _HALF:
                value.type.tensor_type.elem_type = _FLOAT
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.name in ("to", "dtype") and attribute.i == _HALF:
                    attribute.i = _FLOAT
                if attribute.HasField("t"):
                    _widen_tensor(attribute.t)


def _widen_tensor(tensor: Any) -> None:
    if tensor.data_type == _HALF:
        wide = values(tensor).astype(np.float32)
        tensor.CopyFrom(onnx.numpy_helper.from_array(wide, tensor.name))


def _rounding(opset: int) -> Any:
    """The rounding as a function of the model, so that it stands there once."""
    constants = {
        "split": 2.0**13 + 1,
        "magic": 0.75,
        "normal": 2.0**-14,
        "limit": 65520.0,
        "huge": 3e38,
    }
    nodes = [
        helper.make_node("Constant", [], [name], value_float=value)
        for name, value in constants.items()
    ]
    for op, inputs, output in (
        ("Abs", ["x"], "size"),
        ("Mul", ["x", "split"], "c"),
        ("Sub", ["c", "x"], "d"),
        ("Sub", ["c", "d"], "short"),
        ("Add", ["x", "magic"], "shifted"),
        ("Sub", ["shifted", "magic"], "fine"),
        ("Less", ["size", "normal"], "is_small"),
        ("Where", ["is_small", "fine", "short"], "finite"),
        ("Mul", ["x", "huge"], "infinite"),
        ("GreaterOrEqual", ["size", "limit"], "is_large"),
        ("Where", ["is_large", "infinite", "finite"], "y"),
    ):
        nodes.append(helper.make_node(op, inputs, [output]))
    return helper.make_function(
        _DOMAIN, _ROUND, ["x"], ["y"], nodes, [helper.make_opsetid("", opset)]
    )
