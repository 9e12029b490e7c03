"""The JSON document of a comparison, as the renderers read it.

They render what ``mpexport parity --json`` prints and nothing else, so that a stored document gives
the same reports as the run itself. A document may come from another version, or from anywhere:
members that are missing or unknown are no error, and all text is safe to show.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpexport.errors import (
    InconclusiveError,
    InputError,
    MpExportError,
    UsageError,
    VerificationError,
    from_json,
)
from mpexport.findings import Verdict
from mpexport.parity.exact import Octaves
from mpexport.parity.row import decode_number
from mpexport.parity.tolerance import Tolerance
from mpexport.render import layout, text

SCHEMA_FILE = Path(__file__).with_name("schemas") / "parity.schema.json"
ERROR = "ERROR"
_GOOD_FIRST = (Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.FAIL)
# Names of layers can be long; one that fills a page is a mistake or an attack.
_LONGEST = 600


@dataclass(frozen=True)
class Worst:
    """The worst element of an output or of a sample; the texts are for people."""

    error: float | None
    case: str
    index: str
    reference: str
    candidate: str


@dataclass(frozen=True)
class OutputView:
    """One output of a candidate; see `mpexport.parity.row.TensorComparison` for the numbers.

    Attributes:
        name: Of the output.
        verdict: PASS, FAIL or INCONCLUSIVE; anything else counts as INCONCLUSIVE.
        cause: Stable words.
        message: One line.
        bound: The tolerance, for people.
        numbers: Every member that is a number, and ``run_to_run``.
        worst: The worst element, if one is known.
        samples: The worst elements of the worst samples.
        errors: How the candidate's errors are spread.
        noise_errors: How those of the model as trained are.
    """

    name: str
    verdict: Verdict
    cause: str
    message: str
    bound: str
    numbers: Mapping[str, float]
    worst: Worst | None
    samples: tuple[Worst, ...]
    errors: Octaves | None
    noise_errors: Octaves | None

    def number(self, name: str) -> float | None:
        """A number, or None where there is none."""
        return self.numbers.get(name)

    def shown(self, name: str) -> str:
        """A number for people."""
        return text.number(self.number(name))

    def facts(self) -> list[tuple[str, str]]:
        """Names and numbers for people: all that a verdict rests on."""
        pairs = [
            ("verdict", f"{self.verdict.value} ({self.cause})"),
            ("values compared", _whole(self.number("count"))),
            ("beyond the bound", f"{_whole(self.number('mismatched'))} of {self.bound}"),
            ("max abs error", self.shown("max_abs")),
            ("max rel error", self.shown("max_rel")),
            ("mean abs error", self.shown("mean_abs")),
            ("rmse", self.shown("rmse")),
            ("noise floor (trained model)", self.shown("noise_floor")),
            ("rounding floor", self.shown("rounding_floor")),
            ("run to run", self.shown("run_to_run")),
            ("rtol needed", self.shown("required_rtol")),
            ("atol needed", self.shown("required_atol")),
            ("ulp", _whole(self.number("ulp"))),
            ("cosine", self.shown("cosine")),
            ("snr in dB", self.shown("snr_db")),
        ]
        if self.number("top1_rows"):
            agree, rows = (_whole(self.number(n)) for n in ("top1_agree", "top1_rows"))
            pairs.append(("top-1 as the reference", f"{agree} of {rows}"))
        for kind in ("nan", "inf"):
            found = [self.number(f"{run}_{kind}") or 0.0 for run in ("reference", "candidate")]
            if any(found):
                name = "NaN" if kind == "nan" else "infinities"
                counts = f"{found[0]:.0f} in the reference, {found[1]:.0f} in the candidate"
                pairs.append((name, counts))
        if self.worst:
            where = f"case {self.worst.case}, {self.worst.index}"
            values = f"{self.worst.candidate} for {self.worst.reference}"
            pairs.append(("worst element", f"{where}: {values}"))
        return [pair for pair in pairs if pair[1] != text.NONE]


@dataclass(frozen=True)
class MissedView:
    """A limit of the gate that isn't held."""

    verdict: Verdict
    where: str
    limit: str
    message: str


@dataclass(frozen=True)
class CandidateView:
    """One candidate; see `mpexport.parity.report.ParityReport`.

    Attributes:
        path: Of the candidate.
        reference: Path or description.
        verdict: The worst of what is stated, of the outputs and of the limits.
        environment: Dotted names and values.
        outputs: In the order of the document.
        missed: Limits of the gate that aren't held.
        notes: Lines for the reader.
        samples: How many ran, for people.
        seed: Of the inputs.
        inputs_sha256: Digest of the inputs.
    """

    path: str
    reference: str
    verdict: Verdict
    environment: tuple[tuple[str, str], ...]
    outputs: tuple[OutputView, ...]
    missed: tuple[MissedView, ...]
    notes: tuple[str, ...]
    samples: str
    seed: str
    inputs_sha256: str

    @property
    def runtime(self) -> str:
        """``litert 2.3.0``."""
        return text.runtime(dict(self.environment))

    def worst_first(self) -> list[OutputView]:
        """Outputs by verdict, and among equals by error."""
        return sorted(
            self.outputs,
            key=lambda o: (-_GOOD_FIRST.index(o.verdict), -(o.number("max_abs") or 0.0), o.name),
        )


@dataclass(frozen=True)
class ParityDocument:
    """A comparison.

    Attributes:
        version: Of the mpexport that made it.
        candidates: Empty when the run ended before.
        warnings: Lines for the reader.
        stated: The ``error`` of the document.
        result: The ``result`` of the document as it is; None when the run ended before.
    """

    version: str
    candidates: tuple[CandidateView, ...]
    warnings: tuple[str, ...]
    stated: MpExportError | None
    result: Mapping[str, Any] | None

    @property
    def verdict(self) -> str:
        """PASS, FAIL, INCONCLUSIVE, or ERROR when the comparison wasn't done."""
        if self.result is None:
            return ERROR
        stated = [_verdict(self.result.get("verdict"))]
        if self.stated is not None:
            stated.append(_FAILS.get(self.stated.exit_code, Verdict.INCONCLUSIVE))
        if not self.candidates:
            stated.append(Verdict.INCONCLUSIVE)
        return _worst(stated + [c.verdict for c in self.candidates]).value

    @property
    def summary(self) -> str:
        """One line."""
        if self.result is None:
            return self.message
        passed = sum(c.verdict is Verdict.PASS for c in self.candidates)
        return f"{passed} of {text.count(len(self.candidates), 'file')} passed"

    @property
    def message(self) -> str:
        """The line of the error; empty when there is none."""
        return "" if self.stated is None else _text(self.stated.message)

    @property
    def hint(self) -> str:
        """What to do about it; may be empty."""
        return "" if self.stated is None else _text(self.stated.hint)

    def error(self) -> MpExportError | None:
        """What a command that shows the document ends with: a run that failed stays failed."""
        if self.stated is not None or self.verdict == Verdict.PASS.value:
            return self.stated
        kind = VerificationError if self.verdict == Verdict.FAIL.value else InconclusiveError
        return kind(f"{self.verdict}: {self.summary}")


_FAILS = {VerificationError.exit_code: Verdict.FAIL}


def read(data: Any, where: str = "the document") -> ParityDocument:
    """Reads a parsed document.

    Args:
        data: What ``mpexport parity --json`` printed.
        where: Its file, for errors.

    Raises:
        InputError: It is none of ``mpexport parity``, or of an unknown version of the schema.
    """
    if not isinstance(data, Mapping) or data.get("command") != "parity":
        raise InputError(
            f"{where}: is no document of mpexport parity",
            hint="store what mpexport parity --json prints",
            where=where,
        )
    version = data.get("schema_version")
    if not isinstance(version, str) or not re.fullmatch(r"1\.[0-9]+", version):
        raise InputError(f"{where}: schema version {version!r}, expected 1.x", where=where)
    result, error = data.get("result"), data.get("error")
    if not isinstance(result, Mapping) and not isinstance(error, Mapping):
        raise InputError(f"{where}: has neither a result nor an error", where=where)
    reports = _list(_get(result, "reports"))
    return ParityDocument(
        version=_text(_get(data.get("tool"), "version")),
        candidates=tuple(_candidate(report) for report in reports),
        warnings=tuple(
            f"{_text(_get(w, 'where'))}: {_text(_get(w, 'message'))}"
            for w in _list(data.get("warnings"))
        ),
        stated=_error(error) if isinstance(error, Mapping) else None,
        result=result if isinstance(result, Mapping) else None,
    )


def parse(source: str, where: str) -> tuple[Mapping[str, Any], ParityDocument]:
    """Reads the text of a stored document: the document itself, and what is in it.

    Raises:
        InputError: No JSON, or see `read`.
    """
    try:
        data = json.loads(source)
    except (ValueError, RecursionError) as e:
        raise InputError(f"{where}: no JSON: {e}", where=where) from e
    return data, read(data, where)


def schema() -> dict[str, Any]:
    """The published JSON Schema of the document."""
    loaded: dict[str, Any] = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    return loaded


def _get(data: Any, name: str) -> Any:
    return data.get(name) if isinstance(data, Mapping) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    """One line without control characters, of bounded length."""
    shown = layout.one_line("" if value is None else str(value))
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"


def _number(value: Any) -> float | None:
    decoded = decode_number(value)
    if isinstance(decoded, bool) or not isinstance(decoded, (int, float)):
        return None
    try:
        return float(decoded)
    except OverflowError:
        return math.inf if decoded > 0 else -math.inf


def _whole(value: float | None) -> str:
    return text.NONE if value is None else f"{value:,.0f}" if math.isfinite(value) else str(value)


def _verdict(value: Any) -> Verdict:
    """What isn't known to be good or bad, SKIPPED included, proves nothing."""
    return next((v for v in _GOOD_FIRST if v.value == value), Verdict.INCONCLUSIVE)


def _worst(verdicts: Iterable[Verdict]) -> Verdict:
    return max(verdicts, key=_GOOD_FIRST.index)


def _error(data: Mapping[str, Any]) -> MpExportError:
    error = from_json({
        "code": data.get("code"),
        "message": _text(data.get("message")),
        "hint": _text(data.get("hint")),
        "where": _text(data.get("where")),
    })  # fmt: skip
    code = data.get("exit_code")
    # A code of a newer version must not turn into success.
    if isinstance(code, int) and 0 < code < 256:
        error.exit_code = code
    return error


def _bound(value: Any) -> str:
    parts = (_number(_get(value, name)) for name in ("rtol", "atol", "atol_scale"))
    try:
        return str(Tolerance(*(part or 0.0 for part in parts)))
    except UsageError:
        return "an unknown bound"


def _octaves(value: Any) -> Octaves | None:
    try:
        zeros = int(_get(value, "zeros"))
        pairs = tuple((int(e), int(count)) for e, count in _get(value, "counts"))
    except (TypeError, ValueError, OverflowError):
        return None
    # Exponents of float64 numbers; others would stretch a plot without bounds.
    if not all(-1080 <= e <= 1024 and count > 0 for e, count in pairs):
        return None
    return Octaves(max(zeros, 0), tuple(sorted(pairs)))


def _element(data: Any, prefix: str, error: Any, cases: Any) -> Worst | None:
    if not isinstance(_get(data, f"{prefix}index"), list):
        return None
    names = ("case", "index", "reference", "candidate")
    case, *values = (_text(data.get(f"{prefix}{name}")) for name in names)
    tries = _text(_get(cases, case))
    return Worst(_number(error), f"{case} ({tries})" if tries else case, *values)


def _output(data: Any, report: Any) -> OutputView:
    members = data.items() if isinstance(data, Mapping) else ()
    numbers = {str(name): _number(value) for name, value in members}
    cases = _get(report, "cases")
    samples = (_element(s, "", _get(s, "error"), cases) for s in _list(_get(data, "worst_samples")))
    numbers["run_to_run"] = _number(_get(_get(report, "run_to_run"), str(_get(data, "output"))))
    return OutputView(
        name=_text(_get(data, "output")),
        verdict=_verdict(_get(data, "verdict")),
        cause=_text(_get(data, "cause")) or "unknown",
        message=_text(_get(data, "message")),
        bound=_bound(_get(data, "tolerance")),
        numbers={name: value for name, value in numbers.items() if value is not None},
        worst=_element(data, "worst_", _get(data, "max_abs"), cases),
        samples=tuple(sample for sample in samples if sample is not None),
        errors=_octaves(_get(data, "errors")),
        noise_errors=_octaves(_get(data, "noise_errors")),
    )


def _missed(data: Any) -> MissedView:
    # A limit that is listed isn't held, whatever it says of itself.
    verdict = _worst([_verdict(_get(data, "verdict")), Verdict.INCONCLUSIVE])
    return MissedView(verdict, *(_text(_get(data, name)) for name in ("where", "limit", "message")))


def _candidate(data: Any) -> CandidateView:
    outputs = tuple(_output(row, data) for row in _list(_get(data, "outputs")))
    missed = tuple(_missed(limit) for limit in _list(_get(data, "missed")))
    verdicts = [_verdict(_get(data, "verdict"))]
    verdicts += [output.verdict for output in outputs]
    verdicts += [limit.verdict for limit in missed]
    if not outputs:
        verdicts.append(Verdict.INCONCLUSIVE)
    return CandidateView(
        path=_text(_get(data, "candidate")),
        reference=_text(_get(data, "reference")),
        verdict=_worst(verdicts),
        environment=tuple(_flat("", _get(data, "environment"))),
        outputs=outputs,
        missed=missed,
        notes=tuple(map(_text, _list(_get(data, "notes")))),
        samples=_whole(_number(_get(data, "num_samples"))),
        seed=_text(_get(data, "seed")),
        inputs_sha256=_text(_get(data, "inputs_sha256")),
    )


def _flat(prefix: str, value: Any) -> list[tuple[str, str]]:
    """A tree of mappings as dotted names and values."""
    if not isinstance(value, Mapping):
        return [(prefix, _text(value))] if prefix else []
    dotted = f"{prefix}." if prefix else ""
    return [pair for name, v in value.items() for pair in _flat(f"{dotted}{_text(name)}", v)]
