"""The runtimes that can run an exported file; one module each, found by its ``SPEC``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mpexport import optional, plugins
from mpexport.errors import MissingDependencyError, UsageError
from mpexport.signature import Signature
from mpexport.tensors import Array, TensorSet


@dataclass(frozen=True)
class RuntimeOptions:
    """How to open a file.

    Attributes:
        num_threads: Threads for the computation of one call.
        signature: Name of the signature to run; None means the default or the only one.
        settings: Setting → value, see `RuntimeSpec.settings`; the runtime's default otherwise.
    """

    num_threads: int = 1
    signature: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


class Session(Protocol):
    """An opened file. Inputs and outputs go by name, never by position.

    Attributes:
        name: The runtime's name.
        version: The runtime's version.
        signature: What the file takes and gives.
    """

    name: str
    version: str
    signature: Signature

    def prepare(self, inputs: Mapping[str, Array]) -> TensorSet:
        """Checks the inputs and casts them to the declared types, once for many `invoke` calls."""

    def invoke(self, prepared: TensorSet) -> TensorSet:
        """Runs prepared inputs; the outputs are copies that the next call does not change."""

    def run(self, inputs: Mapping[str, Array]) -> TensorSet:
        """`prepare`, then `invoke`."""

    def environment(self) -> dict[str, Any]:
        """Runtime, version, threads and what really computes, as JSON."""

    def close(self) -> None:
        """Frees the file."""


@dataclass(frozen=True)
class RuntimeSpec:
    """What a runtime module declares.

    Attributes:
        name: The runtime's name.
        formats: Names of the formats it runs.
        priority: The lowest that works is preferred for a format.
        modules: Top-level modules that must be installed.
        extra: The extra of mpexport that installs them.
        probe: Raises `MissingDependencyError` when the installed runtime does not work here.
        open: Opens a file.
        settings: What can be set, and the values it takes, the default first.
    """

    name: str
    formats: tuple[str, ...]
    priority: int
    modules: tuple[str, ...]
    extra: str
    probe: Callable[[], None]
    open: Callable[[Path, RuntimeOptions], Session]
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@functools.cache
def all() -> Mapping[str, RuntimeSpec]:  # noqa: A001 - read as runtimes.all()
    """Every runtime by name, installed or not."""
    return plugins.discover("mpexport.runtimes", "SPEC")


def get(name: str) -> RuntimeSpec:
    """A runtime by its name; dashes and underscores are alike.

    Raises:
        UsageError: There is no such runtime.
    """
    found = all().get(name.replace("-", "_"))
    if found is None:
        raise UsageError(f"no runtime {name!r}; {plugins.did_you_mean(name, all())}")
    return found


def for_format(format_name: str) -> RuntimeSpec:
    """The preferred runtime that is installed and works.

    Raises:
        UsageError: No runtime runs this format.
        MissingDependencyError: None of them works here; names the extra of the preferred one and
            why each fails.
    """
    return _first(format_name, lambda spec: spec.probe())


def require_any(format_name: str) -> None:
    """Fails early, without importing anything, when no runtime for the format is installed.

    Raises:
        UsageError: No runtime runs this format.
        MissingDependencyError: None is installed; names the extra of the preferred one.
    """
    _first(format_name, lambda spec: None)


def _first(format_name: str, works: Callable[[RuntimeSpec], None]) -> RuntimeSpec:
    candidates = sorted(
        (s for s in all().values() if format_name in s.formats), key=lambda s: s.priority
    )
    if not candidates:
        known = sorted({f for s in all().values() for f in s.formats})
        raise UsageError(
            f"no runtime runs {format_name!r}; {plugins.did_you_mean(format_name, known)}"
        )
    causes = []
    for spec in candidates:
        try:
            optional.require_installed(spec.modules, spec.extra)
            works(spec)
        except MissingDependencyError as e:
            causes.append(e.message)
        else:
            return spec
    preferred = candidates[0]
    several = f"no runtime for {format_name} works here: " + "; ".join(causes)
    raise MissingDependencyError(
        causes[0] if len(causes) == 1 else several,
        hint=f"pip install 'mpexport[{preferred.extra}]'",
        where=preferred.modules[0],
        details={"extra": preferred.extra},
    )


def run_in_chunks(session: Session, inputs: Mapping[str, Array]) -> TensorSet:
    """Runs a batch through a file whose batch size is fixed, in as many calls as it takes.

    Args:
        session: The opened file.
        inputs: Arrays by name, of leading size M.

    Returns:
        Outputs of leading size M, joined along axis 0. When the file's leading size is not fixed,
        or M is that size, this is one plain `Session.run`.

    Raises:
        UsageError: M is no multiple of the fixed size B, or an output does not lead with B.
    """
    fixed = {s.shape[0] if s.shape else None for s in session.signature.inputs if s.shape != ()}
    batched = {s.name for s in session.signature.inputs if s.shape != ()} & set(inputs)
    given = {np.shape(inputs[name])[:1] for name in batched}
    if len(fixed) != 1 or len(given) != 1:
        return session.run(inputs)
    size, leading = fixed.pop(), given.pop()
    if size is None or leading in ((), (size,)):
        return session.run(inputs)
    total = leading[0]
    if size == 0 or total == 0 or total % size:
        raise UsageError(f"the file's batch is fixed to {size}; {total} rows are no multiple of it")
    parts = []
    for start in range(0, total, size):
        rows = slice(start, start + size)
        outputs = session.run({n: a[rows] if n in batched else a for n, a in inputs.items()})
        for name, array in outputs.items():
            if array.shape[:1] != (size,):
                raise UsageError(
                    f"the file's batch is fixed to {size}, and output {name!r} has shape "
                    f"{list(array.shape)}: {total} rows cannot be run in parts",
                    hint=f"give inputs with exactly {size} rows",
                    where=name,
                )
        parts.append(outputs)
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
