"""Ops, op versions and shapes that the runtime at hand doesn't know.

The oldest runtime that runs a file is told, and one that is too old is refused by name.
"""

from __future__ import annotations

from typing import Any

import pytest

import mpexport

pytestmark = [pytest.mark.tf, pytest.mark.litert, pytest.mark.ort]


def test_op_version_newer_than_the_runtime(export: Any) -> None:
    name = "classifier_mixed_float16.keras"
    error = export.refusal(name, "tflite-float16", 5, min_runtime="1.14")
    assert "TFLite 1.14 does not run DEQUANTIZE version 3" in error.message
    made = export(name, "tflite-float16")
    report = mpexport.inspect(made.path)
    assert all(op.version >= 1 for op in report.ops)
    needed = report.requirements["min_runtime_version"]
    assert export(name, "tflite-float16", min_runtime=needed).agrees(2**-9)


def test_gelu_is_not_the_op_that_old_runtimes_lack(export: Any) -> None:
    """TFLite's GELU came with 2.9; Erf in builtin ops of before runs everywhere."""
    made = export("gelu.keras", "tflite", min_runtime="2.5")
    assert "GELU" not in made.file.contract.ops
    assert made.agrees()


def test_product_of_seven_axes(export: Any) -> None:
    """The default delegate once took such a product and then failed to set itself up."""
    assert export("seven_axes", "tflite").agrees()
