"""Handlers by which tf2onnx writes ops that it lacks or writes wrongly; one file per kind of op.

A handler is for what needs an ONNX op that no TensorFlow op leads to. Whatever can be said in
other TensorFlow ops is a pass instead (``mpexport/tf/passes/onnx_*.py``), which can be run and
checked without ONNX.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mpexport.plugins import discover

# (graph, node, node's name, further arguments): tf2onnx's signature of a handler.
Handler = Callable[[Any, Any, str, Any], None]


@dataclass(frozen=True)
class OpHandlers:
    """The handlers of one module.

    Attributes:
        name: The module's name.
        table: TensorFlow op → handler.
    """

    name: str
    table: Mapping[str, Handler]


@lru_cache(maxsize=1)
def all_handlers() -> dict[str, tuple[Handler, list[Any]]]:
    """All handlers by op, as tf2onnx takes them."""
    found = discover("mpexport.tf.onnx_ops", "HANDLERS")
    return {op: (handler, []) for h in found.values() for op, handler in h.table.items()}
