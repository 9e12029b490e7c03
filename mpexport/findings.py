"""What the precision check finds and what the passes change: plain records, no framework."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass
from typing import Any


class Severity(str, enum.Enum):
    """How much a finding matters. Only ``ERROR`` makes ``mpexport check`` fail."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Verdict(str, enum.Enum):
    """The answer of a comparison; no bool, so that 'not checked' can't look like 'fine'."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    SKIPPED = "SKIPPED"


@dataclass(frozen=True)
class Finding:
    """One result of a check rule.

    Attributes:
        rule: Stable id of the rule.
        severity: See `Severity`.
        where: Function and node, layer path, or input/output name.
        message: One line.
        hint: What to do about it.
    """

    rule: str
    severity: Severity
    where: str
    message: str
    hint: str = ""

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**asdict(self), "severity": self.severity.value}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Finding:
        """The inverse of `to_json`."""
        return cls(**{**data, "severity": Severity(data["severity"])})


@dataclass(frozen=True)
class Change:
    """One thing a pass changed, so that nothing is silent.

    Attributes:
        pass_name: The pass.
        kind: Short stable word, for example ``cast-removed``.
        where: ``function/node``.
        detail: Before and after.
    """

    pass_name: str
    kind: str
    where: str
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Change:
        """The inverse of `to_json`."""
        return cls(**data)
