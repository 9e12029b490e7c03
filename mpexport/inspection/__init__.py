"""What an exported file holds, read from its bytes: no framework and no runtime is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mpexport.artifacts import sha256_of
from mpexport.errors import InputError, UsageError
from mpexport.signature import Signature


@dataclass(frozen=True)
class OpCount:
    """How often an op of one version occurs in a file."""

    name: str
    version: int
    count: int


@dataclass(frozen=True)
class FileReport:
    """What a file holds.

    Attributes:
        file: Its path.
        format: ``tflite`` or ``onnx``.
        size_bytes: Of the file.
        sha256: Of the file.
        precision: ``float32``; ``float16-weights`` when weights are stored in float16, ``float16``
            when ops compute in it, ``quantized`` when weights are integers with a scale.
        signatures: With inputs and outputs.
        ops: Sorted by name and version.
        weight_bytes: Element type → bytes of the constants.
        requirements: What a runtime must offer: ``min_runtime_version`` of a TFLite file;
            ``opset`` (domain → version) and ``ir_version`` of an ONNX file.
        reduced_precision: What a TFLite file lets accelerators compute in; empty when it is silent.
        metadata: Name → text, or size of what is no text.
        external_data: Names of the files that hold weights of an ONNX file, beside it.
    """

    file: str
    format: str
    size_bytes: int
    sha256: str
    precision: str
    signatures: tuple[Signature, ...]
    ops: tuple[OpCount, ...]
    weight_bytes: Mapping[str, int]
    requirements: Mapping[str, Any]
    reduced_precision: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    external_data: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            **asdict(self),
            "signatures": [s.to_json() for s in self.signatures],
            "ops": [asdict(op) for op in self.ops],
            "external_data": list(self.external_data),
        }


def counted(ops: Mapping[tuple[str, int], int]) -> tuple[OpCount, ...]:
    """A histogram as rows in a stable order."""
    return tuple(OpCount(*key, count) for key, count in sorted(ops.items()))


def shown(name: str, value: bytes) -> str:
    """Metadata as text; its size where it is none."""
    text = value.rstrip(b"\0").decode("utf-8", errors="replace")
    return text if text.isprintable() else f"{len(value)} bytes"


def inspect_file(path: Path, format: str) -> FileReport:
    """Reads a file of a known format.

    Raises:
        InputError: Damaged.
        UsageError: A format whose files are not looked into.
    """
    if format not in ("tflite", "onnx"):
        raise UsageError(
            f"{path}: a {format} is not looked into",
            hint="name a TFLite or ONNX file; check tells of models and SavedModels",
        )
    try:
        size_bytes, sha256 = path.stat().st_size, sha256_of(path)
    except OSError as e:
        raise InputError(f"{path}: {e.strerror}", where=str(path)) from e
    if format == "tflite":
        from mpexport.inspection.tflite import read
    else:
        from mpexport.inspection.onnx import read
    return FileReport(str(path), format, size_bytes, sha256, **read(path))
