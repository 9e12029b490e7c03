"""The TFLite interpreter API, which ai-edge-litert and tflite-runtime share."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

import numpy as np

from mpexport import optional, tensors
from mpexport.errors import ConversionError, MissingDependencyError
from mpexport.runtimes import RuntimeOptions
from mpexport.runtimes._session import (
    BaseSession,
    cause,
    check_file,
    damaged,
    lacks_op,
    run_failed,
    select_signature,
    text_to_bytes,
    unique_specs,
)
from mpexport.signature import Signature, TensorSpec
from mpexport.tensors import Array, TensorSet

# A whole valid file: one subgraph, one float32[1] tensor "x" that is both input and output, no
# operators. Building an interpreter on it is the only way to see that a runtime works: one
# compiled for numpy 1 imports under numpy 2 and fails right here.
_TINY_FILE = base64.b64decode(
    "GAAAAFRGTDMAAA4AFAAQAAwACAAAAAQADgAAABAAAAAcAAAAhAAAAAMAAAABAAAACAAAAAQABAAEAAAAAQAAABAAAAAM"
    "ABQAEAAMAAgABAAMAAAAEAAAABAAAAAUAAAAGAAAAAAAAAABAAAAAAAAAAEAAAAAAAAAAQAAABAAAAAMAAwACAAAAAAA"
    "BAAMAAAACAAAAAwAAAABAAAAeAAAAAEAAAABAAAAAAAAAA=="
)
# Whether the XNNPACK delegate takes the ops it can, as it does by default.
SETTINGS = {"xnnpack": ("on", "off")}
_FAILURES = (ValueError, RuntimeError, MemoryError, TypeError)
_BROKEN = (*_FAILURES, ImportError, AttributeError, SystemError)
_OLD_OP = re.compile(r"builtin opcode '(\w+)' version '(\d+)'")
_UNKNOWN_OP = re.compile(r"builtin_code out of range: (\d+)")
_CUSTOM_OP = re.compile(r"unresolved custom op: ([^\s.]+)")
_FAILED_NODE = re.compile(r"Node number \d+ \((\w+)\) failed")


def probe(module: str, extra: str) -> None:
    """Builds an interpreter on a tiny file.

    Raises:
        MissingDependencyError: Not installed, or installed and broken.
    """
    try:
        interpreter = optional.require(module, extra).Interpreter
        interpreter(model_content=_TINY_FILE, num_threads=1).allocate_tensors()
    except _BROKEN as e:
        package = module.partition(".")[0]
        raise MissingDependencyError(
            f"{package} is installed but does not work here: {cause(e)}",
            hint=f"install 'mpexport[{extra}]' in an environment of its own",
            where=package,
            details={"extra": extra},
        ) from e


class TfliteSession(BaseSession):
    """One signature of a ``.tflite`` file.

    A file without signatures is run by the names of its input and output tensors.
    """

    def __init__(self, name: str, package: Any, path: Path, options: RuntimeOptions) -> None:
        """Opens the file.

        Args:
            name: The runtime's name.
            package: The runtime's ``interpreter`` module.
            path: The file.
            options: Threads and signature.

        Raises:
            InputError: Missing or damaged.
            ConversionError: The file needs an op that this runtime lacks.
            UsageError: The signature asked for is not there.
        """
        self.name = name
        self.version = optional.require(package.__name__.partition(".")[0], name).__version__
        self._path = Path(path)
        self._num_threads = options.num_threads
        self._reported = ""
        check_file(self._path)
        more: dict[str, Any] = {}
        if options.settings.get("xnnpack") == "off":
            resolver = package.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
            more["experimental_op_resolver_type"] = resolver
        try:
            self._interpreter = package.Interpreter(
                model_path=str(self._path), num_threads=options.num_threads, **more
            )
            signatures = list(self._interpreter.get_signature_list())
            if signatures:
                key = select_signature(self._path, signatures, options.signature)
                self._runner = self._interpreter.get_signature_runner(key)
                inputs = list(self._runner.get_input_details().items())
                outputs = list(self._runner.get_output_details().items())
            else:
                key, self._runner = "", None
                inputs = [(d["name"], d) for d in self._interpreter.get_input_details()]
                outputs = [(d["name"], d) for d in self._interpreter.get_output_details()]
        except _FAILURES as e:
            raise self._lacking(str(e)) or damaged(self._path, e) from e
        self.signature = Signature(
            key,
            unique_specs(self._path, "input", [_spec(n, d) for n, d in inputs]),
            unique_specs(self._path, "output", [_spec(n, d) for n, d in outputs]),
        )
        self._indices = {n: d["index"] for n, d in inputs}
        self._output_indices = {n: d["index"] for n, d in outputs}
        self._tensors = {d["index"]: d["name"] for _, d in inputs}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._has_run = False

    def run(self, inputs: Mapping[str, Array]) -> TensorSet:
        """`prepare`, then `invoke`, from the state the file starts with.

        A fused LSTM keeps its state in variable tensors from one call to the next; the model
        begins anew with every batch.
        """
        if self._has_run:  # before the first run no tensor is allocated, and none is stale
            self._interpreter.reset_all_variables()
        return super().run(inputs)

    def invoke(self, prepared: TensorSet) -> TensorSet:
        """Sizes the inputs, runs, and copies the outputs.

        Raises:
            ConversionError: An op is lacking or fails.
            UsageError: An index input is out of range.
        """
        try:
            if self._runner is not None:
                outputs = self._runner(**prepared)
            else:
                outputs = self._invoke_by_tensor(prepared)
        except _FAILURES as e:
            # The interpreter repeats all it ever reported; only the tail is new.
            text = str(e)
            new = text[len(self._reported) :] if text.startswith(self._reported) else text
            new = new.replace("Node number", " Node number")
            self._reported = text
            raise self._lacking(new) or run_failed(self.name, self._path, new) from e
        self._has_run = True
        return {name: text_to_bytes(outputs[name]) for name in self._output_indices}

    def _invoke_by_tensor(self, prepared: TensorSet) -> TensorSet:
        interpreter = self._interpreter
        shapes = {name: array.shape for name, array in prepared.items()}
        if shapes != self._shapes:
            for name, shape in shapes.items():
                interpreter.resize_tensor_input(self._indices[name], shape)
            interpreter.allocate_tensors()
            self._shapes = shapes
        for name, array in prepared.items():
            interpreter.set_tensor(self._indices[name], array)
        interpreter.invoke()
        return {name: interpreter.get_tensor(i) for name, i in self._output_indices.items()}

    def _lacking(self, text: str) -> ConversionError | None:
        old = _OLD_OP.search(text)
        if old:
            op = f"{old[1]} version {old[2]}"
        elif _UNKNOWN_OP.search(text):
            op = "builtin op " + _UNKNOWN_OP.findall(text)[0]
        elif _CUSTOM_OP.search(text):
            op = "custom op " + _CUSTOM_OP.findall(text)[0]
        elif "Select TensorFlow op" in text:
            op = "Select-TF op " + (_FAILED_NODE.findall(text) or ["(not named)"])[0]
        else:
            return None
        return lacks_op(self.name, self.version, self._path, op)

    def environment(self) -> dict[str, Any]:
        """``delegate`` is ``XNNPACK``, ``none``, or ``unknown`` before the first run.

        The interpreter applies no other delegate by itself, and only tells about the file's first
        subgraph: for another signature the answer is ``unknown``. ``weights`` is what the weights
        are stored in: ``float16`` when there is any float16 tensor, else ``float32``.
        """
        first = {d["index"]: d["name"] for d in self._interpreter.get_input_details()}
        delegate = "unknown"
        if self._has_run and first == self._tensors:
            ops = self._interpreter._get_ops_details()
            delegate = "XNNPACK" if any(o["op_name"] == "DELEGATE" for o in ops) else "none"
        return {
            "runtime": self.name,
            "version": self.version,
            "num_threads": self._num_threads,
            "delegate": delegate,
            "weights": "float16" if self._has_float16() else "float32",
        }

    def _has_float16(self) -> bool:
        return any(d["dtype"] == np.float16 for d in self._interpreter.get_tensor_details())

    def close(self) -> None:
        """Frees the interpreter and the mapped file."""
        del self._runner, self._interpreter


def _spec(name: str, details: dict[str, Any]) -> TensorSpec:
    sizes = details.get("shape_signature", details["shape"])
    shape = tuple(None if d < 0 else int(d) for d in sizes)
    return TensorSpec(name, shape, tensors.dtype_name(np.dtype(details["dtype"])))


def opener(
    name: str, module: str, extra: str, check: Callable[[], None]
) -> Callable[[Path, RuntimeOptions], TfliteSession]:
    """The ``open`` of a runtime whose interpreter lives in ``module``.

    ``check`` is its probe. It takes 0.1 ms, and without it a broken runtime would be reported as a
    damaged file.
    """

    def open_file(path: Path, options: RuntimeOptions) -> TfliteSession:
        check()
        return TfliteSession(name, optional.require(module, extra), path, options)

    return open_file
