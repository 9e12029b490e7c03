"""The result of timing one file, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpexport.latency.environment import HostEnvironment
from mpexport.latency.summary import LatencySummary


@dataclass(frozen=True)
class LatencyReport:
    """How long one file takes in one runtime on one machine.

    Attributes:
        file: Path of the file or directory.
        format: Name of its format.
        size_bytes: Of the file, or of all files in the directory.
        runtime: See `mpexport.runtimes.Session.environment`.
        load_ms: Opening the file, in a process that has not opened it before. Not the runtime's
            import; what a runtime puts off until the first call counts there.
        first_inference_ms: The first call.
        summary: The steady state.
        num_threads: Threads asked for.
        input_shapes: Sizes by input name.
        environment: The machine.
    """

    file: str
    format: str
    size_bytes: int
    runtime: dict[str, Any]
    load_ms: float
    first_inference_ms: float
    summary: LatencySummary
    num_threads: int
    input_shapes: dict[str, tuple[int, ...]]
    environment: HostEnvironment

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "file": self.file,
            "format": self.format,
            "size_bytes": self.size_bytes,
            "runtime": self.runtime,
            "load_ms": self.load_ms,
            "first_inference_ms": self.first_inference_ms,
            "summary": self.summary.to_json(),
            "num_threads": self.num_threads,
            "input_shapes": {name: list(shape) for name, shape in self.input_shapes.items()},
            "environment": self.environment.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> LatencyReport:
        """The inverse of `to_json`."""
        return cls(
            file=data["file"],
            format=data["format"],
            size_bytes=data["size_bytes"],
            runtime=data["runtime"],
            load_ms=data["load_ms"],
            first_inference_ms=data["first_inference_ms"],
            summary=LatencySummary.from_json(data["summary"]),
            num_threads=data["num_threads"],
            input_shapes={name: tuple(shape) for name, shape in data["input_shapes"].items()},
            environment=HostEnvironment.from_json(data["environment"]),
        )
