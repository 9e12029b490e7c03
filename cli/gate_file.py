"""Reading the gate file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from mpexport.errors import InputError

if TYPE_CHECKING:
    from mpexport.parity.gate import Gate


def load(path: Path) -> Gate:
    """Reads a gate file.

    Raises:
        InputError: Missing, or no TOML.
        UsageError: See `mpexport.parity.gate.parse`.
    """
    from mpexport.parity.gate import parse

    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as e:
        raise InputError(f"{path}: {e.strerror or e}", where=str(path)) from e
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise InputError(f"{path}: no TOML: {e}", where=str(path)) from e
    return parse(data, str(path))
