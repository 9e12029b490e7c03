"""ONNX Runtime on its CPU execution provider."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from mpexport import dtypes, optional
from mpexport.errors import ConversionError, MissingDependencyError, UsageError
from mpexport.runtimes import RuntimeOptions, RuntimeSpec, _onnx_file
from mpexport.runtimes._session import (
    BaseSession,
    cause,
    check_file,
    damaged,
    lacks_op,
    run_failed,
    text_to_bytes,
    unique_specs,
)
from mpexport.signature import Signature, TensorSpec
from mpexport.tensors import Array, TensorSet

_PROVIDER = "CPUExecutionProvider"
_FATAL = 4  # log severity: its errors come as exceptions, so its log adds nothing
# Setting → name of the level in ONNX Runtime.
_LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "disable": "ORT_DISABLE_ALL",
}
_TENSOR = re.compile(r"tensor\((\w+)\)")
_LACKING_OP = (
    re.compile(r"No Op registered for (\w+)(?: with domain_version of (\d+))?"),
    re.compile(r"Could not find an implementation for (\w+)\((\d+)\)"),
    re.compile(r"(?:Fatal error: )(\S+?)\((-?\d+)\) is not a registered function/op"),
)


class OnnxSession(BaseSession):
    """An ``.onnx`` file. ONNX has no signatures: `RuntimeOptions.signature` means nothing here."""

    name = "onnxruntime"

    def __init__(self, path: Path, options: RuntimeOptions) -> None:
        """Opens the file.

        Raises:
            InputError: Missing or damaged.
            ConversionError: The file needs an op or a type that this runtime lacks.
        """
        ort = optional.require("onnxruntime", "onnx")
        self.version = ort.__version__
        self._path = Path(path)
        self._num_threads = options.num_threads
        check_file(self._path)
        settings = ort.SessionOptions()
        settings.intra_op_num_threads = options.num_threads
        settings.inter_op_num_threads = 1
        settings.log_severity_level = _FATAL
        self._level = options.settings.get("optimization", "all")
        settings.graph_optimization_level = getattr(
            ort.GraphOptimizationLevel, _LEVELS[self._level]
        )
        state = ort.capi.onnxruntime_pybind11_state
        own: list[type[Exception]] = [
            e for e in vars(state).values() if isinstance(e, type) and issubclass(e, Exception)
        ]
        self._failures: tuple[type[Exception], ...] = (*own, RuntimeError, ValueError, MemoryError)
        try:
            self._session = ort.InferenceSession(str(self._path), settings, providers=[_PROVIDER])
        except self._failures as e:
            raise self._lacking(str(e)) or damaged(self._path, e) from e
        inputs = [self._spec(node) for node in self._session.get_inputs()]
        outputs = [self._spec(node) for node in self._session.get_outputs()]
        self.signature = Signature(
            "",
            unique_specs(self._path, "input", inputs),
            unique_specs(self._path, "output", outputs),
        )
        self._text_inputs = {s.name for s in inputs if s.dtype == "string"}

    def _spec(self, node: Any) -> TensorSpec:
        tensor = _TENSOR.fullmatch(node.type)
        if tensor is None:
            raise ConversionError(
                f"{self._path}: {node.name!r} is a {node.type}, not a tensor",
                where=str(self._path),
            )
        # ONNX Runtime gives [] both for a scalar and for an unknown rank.
        shape = tuple(d if isinstance(d, int) else None for d in node.shape) or None
        # In ONNX "double" and "float" have no width in their names, as in C.
        return TensorSpec(node.name, shape, dtypes.canonical(tensor[1]))

    def _lacking(self, text: str) -> ConversionError | None:
        for pattern in _LACKING_OP:
            found = pattern.search(text)
            if found:
                version = f" (opset version {found[2]})" if found[2] and found[2] != "-1" else ""
                return lacks_op(self.name, self.version, self._path, f"op {found[1]}{version}")
        return None

    def invoke(self, prepared: TensorSet) -> TensorSet:
        """Runs; ONNX Runtime gives freshly allocated outputs.

        Raises:
            ConversionError: The computation fails.
            UsageError: An index input is out of range, or a string input is no UTF-8.
        """
        feed = {n: _as_text(n, a) if n in self._text_inputs else a for n, a in prepared.items()}
        names = [s.name for s in self.signature.outputs]
        try:
            outputs = self._session.run(names, feed)
        except self._failures as e:
            raise run_failed(self.name, self._path, str(e)) from e
        return {name: text_to_bytes(array) for name, array in zip(names, outputs)}

    def environment(self) -> dict[str, Any]:
        """``execution_providers`` are those the session really has.

        ``weights`` and ``compute`` are as the file says; on a CPU this runtime may compute float16
        ops in float32.
        """
        weights, compute = _onnx_file.precision(self._path)
        return {
            "runtime": self.name,
            "version": self.version,
            "num_threads": self._num_threads,
            "weights": weights,
            "compute": compute,
            "graph_optimization_level": self._level,
            "execution_providers": list(self._session.get_providers()),
        }

    def close(self) -> None:
        """Frees the session."""
        del self._session


def _as_text(name: str, array: Array) -> Array:
    # ONNX Runtime would take bytes too, but as their Python representation: "b'x'".
    out = np.empty(array.shape, dtype=object)
    try:
        for index in np.ndindex(array.shape):
            item: Any = array[index]
            out[index] = item.decode()
    except UnicodeDecodeError as e:
        raise UsageError(f"{name}: a string is not UTF-8, as ONNX strings are") from e
    return out


def _probe() -> None:
    try:
        optional.require("onnxruntime", "onnx").SessionOptions()
    except (ImportError, AttributeError) as e:
        raise MissingDependencyError(
            f"onnxruntime is installed but does not work here: {cause(e)}",
            hint="pip install 'mpexport[onnx]'",
            where="onnxruntime",
            details={"extra": "onnx"},
        ) from e


SPEC = RuntimeSpec(
    name="onnxruntime",
    formats=("onnx",),
    priority=10,
    modules=("onnxruntime",),
    extra="onnx",
    probe=_probe,
    open=OnnxSession,
    settings={"optimization": tuple(_LEVELS)},
)
