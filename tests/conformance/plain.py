"""Running models the plain way, with each runtime's own API and nothing between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, Any]


def _signature(path: Path, name: str) -> tuple[Any, Any]:
    import tensorflow as tf

    loaded = tf.saved_model.load(str(path))
    keys = [k for k in loaded.signatures if k == (name or k)]
    key = "serving_default" if not name and "serving_default" in keys else keys[0]
    return loaded, loaded.signatures[key]


def saved_model_inputs(path: Path, signature: str) -> dict[str, Any]:
    """Input name → TensorSpec."""
    _, function = _signature(path, signature)
    return dict(function.structured_input_signature[1])


def run_saved_model(
    path: Path, signature: str, cases: list[Arrays], *, half_weights: bool = False
) -> list[Arrays]:
    """Outputs by name, per case; each case from the state the file starts with."""
    import tensorflow as tf

    loaded, function, results = None, None, []
    for case in cases:
        if function is None or _has_state(function):
            loaded, function = _signature(path, signature)
            if half_weights:
                _round_weights(function)
        specs = function.structured_input_signature[1]
        given = {k: tf.constant(v, specs[k].dtype) for k, v in case.items()}
        results.append({k: _array(v) for k, v in function(**given).items()})
    del loaded  # it has kept the variables alive
    return results


def _has_state(function: Any) -> bool:
    """Whether a call may change what the next one gives."""
    ops = {n.op for n in function.graph.as_graph_def().node}
    ops |= {n.op for f in function.graph.as_graph_def().library.function for n in f.node_def}
    return any(op.startswith("Assign") for op in ops)


def _round_weights(function: Any) -> None:
    """Rounds to float16 what is stored so, or moves it as far as that.

    A weight that float16 holds is still no constant of the file: converters multiply scales into
    kernels, and it is the products that are rounded.
    """
    import tensorflow as tf

    rng = np.random.default_rng(0)
    for variable in function.variables:
        if variable.dtype == tf.float32:
            value = variable.numpy()
            with np.errstate(over="ignore"):
                rounded = value.astype(np.float16).astype(np.float32)
            if np.array_equal(rounded, value):
                rounded = np.float32(value * (1 + 2.0**-11 * rng.uniform(-1, 1, value.shape)))
            variable.assign(rounded)


def _array(value: Any) -> Any:
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.name in ("float16", "bfloat16") else array


def trained_error(path: Path, signature: str, cases: list[Arrays], right: list[Arrays]) -> Any:
    """How far the model itself is from its twin, largest absolute error per output; or why not."""
    from tests.conformance.numbers import spread

    try:
        return spread(right, run_saved_model(path, signature, cases))
    except Exception as e:
        return f"{type(e).__name__}: {next(iter(str(e).strip().splitlines()), '')}"[:200]


def run_file(path: Path, signature: str, case: Arrays) -> Arrays:
    """Runs a file of any format on one case."""
    if path.is_dir():
        return run_saved_model(path, signature, [case])[0]
    return run_tflite(path, case) if path.suffix == ".tflite" else run_onnx(path, case)


def run_tflite(path: Path, case: Arrays) -> Arrays:
    """Through the LiteRT interpreter, by signature."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path), num_threads=1)
    return invoke_tflite(interpreter, case)


def invoke_tflite(interpreter: Any, case: Arrays) -> Arrays:
    """The one signature of an interpreter on one case."""
    key = next(iter(interpreter.get_signature_list()))
    runner = interpreter.get_signature_runner(key)
    details = runner.get_input_details()
    # An input on which no output depends isn't in the file.
    given = {k: np.asarray(v, details[k]["dtype"]) for k, v in case.items() if k in details}
    fixed = [int(details[k]["shape_signature"][0]) for k, v in given.items() if v.ndim]
    sizes = [len(v) for v in given.values() if v.ndim]
    if fixed == [1] * len(fixed) and set(sizes) != {1} and len(set(sizes)) == 1:
        # The batch had to be fixed, and the user was told: one sample after the other.
        parts = []
        for i in range(sizes[0]):
            interpreter.reset_all_variables()
            sample = {k: v[i : i + 1] if v.ndim else v for k, v in given.items()}
            parts.append({k: v.copy() for k, v in runner(**sample).items()})
        return {k: np.concatenate([part[k] for part in parts]) for k in parts[0]}
    return {k: v.copy() for k, v in runner(**given).items()}


def run_onnx(path: Path, case: Arrays) -> Arrays:
    """Through onnxruntime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    kinds = {i.name: i.type for i in session.get_inputs()}
    given = {k: np.asarray(v, _ONNX.get(kinds[k], v.dtype)) for k, v in case.items() if k in kinds}
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, given), strict=True))


_ONNX = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
