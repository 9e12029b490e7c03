"""A runtime as a user names it: which one, how it is set, and in which Python it lives."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from mpexport import plugins
from mpexport.errors import InputError, UsageError
from mpexport.runtimes import get

_PYTHON = "python"
_HINT = "write NAME or NAME:KEY=VALUE,…, for example litert:xnnpack=off"


@dataclass(frozen=True)
class RuntimeChoice:
    """One runtime of ``--runtime``.

    Attributes:
        name: The runtime's name.
        settings: Key → value, see `mpexport.runtimes.RuntimeSpec.settings`.
        python: Interpreter of the environment it is installed in; None for this one.
    """

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    python: Optional[str] = None

    @property
    def formats(self) -> tuple[str, ...]:
        """Names of the formats it runs."""
        return get(self.name).formats

    def __str__(self) -> str:
        """Name and settings, without the place of the Python."""
        settings = ",".join(f"{key}={value}" for key, value in sorted(self.settings.items()))
        return f"{self.name}:{settings}" if settings else self.name


def parse_choice(text: str) -> RuntimeChoice:
    """Reads ``NAME[:KEY=VALUE[,KEY=VALUE]]``.

    >>> parse_choice("onnxruntime:optimization=basic").settings
    {'optimization': 'basic'}

    Raises:
        UsageError: No such runtime, or a setting or value that it doesn't have.
        InputError: The Python that it names isn't there.
    """
    name, _, rest = text.partition(":")
    spec = get(name.strip())
    settings: dict[str, str] = {}
    python = None
    for part in rest.split(",") if rest else []:
        key, equals, value = part.partition("=")
        if not equals or key in settings or (key == _PYTHON and python is not None):
            raise UsageError(f"--runtime {text}: {part!r} is no setting", hint=_HINT)
        if key == _PYTHON:
            python = _python(text, value)
            continue
        known = [_PYTHON, *spec.settings]
        if key not in spec.settings:
            raise UsageError(
                f"--runtime {text}: {spec.name} has no setting {key!r}; "
                f"{plugins.did_you_mean(key, known)}"
            )
        if value not in spec.settings[key]:
            raise UsageError(
                f"--runtime {text}: {key} is one of {', '.join(spec.settings[key])}, not {value!r}"
            )
        settings[key] = value
    return RuntimeChoice(spec.name, settings, python)


def _python(text: str, value: str) -> str:
    found = shutil.which(os.path.expanduser(value))
    if found is None:
        raise InputError(
            f"--runtime {text}: {value}: no such program",
            hint="name the python of the environment, for example venv/bin/python",
            where=value,
        )
    return os.path.abspath(found)
