"""What a command hands to `main` to be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mpexport.errors import MpExportError
from mpexport.render.layout import Block


@dataclass(frozen=True)
class Outcome:
    """The result of a command that ran to its end.

    Attributes:
        result: The ``result`` member of the JSON envelope.
        blocks: The same for people.
        warnings: The ``warnings`` member: mappings of ``code``, ``message`` and ``where``.
        error: A verdict other than good; it decides the exit code.
        document: What reports are made of, where that isn't the envelope of this command.
    """

    result: Mapping[str, Any]
    blocks: Sequence[Block]
    warnings: Sequence[Mapping[str, str]] = ()
    error: MpExportError | None = None
    document: Mapping[str, Any] | None = None


def warn(code: str, message: str, where: str) -> dict[str, str]:
    """One member of the envelope's ``warnings``."""
    return {"code": code, "message": message, "where": where}
