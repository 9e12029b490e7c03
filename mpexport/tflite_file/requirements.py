"""The oldest runtime that runs a TFLite file, and why an older one does not."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

from mpexport.errors import UsageError
from mpexport.tflite_file.op_versions import CUSTOM, op_name, since
from mpexport.tflite_file.reader import Operator, Subgraph, TfliteFile, open_tflite

# What a version does not tell: the most axes an op took up to this release, from runs of each op
# with 5 to 8 axes in it and in today's runtime. Later releases before today's were not tried.
_LIMITS_HOLD_IN = (2, 14, 9)
_MOST_AXES = {"L2_NORMALIZATION": 4, "SLICE": 5, "STRIDED_SLICE": 5}
# Beyond these the process is aborted, and only where the two sides have to be broadcast.
_MOST_AXES_TO_BROADCAST = {"LOGICAL_AND": 4, "LOGICAL_OR": 4}


def release(text: str) -> tuple[int, ...]:
    """``2.14`` → ``(2, 14, 0)``.

    Raises:
        UsageError: Another form.
    """
    parts = text.split(".")
    if not 2 <= len(parts) <= 3 or not all(p.isdigit() for p in parts):
        raise UsageError(f"{text!r} is no runtime version", hint="write it as 2.14 or 2.14.0")
    return tuple(int(p) for p in [*parts, "0"][:3])


def minimum_runtime(ops: Iterable[tuple[int, int]]) -> str:
    """The oldest release that has all of these ``(op code, version)``.

    What is not in the table is passed over; empty when nothing is in it.
    """
    found = [text for text in (since(*op) for op in ops) if text is not None]
    return max(found, key=release, default="")


@dataclass(frozen=True)
class Reason:
    """Why a runtime does not run a file.

    Attributes:
        op: Name of the op.
        version: Its version in the file.
        needs: The first release that would do; empty when none is known.
        tensor: The tensor it gives, whose name tells the layer.
        detail: What about it is not supported, when it isn't the version.
    """

    op: str
    version: int
    needs: str
    tensor: str
    detail: str = ""

    @property
    def way_out(self) -> str:
        """What the user can do."""
        newer = f"use TFLite {self.needs} or later, " if self.needs else ""
        return (
            f"{newer}fix the shapes of the inputs (--batch, --input-shape), replace the layer, "
            "or use onnx"
        )

    def __str__(self) -> str:
        what = self.detail or f"version {self.version}"
        place = f" ({self.tensor})" if self.tensor else ""
        unknown = "" if self.detail else ": no release is known to run it"
        return f"{self.op} {what}{place}" + (f": needs {self.needs}" if self.needs else unknown)


def reasons(file: TfliteFile, runtime: str) -> list[Reason]:
    """Every operator that a runtime does not run, the first of its kind each."""
    have = release(runtime)
    found: dict[tuple[str, int, str], Reason] = {}
    for graph in file.subgraphs:
        for op in graph.operators:
            reason = _by_version(op, graph, have) or _by_limit(op, graph, have)
            if reason is not None:
                found.setdefault((reason.op, reason.version, reason.detail), reason)
    return list(found.values())


def runs_on(path: Union[str, os.PathLike[str]], runtime: str) -> list[str]:
    """Why a runtime (``2.14``) does not run a TFLite file; empty when it does."""
    with open_tflite(Path(path)) as file:
        return [str(r) for r in reasons(file, runtime)]


def _tensor_name(op: Operator, graph: Subgraph) -> str:
    return graph.tensors[op.outputs[0]].name if op.outputs else ""


def _by_version(op: Operator, graph: Subgraph, have: tuple[int, ...]) -> Optional[Reason]:
    if op_name(op.op.code) == CUSTOM:
        return Reason(op.op.name, op.op.version, "", _tensor_name(op, graph), "is a custom op")
    needs = since(op.op.code, op.op.version)
    if needs is not None and release(needs) <= have:
        return None
    return Reason(op.op.name, op.op.version, needs or "", _tensor_name(op, graph))


def _by_limit(op: Operator, graph: Subgraph, have: tuple[int, ...]) -> Optional[Reason]:
    if have > _LIMITS_HOLD_IN:
        return None
    sizes = [graph.tensors[i].shape for i in op.inputs if i >= 0]
    name, rank = op.op.name, max((len(s) for s in sizes), default=0)
    most = _MOST_AXES.get(name)
    if name in _MOST_AXES_TO_BROADCAST and len(set(sizes)) > 1:
        most = _MOST_AXES_TO_BROADCAST[name]
    if most is None or rank <= most:
        return None
    text = f"of {rank} axes, where {_LIMITS_HOLD_IN[0]}.{_LIMITS_HOLD_IN[1]} takes {most} at most"
    return Reason(name, op.op.version, "", _tensor_name(op, graph), text)
