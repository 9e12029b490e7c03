"""Optional dependencies: import one, or say which extra mends its absence."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import Any

from mpexport.errors import MissingDependencyError


def missing(module: str, extra: str) -> MissingDependencyError:
    """The error for a module that is not installed."""
    return MissingDependencyError(
        f"{module} is not installed",
        hint=f"pip install 'mpexport[{extra}]'",
        where=module,
        details={"extra": extra},
    )


def is_installed(module: str) -> bool:
    """Whether a top-level module can be found, without importing it."""
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def require(module: str, extra: str) -> Any:
    """Imports an optional module.

    Raises:
        MissingDependencyError: It (or a part of it) is not installed; names the extra.
    """
    try:
        loaded: ModuleType = importlib.import_module(module)
    except ModuleNotFoundError as e:
        raise missing(e.name or module, extra) from e
    return loaded


def require_installed(modules: tuple[str, ...], extra: str) -> None:
    """Fails early, without importing anything heavy, when one of ``modules`` is absent.

    Raises:
        MissingDependencyError: Names the extra.
    """
    for module in modules:
        if not is_installed(module):
            raise missing(module, extra)
