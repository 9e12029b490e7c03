"""Discovery of plug-in files: a module in a package that holds one named constant.

Adding a member of a family (format, runtime, target, pass, rule) is adding one file; nothing else
lists it. A file that does not hold its constant, and two files with one name, are errors.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterable
from typing import Any

from mpexport.errors import MpExportError


def discover(package: str, constant: str) -> dict[str, Any]:
    """Imports every public module of ``package`` and collects its ``constant`` by ``.name``.

    Args:
        package: Dotted package name.
        constant: Attribute that each module must have, for example ``SPEC``.

    Returns:
        name → constant, sorted by name.

    Raises:
        MpExportError: A module lacks the constant, or a name stands twice.
    """
    home = importlib.import_module(package)
    found: dict[str, Any] = {}
    for info in sorted(pkgutil.iter_modules(home.__path__), key=lambda m: m.name):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{package}.{info.name}")
        member = getattr(module, constant, None)
        if member is None:
            raise MpExportError(f"{module.__name__} has no {constant}", where=module.__name__)
        if member.name in found:
            raise MpExportError(f"two modules of {package} are named {member.name!r}")
        found[member.name] = member
    return dict(sorted(found.items()))


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """`` did you mean 'x'?`` or the list of choices: the tail of an error message."""
    names = sorted(choices)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return "choose from: " + ", ".join(names)
