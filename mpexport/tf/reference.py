"""The runs an exported file is compared with: the model as trained, and the float64 reference."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from mpexport.errors import ConversionError, InconclusiveError
from mpexport.tf import concrete, pipeline, resources
from mpexport.tf.graph import Program
from mpexport.tf.inline import concrete_of, flatten
from mpexport.tf.load import first_line
from mpexport.tf.lowering import with_shapes
from mpexport.tf.normalized import NormalizedModel

# Above this many bytes of weights the reference is computed in float32: float64 copies of all
# weights would need twice as much again.
FLOAT64_LIMIT_BYTES = 2**30


@dataclass(frozen=True)
class Reference:
    """A function that computes the reference, and in what.

    Attributes:
        function: ConcreteFunction; positional arguments in the order of the signature's inputs.
        dtype: ``float64`` or ``float32``.
    """

    function: Any
    dtype: str


def make_reference(
    model: NormalizedModel, key: str, *, round_weights: bool = False, single: bool = False
) -> Reference:
    """Builds the reference of one signature.

    Args:
        model: The normalized model.
        key: Signature key.
        round_weights: Whether weights are rounded to float16 first: the error that storing them
            in float16 explains.
        single: Whether it computes in float32 whatever the size.
    """
    program = model.program.copy()
    program.entries = {key: program.entries[key]}
    program = _runnable(program, key)
    single = single or model.weight_bytes([key]) > FLOAT64_LIMIT_BYTES
    extra = ["round_weights_float16"] if round_weights else []
    stage = "none" if single else "reference"
    pipeline.run(program, stage, pipeline.PassContext(), extra=extra)
    function = concrete.put_together(program, "f64_")[key]
    return Reference(function, "float32" if single else "float64")


def _runnable(program: Program, key: str) -> Program:
    """The program with convolutions that no CPU has a kernel for written in those it has."""
    name = "lower_convolution"
    if not pipeline.all_passes()[name].is_needed(program):
        return program
    try:
        flat = flatten(program, key)
    except ConversionError:
        return program  # it updates variables; then it runs as it is, or not at all
    work = with_shapes(key, concrete_of(flat))
    changes = pipeline.run(work, "none", pipeline.PassContext(), extra=[name])
    return work if changes else program


class State:
    """The values of the variables that a model changes, to run it again from where it began.

    Args:
        model: The normalized model.
        key: Signature key.
    """

    def __init__(self, model: NormalizedModel, key: str) -> None:
        changes = any(node.op.startswith("Assign") for _, node in model.original.nodes())
        entries = [p.entries[key] for p in (model.original, model.program)] if changes else []
        captures = {id(c): c for entry in entries for c in entry.captures}
        self._values = [
            (capture, np.array(resources.read_value(capture)))
            for capture in captures.values()
            if concrete.variable_dtype(capture) is not None
        ]

    def restore(self) -> None:
        """Puts the values back."""
        for capture, value in self._values:
            tf.raw_ops.AssignVariableOp(resource=capture, value=tf.constant(value))


def run(function: Any, names: list[str], inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Runs a ConcreteFunction with named inputs given as arrays.

    Args:
        function: Positional arguments in the order of ``names``; returns a dict by name.
        names: Input names in argument order.
        inputs: Arrays by input name; cast to what the function takes.

    Raises:
        InconclusiveError: TensorFlow lacks a kernel on this machine, so that nothing can be
            compared.
    """
    args = []
    for name, placeholder in zip(names, function.inputs):
        value = tf.convert_to_tensor(inputs[name])
        args.append(
            value if value.dtype == placeholder.dtype else tf.cast(value, placeholder.dtype)
        )
    try:
        outputs = function(*args)
    except tf.errors.OpError as e:
        node = re.search(r"Detected at node (\S+)", str(e))
        cause = next((x for x in reversed(str(e).splitlines()) if "[[" not in x and x.strip()), "")
        raise InconclusiveError(
            f"TensorFlow cannot run the reference on this machine: {cause.strip()[:200]}",
            hint="replace the layer, or write the file without checking it: --no-verify",
            where=node[1] if node else "",
        ) from e
    return {name: tensor.numpy() for name, tensor in outputs.items()}


def run_trained(
    model: NormalizedModel, key: str, inputs: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray] | None, str]:
    """Runs the model as it was trained.

    Returns:
        ``(outputs, "")``; or ``(None, reason)`` when TensorFlow has no 16-bit kernel for an op
        here, so that the trained model can't be run on this machine at all.
    """
    function = model.source.signatures[key]
    keywords = {}
    for name, placeholder in zip(function._arg_keywords, function.inputs):
        value = tf.convert_to_tensor(inputs[name])
        keywords[name] = (
            value if value.dtype == placeholder.dtype else tf.cast(value, placeholder.dtype)
        )
    try:
        if function._num_positional_args >= len(keywords):
            outputs = function(*[keywords[n] for n in function._arg_keywords])
        else:
            outputs = function(**keywords)
    except (tf.errors.OpError, NotImplementedError) as e:
        return None, first_line(e)
    return {
        name: tf.cast(t, tf.float32).numpy() if t.dtype == tf.bfloat16 else t.numpy()
        for name, t in outputs.items()
    }, ""
