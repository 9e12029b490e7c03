"""The answer of a comparison, as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from mpexport.findings import Verdict
from mpexport.parity.row import TensorComparison


@dataclass(frozen=True)
class Missed:
    """A limit of the gate that isn't held.

    Attributes:
        verdict: FAIL, or INCONCLUSIVE where there is nothing to hold against it.
        where: Output or format.
        limit: Its key in the gate file.
        message: One line.
    """

    verdict: Verdict
    where: str
    limit: str
    message: str

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**asdict(self), "verdict": self.verdict.value}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Missed:
        """The inverse of `to_json`."""
        return cls(**{**data, "verdict": Verdict(data["verdict"])})


def verdict_of(rows: Iterable[TensorComparison], missed: Iterable[Missed] = ()) -> Verdict:
    """FAIL if any output or limit fails; INCONCLUSIVE without rows or if any is; else PASS."""
    verdicts = {row.verdict for row in rows}
    if verdicts:
        verdicts |= {m.verdict for m in missed}
    if Verdict.FAIL in verdicts:
        return Verdict.FAIL
    return Verdict.PASS if verdicts == {Verdict.PASS} else Verdict.INCONCLUSIVE


@dataclass(frozen=True)
class ParityReport:
    """A reference against a candidate. True only if everything was compared and passed.

    Attributes:
        reference: Path or description.
        candidate: Path or description.
        environment: Of the candidate's runtime, see `mpexport.runtimes.Session.environment`.
        rows: One per output.
        seed: Seed of the sample inputs.
        num_samples: Samples run, over all cases.
        inputs_sha256: Digest of the inputs, see `mpexport.parity.inputs.digest`.
        notes: Lines for the reader, for example a batch that had to be fixed.
        missed: Limits of the gate that aren't held.
        artifact: Of the candidate: ``format``, ``size_bytes`` and ``sha256``.
        cases: Number of the case → what it tries, for made-up inputs.
        run_to_run: Output → largest difference between two runs of the candidate on the same
            inputs, for outputs of numbers.
    """

    reference: str
    candidate: str
    environment: dict[str, Any]
    rows: tuple[TensorComparison, ...]
    seed: int
    num_samples: int
    inputs_sha256: str
    notes: tuple[str, ...] = ()
    missed: tuple[Missed, ...] = ()
    artifact: dict[str, Any] = field(default_factory=dict)
    cases: dict[int, str] = field(default_factory=dict)
    run_to_run: dict[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """See `verdict_of`."""
        return verdict_of(self.rows, self.missed)

    @property
    def passed(self) -> bool:
        """Whether the verdict is PASS."""
        return self.verdict is Verdict.PASS

    def __bool__(self) -> bool:
        """Whether the verdict is PASS."""
        return self.passed

    def to_json(self) -> dict[str, Any]:
        """As a JSON object, the verdict included."""
        return {
            "reference": self.reference,
            "candidate": self.candidate,
            "verdict": self.verdict.value,
            "environment": self.environment,
            "outputs": [row.to_json() for row in self.rows],
            "seed": self.seed,
            "num_samples": self.num_samples,
            "inputs_sha256": self.inputs_sha256,
            "notes": list(self.notes),
            "missed": [m.to_json() for m in self.missed],
            "artifact": self.artifact,
            "cases": {str(number): name for number, name in self.cases.items()},
            "run_to_run": self.run_to_run,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ParityReport:
        """The inverse of `to_json`; the verdict is derived again from the rows."""
        return cls(
            reference=data["reference"],
            candidate=data["candidate"],
            environment=data["environment"],
            rows=tuple(TensorComparison.from_json(row) for row in data["outputs"]),
            seed=data["seed"],
            num_samples=data["num_samples"],
            inputs_sha256=data["inputs_sha256"],
            notes=tuple(data["notes"]),
            missed=tuple(Missed.from_json(m) for m in data["missed"]),
            artifact=data["artifact"],
            cases={int(number): name for number, name in data["cases"].items()},
            run_to_run=data["run_to_run"],
        )
