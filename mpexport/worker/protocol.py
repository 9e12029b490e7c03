"""The messages between parent and child: one JSON object per line.

Parent → child: ``{"version": 1, "job": NAME, "args": {...}}``.
Child → parent: any number of ``{"progress": TEXT}``, then ``{"result": {...}}`` or
``{"error": {...}}``, the error as in the JSON envelope of the command line.
"""

from __future__ import annotations

import json
from typing import Any

from mpexport.errors import MpExportError

VERSION = 1
Message = dict[str, Any]


def encode(message: Message) -> bytes:
    """One message as a line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """A line as a message.

    Raises:
        MpExportError: It is none.
    """
    try:
        message = json.loads(line)
    except ValueError as e:
        raise MpExportError(f"not a message of the worker protocol: {line[:80]!r}") from e
    if not isinstance(message, dict):
        raise MpExportError(f"not a message of the worker protocol: {line[:80]!r}")
    return message


def request(job: str, args: Message) -> Message:
    """A request message."""
    return {"version": VERSION, "job": job, "args": args}
