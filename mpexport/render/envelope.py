"""The JSON document that every command prints with ``--json``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mpexport import __version__
from mpexport.errors import (
    InconclusiveError,
    MpExportError,
    PrecisionError,
    VerificationError,
)

SCHEMA_VERSION = "1.0"
SCHEMA_FILE = Path(__file__).with_name("envelope.schema.json")

# These say that the work was done and what came of it is not good; all others, that it wasn't done.
_VERDICTS = (InconclusiveError, PrecisionError, VerificationError)


def build(
    command: str,
    *,
    result: Mapping[str, Any] | None = None,
    warnings: Sequence[Mapping[str, str]] = (),
    error: MpExportError | None = None,
) -> dict[str, Any]:
    """The envelope of one command.

    Args:
        command: Name of the subcommand; empty when there is none of the name given.
        result: What the command found; None when it failed before.
        warnings: Mappings of ``code``, ``message`` and ``where``.
        error: Why the exit code isn't 0.
    """
    status = "ok" if error is None else "failed" if isinstance(error, _VERDICTS) else "error"
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "mpexport", "version": __version__},
        "command": command,
        "status": status,
        "result": result,
        "warnings": list(warnings),
        "error": None if error is None else error.to_json(),
    }


def to_text(document: Mapping[str, Any]) -> str:
    """JSON with sorted keys, in ASCII; NaN and infinities become strings."""
    text = json.dumps(_plain(document), indent=2, sort_keys=True, allow_nan=False)
    # Inside of strings only. GitHub Actions takes it for a command wherever it stands in a log.
    return text.replace("##[", "##\\u005b") + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def schema() -> dict[str, Any]:
    """The published JSON Schema of the envelope."""
    loaded: dict[str, Any] = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    return loaded
