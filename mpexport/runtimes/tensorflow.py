"""TensorFlow, for SavedModel directories; imported only when one is opened."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mpexport import dtypes, optional
from mpexport.errors import InputError
from mpexport.runtimes import RuntimeOptions, RuntimeSpec
from mpexport.runtimes._session import (
    BaseSession,
    cause,
    damaged,
    lacks_op,
    run_failed,
    select_signature,
    text_to_bytes,
    unique_specs,
)
from mpexport.signature import Signature, TensorSpec
from mpexport.tensors import TensorSet

_LACKING_OP = re.compile(r"Op type not registered '(\w+)'")
_PYTHON_FAILURES = (OSError, ValueError, LookupError, RuntimeError, TypeError, MemoryError)
_INTERNAL = "__saved_model"  # prefix of signatures that TensorFlow keeps for itself


class SavedModelSession(BaseSession):
    """One signature of a SavedModel."""

    name = "tensorflow"

    def __init__(self, path: Path, options: RuntimeOptions) -> None:
        """Loads the model.

        Raises:
            InputError: Missing, damaged, or without a signature.
            ConversionError: It needs an op that this TensorFlow lacks.
            UsageError: The signature asked for is not there.
        """
        self._path = Path(path)
        if not self._path.is_dir():
            what = "not a SavedModel directory" if self._path.exists() else "no such directory"
            raise InputError(f"{self._path}: {what}", where=str(self._path))
        tf = optional.require("tensorflow", "tensorflow")
        self._tf = tf
        self.version = tf.__version__
        self._num_threads = _limit_threads(tf, options.num_threads)
        self._failures = (tf.errors.OpError, *_PYTHON_FAILURES)
        try:
            # The object owns the variables; the function holds them only weakly.
            self._model = tf.saved_model.load(str(self._path))
            signatures = dict(self._model.signatures)
        except (*self._failures, AttributeError) as e:
            op = _LACKING_OP.search(str(e))
            if op:
                raise lacks_op(self.name, self.version, self._path, f"op {op[1]}") from e
            raise damaged(self._path, e) from e
        names = [k for k in signatures if not k.startswith(_INTERNAL)]
        key = select_signature(self._path, names, options.signature)
        self._function = signatures[key]
        inputs = self._function.structured_input_signature[1]
        outputs = self._function.structured_outputs
        self.signature = Signature(
            key,
            unique_specs(self._path, "input", _specs(inputs)),
            unique_specs(self._path, "output", _specs(outputs)),
        )
        self._types = {name: spec.dtype for name, spec in inputs.items()}

    def invoke(self, prepared: TensorSet) -> TensorSet:
        """Runs the signature's function; outputs are copied out of TensorFlow.

        Raises:
            ConversionError: The computation fails.
            UsageError: An index input is out of range.
        """
        try:
            feed = {
                name: self._tf.constant(array, dtype=self._types[name])
                for name, array in prepared.items()
            }
            outputs = self._function(**feed)
            return {s.name: text_to_bytes(outputs[s.name].numpy()) for s in self.signature.outputs}
        except self._failures as e:
            raise run_failed(self.name, self._path, cause(e)) from e

    def environment(self) -> dict[str, Any]:
        """``num_threads`` is what is in force in this process; 0 means TensorFlow's own choice."""
        return {
            "runtime": self.name,
            "version": self.version,
            "num_threads": self._num_threads,
            "devices": sorted({d.device_type for d in self._tf.config.list_physical_devices()}),
        }

    def close(self) -> None:
        """Frees the model."""
        del self._function, self._model


def _limit_threads(tf: Any, num_threads: int) -> int:
    threading = tf.config.threading
    try:
        threading.set_intra_op_parallelism_threads(num_threads)
    except RuntimeError:  # TensorFlow already runs with a number that can't be changed any more
        return int(threading.get_intra_op_parallelism_threads())
    return num_threads


def _specs(declared: dict[str, Any]) -> list[TensorSpec]:
    return [
        TensorSpec(
            name,
            None if spec.shape.rank is None else tuple(spec.shape.as_list()),
            dtypes.canonical(spec.dtype.name),
        )
        for name, spec in sorted(declared.items())
    ]


def _probe() -> None:
    """Nothing: importing TensorFlow to see whether it works would take seconds."""


SPEC = RuntimeSpec(
    name="tensorflow",
    formats=("savedmodel",),
    priority=10,
    modules=("tensorflow",),
    extra="tensorflow",
    probe=_probe,
    open=SavedModelSession,
)
