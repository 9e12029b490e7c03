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
# (graph, its nodes) → its nodes: tf2onnx's signature of a rewriter, which sees the graph before.
Rewriter = Callable[[Any, list[Any]], list[Any]]


@dataclass(frozen=True)
class OpHandlers:
    """The handlers of one module.

    Attributes:
        name: The module's name.
        table: TensorFlow op → handler.
        rewriters: For what is one node in ONNX and several in TensorFlow.
    """

    name: str
    table: Mapping[str, Handler]
    rewriters: tuple[Rewriter, ...] = ()


@lru_cache(maxsize=1)
def _modules() -> list[OpHandlers]:
    return list(discover("mpexport.tf.onnx_ops", "HANDLERS").values())


def all_handlers() -> dict[str, tuple[Handler, list[Any]]]:
    """All handlers by op, as tf2onnx takes them."""
    return {op: (handler, []) for h in _modules() for op, handler in h.table.items()}


def all_rewriters() -> list[Rewriter]:
    """All rewriters, as tf2onnx takes them."""
    return [rewriter for h in _modules() for rewriter in h.rewriters]
