"""Export formats: one file each, found by discovery.

A format module holds an options dataclass and ``SPEC = FormatSpec(...)``. Its heavy imports stay
inside its functions, so that the list of formats costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from mpexport import dtypes
from mpexport.errors import UsageError
from mpexport.findings import Change
from mpexport.plugins import did_you_mean, discover
from mpexport.signature import Signature, TensorSpec

if TYPE_CHECKING:
    from mpexport.tf.normalized import NormalizedModel


@dataclass(frozen=True)
class Conversion:
    """What a format's ``convert`` says about the file it wrote.

    Attributes:
        signatures: As promised for the file.
        precision: ``float32``; ``float16-weights`` when weights are stored in float16, and
            ``float16`` when ops compute in it.
        notes: What the user should know.
        changes: Changes beyond those of normalization.
    """

    signatures: tuple[Signature, ...]
    precision: str = "float32"
    notes: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "signatures": [s.to_json() for s in self.signatures],
            "precision": self.precision,
            "notes": list(self.notes),
            "changes": [c.to_json() for c in self.changes],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Conversion:
        """The inverse of `to_json`."""
        return cls(
            tuple(Signature.from_json(s) for s in data["signatures"]),
            data["precision"],
            tuple(data["notes"]),
            tuple(Change.from_json(c) for c in data["changes"]),
        )


@dataclass(frozen=True)
class Contract:
    """What a written file really holds, read back from disk.

    Attributes:
        violations: One line per broken promise; empty when the contract holds.
        ops: Op name → count.
        facts: Further facts: schema or opset version, minimum runtime, parameter bytes.
    """

    violations: tuple[str, ...]
    ops: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**asdict(self), "violations": list(self.violations)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Contract:
        """The inverse of `to_json`."""
        return cls(tuple(data["violations"]), data["ops"], data["facts"])


@dataclass(frozen=True)
class FormatSpec:
    """One export format.

    Attributes:
        name: As in ``--formats`` and as a subcommand.
        title: One line for help texts.
        suffix: File suffix, or directory name ending.
        is_directory: Whether the artifact is a directory.
        options: Options dataclass; every field has a default.
        sniff: Whether a path holds this format, told from its content.
        modules: Top-level modules ``convert`` needs.
        extra: The extra that brings them.
        convert: Writes the file. Runs in a worker.
        check: Reads the written file back and holds it against the promise. Runs in a worker.
        variants: Further names in ``--formats`` → option values, for example ``tflite-float16``.
        aliases: Further names of the subcommand.
    """

    name: str
    title: str
    suffix: str
    is_directory: bool
    options: type[Any]
    sniff: Callable[[Path], bool]
    modules: tuple[str, ...]
    extra: str
    convert: Callable[[NormalizedModel, Path, Any], Conversion]
    check: Callable[[Path, Conversion, Any], Contract]
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()


def side_violations(
    side: str, promised: Iterable[TensorSpec], written: Mapping[str, str], *, may_lack: bool = False
) -> list[str]:
    """What is wrong with the inputs (or outputs) that a written file has.

    Args:
        side: ``input`` or ``output``, for the text.
        promised: As the signature promises them.
        written: Name → dtype name, as read back.
        may_lack: Whether some may be missing (an input that nothing depends on).
    """
    specs = list(promised)
    names = {s.name for s in specs}
    if not set(written) <= names or (not may_lack and set(written) != names):
        return [f"{side}s are {sorted(written)}, not {sorted(names)}"]
    return [
        f"{side} {s.name} is {dtypes.canonical(written[s.name])}, not {s.dtype}"
        for s in specs
        if s.name in written and dtypes.canonical(written[s.name]) != s.dtype
    ]


@lru_cache(maxsize=1)
def all_formats() -> dict[str, FormatSpec]:
    """All formats by name."""
    return discover("mpexport.formats", "SPEC")


def get(name: str) -> FormatSpec:
    """A format by name.

    Raises:
        UsageError: There is none of that name.
    """
    try:
        return all_formats()[name]
    except KeyError:
        raise UsageError(
            f"there is no format {name!r}", hint=did_you_mean(name, all_formats())
        ) from None


def resolve(name: str) -> tuple[FormatSpec, dict[str, Any]]:
    """A name in ``--formats`` (a format or one of its variants) → format and option values."""
    for spec in all_formats().values():
        if name == spec.name:
            return spec, {}
        if name in spec.variants:
            return spec, dict(spec.variants[name])
    known = [n for s in all_formats().values() for n in (s.name, *s.variants)]
    raise UsageError(f"there is no format {name!r}", hint=did_you_mean(name, known))


def detect(path: Path) -> FormatSpec | None:
    """The format of an existing file or directory by content; None when it is none of ours."""
    for spec in all_formats().values():
        if spec.sniff(path):
            return spec
    return None


def head(path: Path, count: int) -> bytes:
    """The first bytes of a file; empty for a directory or an unreadable file."""
    try:
        with path.open("rb") as f:
            return f.read(count)
    except OSError:
        return b""
