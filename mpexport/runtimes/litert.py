"""LiteRT (ai-edge-litert), the present TFLite runtime."""

from __future__ import annotations

from mpexport.runtimes import RuntimeSpec, _tflite_interpreter

_MODULE = "ai_edge_litert.interpreter"


def _probe() -> None:
    _tflite_interpreter.probe(_MODULE, "litert")


SPEC = RuntimeSpec(
    name="litert",
    formats=("tflite",),
    priority=10,
    modules=("ai_edge_litert",),
    extra="litert",
    probe=_probe,
    open=_tflite_interpreter.opener("litert", _MODULE, "litert", _probe),
    settings=_tflite_interpreter.SETTINGS,
)
