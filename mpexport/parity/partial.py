"""One shard of a comparison: what it has seen, to be stored, sent and merged.

A comparison is cut by the numbers of its cases: shard i of n takes those with number = i - 1 modulo
n. What the shards have seen merges exactly, so that the report is the one that a single run gives,
to the last byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mpexport.errors import InconclusiveError, InputError, UsageError
from mpexport.parity.gate import Gate, judged
from mpexport.parity.inputs import digest
from mpexport.parity.report import ParityReport
from mpexport.parity.verdict import FileVerdict

_SHARD = re.compile(r"(\d+)/(\d+)")


@dataclass(frozen=True)
class Shard:
    """Which part of how many, from 1."""

    index: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        """Raises `UsageError` unless 1 <= index <= count."""
        if not 1 <= self.index <= self.count:
            raise UsageError(f"shard {self.index}/{self.count}: count from 1/{self.count}")

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Reads ``2/8``.

        Raises:
            UsageError: Not of that form.
        """
        match = _SHARD.fullmatch(text)
        if match is None:
            raise UsageError(f"{text!r} is no shard", hint="write --shard 2/8")
        return cls(int(match[1]), int(match[2]))

    def takes(self, number: int) -> bool:
        """Whether a case is in this part."""
        return number % self.count == self.index - 1

    def __str__(self) -> str:
        """``2/8``."""
        return f"{self.index}/{self.count}"


@dataclass(frozen=True)
class Partial:
    """One candidate in one shard.

    Attributes:
        reference: As in `ParityReport`; likewise ``candidate``, ``environment``, ``seed`` and
            ``notes``.
        gate: What the candidate must hold.
        shard: Which part this is.
        verdict: What has been seen, see `FileVerdict.to_json`.
        samples: Samples run.
        digests: Number of the case → its digest.
        cases: Number of the case → its name, for made-up inputs.
        left_out: Number of a case that wasn't run → why, for people.
        run_to_run: See `ParityReport`.
        artifact: See `ParityReport`.
    """

    reference: str
    candidate: str
    environment: Mapping[str, Any]
    seed: int
    notes: tuple[str, ...]
    gate: Gate
    shard: Shard
    verdict: Mapping[str, Any]
    samples: int
    digests: Mapping[int, str]
    cases: Mapping[int, str] = field(default_factory=dict)
    left_out: Mapping[int, str] = field(default_factory=dict)
    run_to_run: Mapping[str, float] = field(default_factory=dict)
    artifact: Mapping[str, Any] = field(default_factory=dict)

    def report(self) -> ParityReport:
        """What it shows by itself."""
        report = ParityReport(
            reference=self.reference,
            candidate=self.candidate,
            environment=dict(self.environment),
            rows=FileVerdict.from_json(self.verdict).rows(),
            seed=self.seed,
            num_samples=self.samples,
            inputs_sha256=digest(self.digests[n] for n in sorted(self.digests)),
            notes=(*self.notes, *(self.left_out[n] for n in sorted(self.left_out))),
            cases={n: self.cases[n] for n in sorted(self.cases)},
            run_to_run=dict(self.run_to_run),
            artifact=dict(self.artifact),
        )
        return judged(self.gate, report)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "reference": self.reference,
            "candidate": self.candidate,
            "environment": dict(self.environment),
            "seed": self.seed,
            "notes": list(self.notes),
            "gate": self.gate.to_json(),
            "shard": str(self.shard),
            "verdict": dict(self.verdict),
            "samples": self.samples,
            "digests": {str(n): sha for n, sha in self.digests.items()},
            "cases": {str(n): name for n, name in self.cases.items()},
            "left_out": {str(n): why for n, why in self.left_out.items()},
            "run_to_run": dict(self.run_to_run),
            "artifact": dict(self.artifact),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Partial:
        """The inverse of `to_json`."""
        return cls(
            **{
                **data,
                "notes": tuple(data["notes"]),
                "gate": Gate.from_json(data["gate"]),
                "shard": Shard.parse(data["shard"]),
                "digests": {int(n): sha for n, sha in data["digests"].items()},
                "cases": {int(n): name for n, name in data["cases"].items()},
                "left_out": {int(n): why for n, why in data["left_out"].items()},
                "run_to_run": {name: float(x) for name, x in data["run_to_run"].items()},
            }
        )


def load_parts(paths: Iterable[Path]) -> list[Partial]:
    """Reads documents of ``mpexport parity --shard … --json``.

    Raises:
        InputError: Missing, or no such document.
    """
    found: list[Partial] = []
    for path in paths:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            found += [Partial.from_json(part) for part in document["result"]["parts"]]
        except OSError as e:
            raise InputError(f"{path}: {e.strerror or e}", where=str(path)) from e
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise InputError(
                f"{path}: is no result of one shard",
                hint="make it with: mpexport parity … --shard I/N --json > FILE",
                where=str(path),
            ) from e
    return found


def merge_all(parts: Iterable[Partial]) -> list[Partial]:
    """Shards of several candidates, each merged; in the order in which candidates first appear.

    Raises:
        UsageError: See `merge`; or there are none.
        InconclusiveError: See `merge`.
    """
    groups: dict[str, list[Partial]] = {}
    for part in parts:
        groups.setdefault(part.candidate, []).append(part)
    if not groups:
        raise UsageError("nothing to merge: name the results of all shards")
    return [merge(group) for group in groups.values()]


def merge(shards: Iterable[Partial]) -> Partial:
    """All shards of one candidate as one.

    Raises:
        UsageError: They are not of one comparison, or a shard is given twice.
        InconclusiveError: A shard is missing.
    """
    parts = sorted(shards, key=lambda part: part.shard.index)
    first = parts[0]
    for part in parts[1:]:
        _check_alike(first, part)
    found = [part.shard.index for part in parts]
    twice = {i for i in found if found.count(i) > 1}
    if twice:
        raise UsageError(f"shard {min(twice)}/{first.shard.count} is given twice")
    missing = [str(i) for i in range(1, first.shard.count + 1) if i not in found]
    if missing:
        raise InconclusiveError(
            f"{first.candidate}: of {first.shard.count} shards, missing: {', '.join(missing)}",
            hint="run them, or run the missing ones again, and merge all",
            where=first.candidate,
        )
    whole = FileVerdict.from_json(first.verdict)
    notes = list(first.notes)
    for part in parts[1:]:
        whole.load_json(part.verdict)
        notes += [note for note in part.notes if note not in notes]
    if any(part.environment != first.environment for part in parts):
        notes.append("the shards ran in different environments; the first one's is shown")
    spread: dict[str, float] = {}
    for part in parts:
        for name, value in part.run_to_run.items():
            spread[name] = max(value, spread.get(name, 0.0))
    return replace(
        first,
        shard=Shard(),
        notes=tuple(notes),
        verdict=whole.to_json(),
        samples=sum(part.samples for part in parts),
        digests={n: sha for part in parts for n, sha in part.digests.items()},
        cases={n: name for part in parts for n, name in part.cases.items()},
        left_out={n: why for part in parts for n, why in part.left_out.items()},
        run_to_run=spread,
    )


def _check_alike(first: Partial, other: Partial) -> None:
    for what, one, two in (
        ("candidates", (first.candidate, first.artifact), (other.candidate, other.artifact)),
        ("references", first.reference, other.reference),
        ("gates", first.gate, other.gate),
        ("seeds", first.seed, other.seed),
        ("numbers of shards", first.shard.count, other.shard.count),
        (
            "options",
            [first.verdict[n] for n in ("precision", "tolerances", "is_emulated")],
            [other.verdict[n] for n in ("precision", "tolerances", "is_emulated")],
        ),
    ):
        if one != two:
            raise UsageError(f"the shards are not of one comparison: they have different {what}")
