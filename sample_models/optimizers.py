"""Optimizers by name, the same for both generations of Keras."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

_ARGUMENTS = MappingProxyType(
    {
        "adam": ("Adam", {"learning_rate": 1e-3}),
        "rmsprop": ("RMSprop", {"learning_rate": 1e-3}),
        "sgd": ("SGD", {"learning_rate": 0.05, "momentum": 0.9}),
    }
)
OPTIMIZERS = tuple(_ARGUMENTS)


def make_optimizer(name: str, keras: Any) -> Any:
    """Returns a new optimizer.

    Args:
        name: One of ``OPTIMIZERS``.
        keras: Keras 3 or ``tf_keras``.
    """
    class_name, arguments = _ARGUMENTS[name]
    return getattr(keras.optimizers, class_name)(**arguments)
