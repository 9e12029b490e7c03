"""How the time of promotion grows with the graph: it should with the nodes, and no faster.

Run ``python benchmarks/promotion.py``. Graphs of 1,000, 10,000 and 100,000 nodes that compute in
float16, each as one function and as functions of 100 nodes that call each other, go through all
normalization passes. Shown are the median time per node, and its ratio to that of the smallest.
The command fails when a ratio is over the budget.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2, types_pb2

from mpexport.signature import TensorSpec
from mpexport.tf import pipeline
from mpexport.tf.graph import EntryPoint, Program

SIZES = (1_000, 10_000, 100_000)
RUNS = {1_000: 15, 10_000: 7, 100_000: 5}
BUDGET = 1.3
_PER_FUNCTION = 100
_HALF, _FLOAT = types_pb2.DT_HALF, types_pb2.DT_FLOAT


class _Function:
    """A chain of half-precision nodes from ``x`` to ``y``, both of one element type."""

    def __init__(self, name: str, dtype: int) -> None:
        self.fdef = function_pb2.FunctionDef()
        self.fdef.signature.name = name
        self.fdef.signature.input_arg.add(name="x", type=dtype)
        self.fdef.signature.output_arg.add(name="y", type=dtype)
        self.last = "x"

    def _node(self, op: str, *inputs: str, **types: int) -> node_def_pb2.NodeDef:
        node = self.fdef.node_def.add(name=f"n{len(self.fdef.node_def)}", op=op)
        node.input.extend(inputs)
        for attr, value in types.items():
            node.attr[attr].type = value
        return node

    def cast(self, source: int, target: int) -> None:
        node = self._node("Cast", self.last, SrcT=source, DstT=target)
        self.last = f"{node.name}:y:0"

    def add_layer(self) -> None:
        """Four nodes, as of a layer with a literal."""
        literal = self._node("Const", dtype=_HALF)
        literal.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(0.1, tf.float16))
        scaled = self._node("Mul", self.last, f"{literal.name}:output:0", T=_HALF)
        moved = self._node("AddV2", f"{scaled.name}:z:0", f"{literal.name}:output:0", T=_HALF)
        self.last = f"{self._node('Relu', f'{moved.name}:z:0', T=_HALF).name}:activations:0"

    def call(self, name: str) -> None:
        node = self._node("PartitionedCall", self.last)
        node.attr["f"].func.name = name
        node.attr["Tin"].list.type.append(_HALF)
        node.attr["Tout"].list.type.append(_HALF)
        self.last = f"{node.name}:output:0"

    def done(self) -> function_pb2.FunctionDef:
        self.fdef.ret["y"] = self.last
        return self.fdef


def flat(nodes: int) -> Program:
    """One function."""
    main = _Function("main", _FLOAT)
    main.cast(_FLOAT, _HALF)
    for _ in range(nodes // 4):
        main.add_layer()
    main.cast(_HALF, _FLOAT)
    return _program([main.done()])


def nested(nodes: int) -> Program:
    """Functions of 100 nodes, called one after the other."""
    main = _Function("main", _FLOAT)
    main.cast(_FLOAT, _HALF)
    functions = []
    for i in range(nodes // _PER_FUNCTION):
        inner = _Function(f"inner_{i}", _HALF)
        for _ in range(_PER_FUNCTION // 4):
            inner.add_layer()
        functions.append(inner.done())
        main.call(f"inner_{i}")
    main.cast(_HALF, _FLOAT)
    return _program([main.done(), *functions])


def _program(functions: list[function_pb2.FunctionDef]) -> Program:
    spec = TensorSpec("x", (None, 8), "float32")
    entry = EntryPoint("main", "main", [spec], [TensorSpec("y", (None, 8), "float32")], [])
    return Program({f.signature.name: f for f in functions}, {"main": entry})


def time_per_node_us(make: Callable[[int], Program], nodes: int) -> float:
    """Median over fresh copies of one graph."""
    original = make(nodes)
    times = []
    for _ in range(RUNS[nodes]):
        program = original.copy()
        gc.collect()
        start = time.perf_counter()
        pipeline.run(program, "normalize", pipeline.PassContext())
        times.append(time.perf_counter() - start)
    left = sum(node.op == "Cast" for _, node in program.nodes())
    assert left == 0, f"{left} casts are left: nothing was promoted"
    return statistics.median(times) / nodes * 1e6


def main() -> int:
    """Times all sizes, side by side."""
    worst = 0.0
    print(f"{'graph':8} {'nodes':>8} {'us per node':>12} {'ratio':>6}")
    for make in (flat, nested):
        time_per_node_us(make, SIZES[0])  # fills the caches
        base = 0.0
        for nodes in SIZES:
            each = time_per_node_us(make, nodes)
            base = base or each
            worst = max(worst, each / base)
            print(f"{make.__name__:8} {nodes:8,} {each:12.2f} {each / base:6.2f}", flush=True)
    print(f"worst ratio {worst:.2f} (budget {BUDGET})")
    return int(worst > BUDGET)


if __name__ == "__main__":
    sys.exit(main())
