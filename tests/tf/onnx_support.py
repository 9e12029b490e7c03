"""From a function to the nodes and numbers of its ONNX file, in one process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import tensorflow as tf

from mpexport.formats.onnx import DEFAULT_OPSET
from mpexport.tf import concrete, pipeline, reference, resources
from mpexport.tf.normalized import NormalizedModel
from mpexport.tf.onnx_precision.regions import all_graphs
from mpexport.tf.to_onnx import build_onnx

# The product's bound for float32 files: |c - r| <= TOLERANCE * (|r| + max|r|).
TOLERANCE = 1e-5


def model_of(
    function: Callable[..., Any],
    *arrays: Any,
    is_dynamic: bool = True,
    half: Any = None,
    autograph: bool = False,
) -> NormalizedModel:
    """A function as a normalized model with inputs ``x0``… and outputs ``y0``…

    Args:
        function: Of one tensor per array.
        arrays: Their types and shapes become the signature's.
        is_dynamic: Whether the first axis becomes unknown.
        half: Type to cast float32 inputs to; the graph computes in it and is promoted.
        autograph: Whether Python's ``if`` and ``for`` become ops.
    """
    specs = [
        tf.TensorSpec(
            [None, *a.shape[1:]] if is_dynamic and a.ndim else a.shape,
            tf.as_dtype(a.dtype),
            name=f"x{i}",
        )
        for i, a in enumerate(arrays)
    ]

    def call(*inputs: Any) -> dict[str, Any]:
        given = [tf.cast(x, half) if half and x.dtype == tf.float32 else x for x in inputs]
        return {f"y{i}": t for i, t in enumerate(tf.nest.flatten(function(*given)))}

    traced = tf.function(call, autograph=autograph).get_concrete_function(*specs)
    original = concrete.take_apart({"f": traced})
    program = original.copy()
    context = pipeline.PassContext()
    pipeline.run(program, "normalize", context)
    twins, _ = resources.widen_captures(program)
    return NormalizedModel(None, original, program, twins, context.changes, [])


def onnx_of(model: NormalizedModel, opset: int = DEFAULT_OPSET, key: str = "f") -> Any:
    """The checked ModelProto."""
    proto = build_onnx(model, key, opset)[0]
    onnx.checker.check_model(proto, full_check=True)
    assert {o.domain: o.version for o in proto.opset_import}[""] == opset
    return proto


def nodes(proto: Any) -> Counter[str]:
    """Op → how often, constants left out, bodies of loops and branches included."""
    found = Counter(n.op_type for graph in all_graphs(proto) for n in graph.node)
    return Counter({op: n for op, n in found.items() if op != "Constant"})


def run_onnx(proto: Any, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    read = {i.name for i in session.get_inputs()}
    return dict(zip(names, session.run(None, {k: v for k, v in inputs.items() if k in read})))


def assert_same(expected: dict[str, Any], found: dict[str, Any]) -> None:
    """Floats within the product's bound; whole numbers and truth values exactly."""
    assert sorted(expected) == sorted(found)
    for name, wanted in expected.items():
        r, c = np.asarray(wanted), np.asarray(found[name])
        assert r.shape == c.shape, name
        assert r.dtype.kind == c.dtype.kind, name
        if r.dtype.kind != "f":
            assert (r == c).all(), (name, r, c)
            continue
        r, c = r.astype(np.float64), c.astype(np.float64)
        assert (np.isnan(r) == np.isnan(c)).all(), (name, r, c)
        assert (np.isinf(r) == np.isinf(c)).all(), (name, r, c)
        assert (np.sign(r[np.isinf(r)]) == np.sign(c[np.isinf(r)])).all(), (name, r, c)
        r, c = r[np.isfinite(r)], c[np.isfinite(r)]
        if r.size:
            assert np.ptp(r) > 0 or r.size == 1, f"{name} is constant: no evidence"
            limit = TOLERANCE * (np.abs(r) + np.abs(r).max())
            assert float((np.abs(c - r) / limit).max()) <= 1, (name, r, c)


def convert_and_check(
    function: Callable[..., Any],
    *arrays: Any,
    opset: int = DEFAULT_OPSET,
    **options: Any,
) -> Counter[str]:
    """Converts, and compares with the float64 reference on all rows and on the first alone.

    Returns:
        The nodes of the file.
    """
    model = model_of(function, *arrays, **options)
    proto = onnx_of(model, opset)
    judge = reference.make_reference(model, "f").function
    names = [s.name for s in model.program.entries["f"].inputs]
    batches = [arrays]
    if options.get("is_dynamic", True) and all(a.ndim for a in arrays):
        batches.append(tuple(a[:1] for a in arrays))
    for batch in batches:
        inputs = dict(zip(names, batch))
        assert_same(reference.run(judge, names, inputs), run_onnx(proto, inputs))
    return nodes(proto)
