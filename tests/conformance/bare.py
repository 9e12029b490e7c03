"""What the bare tools make of a model: written, and then run and compared like ours."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from tests.conformance import plain
from tests.conformance.numbers import difference

# The bound by which the bare tools are judged, in units of ours: they compute in half where the
# model does. 2e-2 instead of 2e-5.
_SLACK = 1000


def convert_and_run(
    source: Path, signature: str, inputs: list[Any], expected: list[Any], scratch: Path
) -> dict[str, str]:
    """Tool → ``ok``, or ``fails: why``, ``does not run: why``, ``wrong``."""
    key = signature or "serving_default"
    return {
        "tflite": _judge(_tflite, source, key, scratch / "bare.tflite", inputs, expected),
        "onnx": _judge(_onnx, source, key, scratch / "bare.onnx", inputs, expected),
    }


def _judge(
    convert: Any, source: Path, key: str, path: Path, inputs: list[Any], expected: list[Any]
) -> str:
    try:
        convert(source, key, path)
    except (Exception, SystemExit) as e:
        return f"fails: {_line(e)}"
    try:
        found = [plain.run_file(path, key, case) for case in inputs]
    except Exception as e:
        return f"does not run: {_line(e)}"
    finally:
        path.unlink(missing_ok=True)
    for right, outputs in zip(expected, found, strict=True):
        if len(right) == len(outputs) and set(right) != set(outputs):
            outputs = dict(zip(right, outputs.values(), strict=True))  # names are not their promise
        ratio, problem = difference(right, outputs)
        if problem or ratio > _SLACK:
            return f"wrong: {problem or f'{ratio:.0f} times the bound'}"
    return "ok"


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"[:160]


def _tflite(source: Path, key: str, path: Path) -> None:
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_saved_model(str(source), signature_keys=[key])
    path.write_bytes(converter.convert())


def _onnx(source: Path, key: str, path: Path) -> None:
    from tf2onnx import convert

    arguments = ["tf2onnx", "--saved-model", str(source), "--output", str(path), "--opset", "18"]
    before, sys.argv = sys.argv, [*arguments, "--signature_def", key, "--tag", "serve"]
    try:
        convert.main()
    finally:
        sys.argv = before
        shutil.rmtree(path.with_suffix(""), ignore_errors=True)
