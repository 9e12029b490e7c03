"""A model in memory → a temporary SavedModel, written by the process that holds it."""

from __future__ import annotations

import shutil
import sys
import weakref
from pathlib import Path
from typing import Any

import tensorflow as tf

from mpexport.errors import UsageError
from mpexport.scratch import make_scratch


class TemporarySavedModel:
    """A SavedModel that is removed when nothing refers to it any more.

    Attributes:
        path: The directory.
    """

    def __init__(self) -> None:
        folder = make_scratch()
        self.path = str(folder / "model")
        self._finalizer = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)


def save_in_memory(model: Any) -> TemporarySavedModel:
    """Writes a Keras model (2 or 3), a ``tf.Module`` or a ConcreteFunction.

    Args:
        model: A ``tf.Module`` needs a ``__call__`` that is a ``tf.function`` with a signature, or
            one that was called before.

    Raises:
        UsageError: It is none of these, or its input shapes are unknown.
    """
    saved = TemporarySavedModel()
    if _is_a(model, "tf_keras"):
        from mpexport.tf.keras2 import export_model as export_keras2

        export_keras2(model, Path(saved.path))
    elif _is_a(model, "keras"):
        from mpexport.tf.keras3 import export_model as export_keras3

        export_keras3(model, Path(saved.path))
    elif hasattr(model, "structured_input_signature") and hasattr(model, "graph"):
        holder = tf.Module()
        holder.owned = list(model.variables)
        tf.saved_model.save(holder, saved.path, signatures=_named(model))
    elif isinstance(model, tf.Module):
        tf.saved_model.save(model, saved.path, signatures=_module_signature(model))
    else:
        raise UsageError(
            f"a {type(model).__name__} is no model",
            hint="expected a path, a Keras model, a tf.Module or a ConcreteFunction",
        )
    return saved


def _is_a(model: Any, package: str) -> bool:
    """Whether ``model`` is a model of a Keras package that is loaded already."""
    module = sys.modules.get(package)
    return module is not None and isinstance(model, module.Model)


def _module_signature(model: tf.Module) -> Any:
    call = model.__call__ if callable(model) else None
    traced: list[Any] = getattr(call, "_list_all_concrete_functions", list)()
    if len(traced) == 1:
        return _named(traced[0])
    if call is not None and getattr(call, "input_signature", None):
        return _named(call.get_concrete_function())
    raise UsageError(
        f"{type(model).__name__}.__call__ has {len(traced)} traces, one is needed",
        hint="decorate it with @tf.function(input_signature=[...])",
    )


def _named(function: Any) -> dict[str, Any]:
    from mpexport.tf.concrete import with_names

    return {"serving_default": with_names(function)}
