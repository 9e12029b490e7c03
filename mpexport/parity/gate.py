"""The gate file: what a release must hold, in a TOML file that lives with the code.

.. code-block:: toml

    version = 1

    [samples]
    min = 360                  # fewer are no evidence: exit code 9

    [tolerance]                # of every output that has none of its own
    rtol = 1e-5
    atol_scale = 1e-5          # times max|r| of the output

    [outputs.logits]
    rtol = 1e-4
    min_top1_agreement = 0.995
    max_kl_mean = 1e-4
    max_accuracy_drop = 0.002  # must be shown by the labels: exit code 9 otherwise

    [budgets.tflite]           # format name
    max_size_mib = 4.0
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mpexport import plugins
from mpexport.errors import UsageError
from mpexport.findings import Verdict
from mpexport.parity.accuracy import PairedAccuracy
from mpexport.parity.report import Missed, ParityReport
from mpexport.parity.row import TensorComparison
from mpexport.parity.tolerance import Tolerance, Tolerances, default_for

VERSION = 1
_PARTS = ("rtol", "atol", "atol_scale")


@dataclass(frozen=True)
class Limit:
    """A kind of limit on an output.

    Attributes:
        field: Of `TensorComparison`.
        is_upper: Whether the value must be at most the limit, or at least.
        unit: For people.
    """

    field: str
    is_upper: bool
    unit: str = ""


LIMITS: Mapping[str, Limit] = {
    "max_abs": Limit("max_abs", True),
    "max_abs_p99": Limit("abs_p99", True),
    "max_abs_p999": Limit("abs_p999", True),
    "max_mean_abs": Limit("mean_abs", True),
    "max_rmse": Limit("rmse", True),
    "max_rel": Limit("max_rel", True),
    "max_ulp": Limit("ulp", True),
    "min_cosine": Limit("cosine", False),
    "min_snr_db": Limit("snr_db", False, " dB"),
    "max_kl_mean": Limit("kl_mean", True, " nats"),
    "max_kl": Limit("kl_max", True, " nats"),
    "min_top1_agreement": Limit("top1_agreement", False),
    "min_top5_agreement": Limit("top5_agreement", False),
}
MAX_ACCURACY_DROP = "max_accuracy_drop"
MAX_SIZE = "max_size_mib"


@dataclass(frozen=True)
class OutputGate:
    """What one output must hold.

    Attributes:
        tolerance: Parts of the bound that are given: ``rtol``, ``atol``, ``atol_scale``.
        limits: Key of `LIMITS` → limit.
        max_accuracy_drop: As a share; None means no limit.
    """

    tolerance: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    max_accuracy_drop: float | None = None


@dataclass(frozen=True)
class Gate:
    """A gate file.

    Attributes:
        min_samples: The least number of samples that counts as evidence.
        tolerance: Parts of the bound for outputs without their own.
        outputs: Output name → what it must hold.
        budgets: Format name → ``max_size_mib`` → limit in MiB.
        max_accuracy_drop: As a share, of the output with labels; None means no limit.
        labeled: That output, where it is named.
    """

    min_samples: int = 1
    tolerance: Mapping[str, float] = field(default_factory=dict)
    outputs: Mapping[str, OutputGate] = field(default_factory=dict)
    budgets: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    max_accuracy_drop: float | None = None
    labeled: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Gate:
        """The inverse of `to_json`."""
        outputs = {name: OutputGate(**output) for name, output in data["outputs"].items()}
        return cls(**{**data, "outputs": outputs})

    def with_tolerance(self, output: str, part: str, value: float) -> Gate:
        """The gate with another part of a bound, of one output or (``""``) of all others."""
        if not output:
            return replace(self, tolerance=_set(self.tolerance, part, value))
        own = self.outputs.get(output, OutputGate())
        changed = replace(own, tolerance=_set(own.tolerance, part, value))
        return replace(self, outputs={**self.outputs, output: changed})

    def tolerances(self, default: Tolerance | None = None) -> Tolerances:
        """The bound per output, the parts not given from the default (that of float32 files)."""
        base = default or default_for("float32")
        common = _with_parts(base, self.tolerance)
        own = {n: _with_parts(common, o.tolerance) for n, o in self.outputs.items() if o.tolerance}
        return {"": common, **own} if own else common


def parse(data: Mapping[str, Any], where: str) -> Gate:
    """A gate from the content of its file.

    Raises:
        UsageError: A key nobody knows, or a value that is no limit; names it.
    """
    _known(data, ("version", "samples", "tolerance", "outputs", "budgets"), where)
    if data.get("version") != VERSION:
        raise UsageError(
            f"{where}: version = {data.get('version')!r}", hint=f"write version = {VERSION}"
        )
    samples = _table(data, "samples", where)
    _known(samples, ("min",), f"{where}: [samples]")
    least = samples.get("min", 1)
    if not isinstance(least, int) or isinstance(least, bool) or least < 1:
        raise UsageError(f"{where}: [samples] min = {least!r}: need a whole number of at least 1")
    outputs = {}
    for name, table in _table(data, "outputs", where).items():
        at = f"{where}: [outputs.{name}]"
        _known(_is_table(table, at), (*_PARTS, *LIMITS, MAX_ACCURACY_DROP), at)
        numbers = {key: _number(value, f"{at} {key}") for key, value in table.items()}
        outputs[name] = OutputGate(
            {k: v for k, v in numbers.items() if k in _PARTS},
            {k: v for k, v in numbers.items() if k in LIMITS},
            numbers.get(MAX_ACCURACY_DROP),
        )
    budgets = {}
    for name, table in _table(data, "budgets", where).items():
        at = f"{where}: [budgets.{name}]"
        _known(_is_table(table, at), (MAX_SIZE,), at)
        budgets[name] = {key: _number(value, f"{at} {key}") for key, value in table.items()}
    common = _table(data, "tolerance", where)
    _known(common, _PARTS, f"{where}: [tolerance]")
    parts = {k: _number(v, f"{where}: [tolerance] {k}") for k, v in common.items()}
    return Gate(least, parts, outputs, budgets)


def judged(gate: Gate, report: ParityReport) -> ParityReport:
    """The report with what it does not hold.

    Raises:
        UsageError: The gate names an output that isn't there.
    """
    return replace(report, missed=tuple(judge(gate, report)))


def judge(gate: Gate, report: ParityReport) -> list[Missed]:
    """What a report does not hold; the bound of each output is its row's own matter.

    Raises:
        UsageError: The gate names an output that isn't there.
    """
    rows = {row.output: row for row in report.rows}
    for name in gate.outputs:
        if name not in rows:
            raise UsageError(
                f"the gate names no output: {name!r}; {plugins.did_you_mean(name, rows)}"
            )
    missed = []
    if report.num_samples < gate.min_samples:
        text = f"{report.num_samples} samples, but the gate asks for {gate.min_samples}"
        missed.append(Missed(Verdict.INCONCLUSIVE, "samples", "min", text))
    for name, output in gate.outputs.items():
        for key, limit in output.limits.items():
            found = _judge_limit(key, limit, rows[name])
            missed += [found] if found else []
    return [*missed, *_judge_accuracy(gate, report), *_judge_size(gate, report)]


def _judge_accuracy(gate: Gate, report: ParityReport) -> Iterator[Missed]:
    limits = {
        name: output.max_accuracy_drop
        for name, output in gate.outputs.items()
        if output.max_accuracy_drop is not None
    }
    labeled = {row.output: row.accuracy for row in report.rows if row.accuracy is not None}
    if gate.max_accuracy_drop is not None:
        names = [gate.labeled] if gate.labeled is not None else list(labeled)
        if not names:
            text = f"{MAX_ACCURACY_DROP} = {gate.max_accuracy_drop:g}, but there are no labels"
            yield Missed(Verdict.INCONCLUSIVE, "labels", MAX_ACCURACY_DROP, text)
        limits.update(dict.fromkeys(names, gate.max_accuracy_drop))
    for name, limit in limits.items():
        verdict, text = (labeled.get(name) or PairedAccuracy()).judge(limit)
        if verdict is not Verdict.PASS:
            yield Missed(verdict, name, MAX_ACCURACY_DROP, text)


def _judge_size(gate: Gate, report: ParityReport) -> Iterator[Missed]:
    name = report.artifact.get("format", "")
    limit = gate.budgets.get(name, {}).get(MAX_SIZE)
    if limit is not None:
        size = report.artifact["size_bytes"] / 2**20
        if size > limit:
            text = f"{size:.4g} MiB is above {MAX_SIZE} = {limit:g}"
            yield Missed(Verdict.FAIL, name, MAX_SIZE, text)


def value_of(key: str, row: TensorComparison) -> float | None:
    """What a row says about a limit; None where it says nothing."""
    name = LIMITS[key].field
    if name in ("top1_agreement", "top5_agreement"):
        agree = row.top1_agree if name == "top1_agreement" else row.top5_agree
        return agree / row.top1_rows if row.top1_rows else None
    value: float | None = getattr(row, name)
    return value


def _judge_limit(key: str, limit: float, row: TensorComparison) -> Missed | None:
    kind = LIMITS[key]
    value = value_of(key, row)
    if value is None or math.isnan(value):
        text = f"{key} = {limit:g}, but this output has no such number"
        return Missed(Verdict.INCONCLUSIVE, row.output, key, text)
    if value <= limit if kind.is_upper else value >= limit:
        return None
    side = "above" if kind.is_upper else "below"
    text = f"{value:.6g}{kind.unit} is {side} {key} = {limit:g}"
    return Missed(Verdict.FAIL, row.output, key, text)


def _set(parts: Mapping[str, float], part: str, value: float) -> Mapping[str, float]:
    """The parts with one replaced; the absolute and the scaled tolerance replace each other."""
    other = {"atol": "atol_scale", "atol_scale": "atol"}.get(part)
    return {**{k: v for k, v in parts.items() if k != other}, part: value}


def _with_parts(base: Tolerance, parts: Mapping[str, float]) -> Tolerance:
    """The base with parts replaced; an ``atol`` alone takes the place of the scaled one."""
    if not parts:
        return base
    values = {"rtol": base.rtol, "atol": base.atol, "atol_scale": base.atol_scale}
    if "atol" in parts:
        values["atol_scale"] = 0.0
    if "atol_scale" in parts and "atol" not in parts:
        values["atol"] = 0.0
    return Tolerance(**{**values, **parts})


def _number(value: Any, where: str) -> float:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (usable and 0 <= value < math.inf):  # NaN fails too
        raise UsageError(f"{where} = {value!r}: need a finite number of at least 0")
    return float(value)


def _table(data: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    return _is_table(data.get(key, {}), f"{where}: {key}")


def _is_table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{where} = {value!r}: need a table")
    return value


def _known(table: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    known = list(keys)
    for key in table:
        if key not in known:
            raise UsageError(f"{where}: no such key: {key!r}; {plugins.did_you_mean(key, known)}")
