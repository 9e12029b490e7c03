"""What a source model is, told from its content and not from its name. No framework is imported."""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Optional

from mpexport.errors import InputError

_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_CONFIG_LIMIT_BYTES = 64 * 2**20


@dataclass(frozen=True)
class SourceOptions:
    """A source model and how the user wants it read.

    Attributes:
        path: SavedModel directory, ``.keras`` or ``.h5`` file.
        signature: Signature key or endpoint name; None when there is nothing to choose.
        tag: Comma-separated tag set of the MetaGraph; None when there is only one.
        allow_code: Whether Python that the model's author put into the file may run.
        imports: Python modules to import first; they register custom classes.
    """

    path: str
    signature: Optional[str] = None
    tag: Optional[str] = None
    allow_code: bool = False
    imports: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**asdict(self), "imports": list(self.imports)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SourceOptions:
        """The inverse of `to_json`."""
        return cls(**{**data, "imports": tuple(data["imports"])})


@dataclass(frozen=True)
class SourceKind:
    """What was recognized.

    Attributes:
        name: ``savedmodel``, ``keras`` (a ``.keras`` archive) or ``h5``.
        keras_version: Version of Keras that wrote a ``.keras`` file; empty when unknown.
        config: The model's config of a ``.keras`` file; None for other kinds.
    """

    name: str
    keras_version: str = ""
    config: Optional[dict[str, Any]] = None

    @property
    def is_legacy_keras(self) -> bool:
        """Whether tf-keras (Keras 2) must load it."""
        return self.keras_version.startswith(("1.", "2."))


def sniff(path: str) -> SourceKind:
    """Recognizes a source model by content.

    Raises:
        InputError: Missing, empty, damaged, or no model.
    """
    place = Path(path)
    try:
        if place.is_dir():
            return _sniff_directory(place)
        if not place.exists():
            raise InputError(f"{path}: no such file or directory", where=path)
        with place.open("rb") as f:
            head = f.read(8)
    except OSError as e:
        raise InputError(f"{path}: cannot be read: {e.strerror or e}", where=path) from e
    if not head:
        raise InputError(f"{path}: the file is empty", where=path)
    if head == _HDF5_MAGIC:
        return SourceKind("h5")
    if head[:4] == b"PK\x03\x04":
        return _sniff_keras(place)
    if head[4:8] == b"TFL3":
        raise InputError(
            f"{path}: is a TFLite file, not a source model",
            hint="give the model it was made from; exported files go to parity and bench",
            where=path,
        )
    hint = "expected a SavedModel directory, a .keras file or an .h5 file"
    if place.name == "saved_model.pb":
        hint = f"give the directory: {place.parent}"
    raise InputError(f"{path}: is no model that can be read here", hint=hint, where=path)


def _sniff_directory(place: Path) -> SourceKind:
    graph = place / "saved_model.pb"
    if not graph.exists():
        raise InputError(
            f"{place}: is a directory, but no SavedModel: it has no saved_model.pb",
            hint="expected a SavedModel directory, a .keras file or an .h5 file",
            where=str(place),
        )
    if graph.stat().st_size == 0:
        raise InputError(f"{graph}: the file is empty", where=str(graph))
    variables = place / "variables"
    if variables.is_dir():
        index = variables / "variables.index"
        shards = list(variables.glob("variables.data-*"))
        if index.exists() != bool(shards):
            missing = index if shards else variables / "variables.data-00000-of-00001"
            raise InputError(f"{missing}: is missing", where=str(missing))
    return SourceKind("savedmodel")


def _member(archive: zipfile.ZipFile, path: Path, name: str) -> Any:
    try:
        info = archive.getinfo(name)
    except KeyError as e:
        raise InputError(
            f"{path}: is an archive, but no Keras model: it has no {name}", where=str(path)
        ) from e
    if info.file_size > _CONFIG_LIMIT_BYTES:
        raise InputError(f"{path}: {name} is larger than any model's", where=str(path))
    try:
        return json.loads(archive.read(info))
    except (ValueError, RecursionError, zipfile.BadZipFile) as e:
        raise InputError(f"{path}: {name} is damaged: {e}", where=str(path)) from e


def _sniff_keras(path: Path) -> SourceKind:
    try:
        with zipfile.ZipFile(path) as archive:
            metadata = _member(archive, path, "metadata.json")
            config = _member(archive, path, "config.json")
            weights = any(n.endswith(".weights.h5") for n in archive.namelist())
    except (zipfile.BadZipFile, EOFError, OSError) as e:
        raise InputError(
            f"{path}: the archive is damaged or cut off ({e})",
            hint="copy the file again",
            where=str(path),
        ) from e
    if not isinstance(config, dict) or not isinstance(metadata, dict) or not weights:
        raise InputError(f"{path}: the Keras archive is incomplete", where=str(path))
    return SourceKind("keras", str(metadata.get("keras_version", "")), config)
