"""Ship TensorFlow/Keras models trained in mixed precision; see the README."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# name → module; resolved on first use, so that importing mpexport costs nothing.
_PUBLIC: dict[str, str] = {
    "Artifact": "mpexport.artifacts",
    "ExportResult": "mpexport.results",
    "FileReport": "mpexport.inspection",
    "InputOptions": "mpexport.parity.cases",
    "LatencyReport": "mpexport.latency.report",
    "ModelHandle": "mpexport.results",
    "MpExportError": "mpexport.errors",
    "ParityReport": "mpexport.parity.report",
    "PrecisionReport": "mpexport.precision",
    "RunOptions": "mpexport.results",
    "Signature": "mpexport.signature",
    "TensorSpec": "mpexport.signature",
    "Tolerance": "mpexport.parity.tolerance",
    "Verdict": "mpexport.findings",
    "assert_parity": "mpexport.api",
    "check": "mpexport.api",
    "compare": "mpexport.api",
    "convert": "mpexport.api",
    "export": "mpexport.api",
    "inspect": "mpexport.api",
    "load": "mpexport.api",
    "measure": "mpexport.api",
    "normalize": "mpexport.api",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'mpexport' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
