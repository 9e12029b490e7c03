"""What a comparison must hold: the gate file, and the options that stand for parts of it."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mpexport.errors import InputError, UsageError

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


def read_gate(
    path: Path | None,
    rtol: Iterable[str],
    atol: Iterable[str],
    max_accuracy_drop: str | None,
    labeled: str | None,
) -> Gate:
    """The gate file with the options in place of what it says.

    Args:
        path: The file, if there is one.
        rtol: ``X`` or ``NAME:X``.
        atol: Likewise; takes the place of the scaled tolerance.
        max_accuracy_drop: ``0.002`` or ``0.2%``.
        labeled: The output that the drop is of; None means the only one with labels.

    Raises:
        UsageError: A number is none, or given twice.
    """
    from mpexport.parity.gate import Gate

    gate = load(path) if path is not None else Gate()
    for part, texts in (("rtol", rtol), ("atol", atol)):
        seen = set()
        for text in texts:
            name, value = _named_number(part, text)
            if name in seen:
                raise UsageError(f"--{part} {text}: given before")
            seen.add(name)
            gate = gate.with_tolerance(name, part, value)
    if max_accuracy_drop is not None:
        gate = replace(gate, max_accuracy_drop=_share(max_accuracy_drop), labeled=labeled)
    return gate


def labels_of(text: str | None) -> tuple[str | None, str | None]:
    """File and output of ``--labels``; a file of that whole name comes before ``NAME:FILE``."""
    if text is None or Path(text).is_file() or ":" not in text:
        return text, None
    name, _, place = text.rpartition(":")
    return place, name


def _named_number(option: str, text: str) -> tuple[str, float]:
    name, _, number = text.rpartition(":")
    return name, _number(f"--{option} {text}", number)


def _share(text: str) -> float:
    percent = text.endswith("%")
    value = _number(f"--max-accuracy-drop {text}", text.removesuffix("%"))
    return value / 100 if percent else value


def _number(what: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise UsageError(f"{what}: need a finite number of at least 0")
    return value
