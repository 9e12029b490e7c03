"""Why a file may hold other ops than its float32 twin's: the committed list, with reasons."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class HalfOnly:
    """A difference that is known and right.

    Attributes:
        cases: Pattern of the names of the cases that may have it.
        targets: Pattern of the targets.
        ops: The kinds of op whose number may differ; no others.
        reason: Why the file is right all the same.
    """

    cases: str
    targets: str
    ops: frozenset[str]
    reason: str


JUSTIFIED: tuple[HalfOnly, ...] = (
    HalfOnly(
        "*",
        "tflite",
        frozenset({"ADD", "GELU", "MUL", "POW", "TANH"}),
        "a GELU by tanh whose literals were rounded to 16 bits when the model was traced; the "
        "fused op has other ones",
    ),
    HalfOnly(
        "*",
        "tflite",
        frozenset({"L2_NORMALIZATION", "MAXIMUM", "MUL", "RSQRT", "SQUARE", "SUM"}),
        "a normalization whose epsilon was rounded to 16 bits when the model was traced; the fused "
        "op has another one",
    ),
)


def justification(case: str, target: str, more: Mapping[str, int]) -> str:
    """Why this file may differ from its twin's; empty where nothing explains it."""
    for known in JUSTIFIED:
        if (
            fnmatch.fnmatch(case, known.cases)
            and fnmatch.fnmatch(target, known.targets)
            and set(more) <= known.ops
        ):
            return known.reason
    return ""
