"""What all runtimes share: checking the path, checking inputs, wording of foreign errors."""

from __future__ import annotations

import abc
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mpexport import dtypes, plugins, tensors
from mpexport.errors import ConversionError, InputError, MpExportError, UsageError
from mpexport.signature import Signature, TensorSpec
from mpexport.tensors import Array, TensorSet

_MAX_CAUSE = 300
_OUT_OF_BOUNDS = re.compile(r"out of (data )?bounds?|is not in \[")


class BaseSession(abc.ABC):
    """Implements `mpexport.runtimes.Session` over one runtime's `invoke`."""

    name: str
    version: str
    signature: Signature

    def prepare(self, inputs: Mapping[str, Array]) -> TensorSet:
        """Checks names, shapes and kinds, and casts to the declared types.

        Raises:
            UsageError: An input is missing, unknown, misshaped or mistyped.
        """
        specs = {s.name: s for s in self.signature.inputs}
        for name in inputs:
            if name not in specs:
                raise UsageError(
                    f"the model has no input {name!r}; {plugins.did_you_mean(name, specs)}"
                )
        missing = [name for name in specs if name not in inputs]
        if missing:
            raise UsageError("missing inputs: " + ", ".join(missing))
        return {name: tensors.fit(spec, inputs[name]) for name, spec in specs.items()}

    @abc.abstractmethod
    def invoke(self, prepared: TensorSet) -> TensorSet:
        """Runs what `prepare` returned."""

    def run(self, inputs: Mapping[str, Array]) -> TensorSet:
        """`prepare`, then `invoke`."""
        return self.invoke(self.prepare(inputs))

    @abc.abstractmethod
    def environment(self) -> dict[str, Any]:
        """Runtime, version, threads and what really computes, as JSON."""

    @abc.abstractmethod
    def close(self) -> None:
        """Frees the file."""


def check_file(path: Path) -> None:
    """Raises `InputError` when there is no such file or it is empty."""
    if not path.exists():
        raise InputError(f"{path}: no such file", where=str(path))
    if not path.is_file():
        raise InputError(f"{path}: not a file", where=str(path))
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty", where=str(path))


def damaged(path: Path, error: BaseException) -> InputError:
    """The error for a file that a runtime could not read."""
    return InputError(f"{path}: damaged, or no such model: {cause(error)}", where=str(path))


def lacks_op(runtime: str, version: str, path: Path, op: str) -> ConversionError:
    """The error for a file with an op that this runtime does not have."""
    return ConversionError(
        f"{path}: {runtime} {version} has no {op}", where=str(path), details={"op": op}
    )


def run_failed(runtime: str, path: Path, text: str) -> MpExportError:
    """The error for a call that failed inside the runtime although its inputs fit."""
    line = one_line(text)
    if _OUT_OF_BOUNDS.search(text):
        return UsageError(
            f"{path}: an index input is out of range: {line}",
            hint="give its range with --input-range NAME:LO..HI",
            where=str(path),
        )
    return ConversionError(f"{path}: {runtime} cannot run it: {line}", where=str(path))


def cause(error: BaseException) -> str:
    """One short line that says what a foreign exception says."""
    return one_line(str(error)) or type(error).__name__


def one_line(text: str) -> str:
    """Text on one line of at most 300 characters."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CAUSE else line[: _MAX_CAUSE - 1] + "…"


def unique_specs(path: Path, what: str, specs: list[TensorSpec]) -> tuple[TensorSpec, ...]:
    """The specs, after checking that each can be told from the others and holds known elements.

    Raises:
        InputError: Two share a name, so they could only be told apart by position.
        ConversionError: An element type that is not known here.
    """
    seen: set[str] = set()
    for spec in specs:
        if spec.name in seen:
            raise InputError(f"{path}: two {what}s are named {spec.name!r}", where=str(path))
        seen.add(spec.name)
        try:
            dtypes.get(spec.dtype)
        except KeyError as e:
            raise ConversionError(
                f"{path}: {what} {spec.name!r} has element type {spec.dtype}", where=str(path)
            ) from e
    return tuple(specs)


def select_signature(path: Path, names: list[str], wanted: str | None) -> str:
    """The signature to run: the one asked for, else ``serving_default``, else the only one.

    Raises:
        UsageError: The one asked for is absent, or there are several and none is the default.
        InputError: There is none.
    """
    if not names:
        raise InputError(f"{path}: has no signature", where=str(path))
    if wanted is not None:
        if wanted not in names:
            raise UsageError(
                f"{path}: no signature {wanted!r}; {plugins.did_you_mean(wanted, names)}"
            )
        return wanted
    if "serving_default" in names:
        return "serving_default"
    if len(names) > 1:
        raise UsageError(
            f"{path}: several signatures: {', '.join(sorted(names))}",
            hint="name one with --signature",
        )
    return names[0]


def text_to_bytes(array: Any) -> Array:
    """An output as a numpy array; strings of any kind become ``bytes``."""
    out = np.asarray(array)
    return tensors.as_bytes(out) if out.dtype.kind in "SUO" else out
