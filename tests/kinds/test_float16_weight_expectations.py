"""float16 quantization that fails, runs away, or is taken for float16 computation.

A TFLite file stores float16 weights with one DEQUANTIZE each and computes in float32; that must be
said. Conversions run in a process with a time limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpexport
from mpexport.errors import WorkerError
from mpexport.results import RunOptions

pytestmark = [pytest.mark.tf, pytest.mark.litert]


@pytest.mark.parametrize("policy", ["mixed_float16", "float16"])
def test_weights_are_stored_in_float16_and_computed_with_in_float32(
    export: Any, policy: str
) -> None:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    name = f"classifier_{policy}.keras"
    made = export(name, "tflite-float16")
    # The default delegate folds DEQUANTIZE; without one the tensors are those of the file.
    interpreter = Interpreter(
        str(made.path),
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    tensors = {t["index"]: t for t in interpreter.get_tensor_details()}
    halves = {i for i, t in tensors.items() if t["dtype"] == np.float16}
    ops = interpreter._get_ops_details()
    widened = [op["inputs"][0] for op in ops if op["op_name"] == "DEQUANTIZE"]
    assert halves
    assert sorted(halves) == sorted(widened)
    computed = [i for op in ops for i in op["outputs"]]
    assert {tensors[i]["dtype"] for i in computed if i in tensors} <= {np.float32, np.int32}
    assert made.file.conversion.precision == "float16-weights"
    report = mpexport.inspect(made.path)
    assert report.precision == "float16-weights"
    assert report.reduced_precision == "fp16accfp32"
    assert {op.name: op.count for op in report.ops}["DEQUANTIZE"] == len(halves)
    assert made.agrees(2**-9)


@pytest.mark.parametrize("name", ["lstm_fixed.keras", "gru_fixed.keras", "both_ways.keras"])
def test_recurrent_layers_of_a_fixed_batch(export: Any, name: str) -> None:
    """This once took all memory; today's converter does not."""
    # Two products in each of at most 8 steps, and a head: less than 2^4 weights in a row.
    assert export(name, "tflite-float16").agrees(2**-7)


def test_conversion_that_takes_too_long_is_ended(export: Any, tmp_path: Any) -> None:
    source = export.source("variables_float16")
    with pytest.raises(WorkerError, match=r"longer than 0\.5 s"):
        mpexport.convert(
            source.path, "tflite", tmp_path / "o.tflite", run=RunOptions(timeout_s=0.5)
        )
    assert list(tmp_path.iterdir()) == []


def test_map_over_the_batch_needs_no_flex_op(export: Any) -> None:
    """Ops in the body of a loop once did; a Flex file doesn't run in the plain runtime."""
    made = export("mapped", "tflite-float16")
    assert not [op for op in made.file.contract.ops if op.startswith("Flex")]
    assert made.agrees(2**-9)
