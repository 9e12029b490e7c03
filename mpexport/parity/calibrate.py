"""A gate file proposed from a comparison that passed, with a reason for every number."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence

from mpexport.errors import UsageError
from mpexport.parity.gate import LIMITS, MAX_ACCURACY_DROP, MAX_SIZE, VERSION, value_of
from mpexport.parity.report import ParityReport
from mpexport.parity.row import TensorComparison

# How many times what was measured is allowed: other samples and other machines round differently.
_MARGIN = 2.0
_SIZE_MARGIN = 1.05
# An amplitude of twice the error is 6 dB less.
_MARGIN_DB = 20 * math.log10(_MARGIN)
# Upper end of the 95% interval of a rate of which no instance was seen in n trials, times n.
_RULE_OF_THREE = 3.0
_UPPER = ("max_abs", "max_rmse", "max_kl_mean")


def propose(reports: Sequence[ParityReport]) -> str:
    """A gate file that all candidates hold now.

    Limits are for all candidates alike: each is that of the worst one.

    Args:
        reports: Of one comparison; all passed.

    Returns:
        TOML, see `mpexport.parity.gate`.

    Raises:
        UsageError: A candidate did not pass, or there is none.
    """
    failed = [r.candidate for r in reports if not r.passed]
    if failed:
        raise UsageError(f"{failed[0]}: does not pass, so no gate is proposed")
    if not reports:
        raise UsageError("nothing was compared, so no gate is proposed")
    samples = min(r.num_samples for r in reports)
    lines = [
        f"version = {VERSION}",
        "",
        "[samples]",
        f"min = {samples}  # as many as this was measured on; fewer would be less evidence",
    ]
    names = dict.fromkeys(row.output for report in reports for row in report.rows)
    for name in names:
        rows = [(r, row) for r in reports for row in r.rows if row.output == name]
        lines += ["", f"[outputs.{_key(name)}]", *_tolerance(rows), *_limits(rows)]
    sizes: dict[str, int] = {}
    for report in reports:
        kind = report.artifact["format"]
        sizes[kind] = max(sizes.get(kind, 0), report.artifact["size_bytes"])
    for kind, size in sorted(sizes.items()):
        mib = size / 2**20
        reason = f"the largest has {mib:.4g} MiB; 5% more"
        lines += ["", f"[budgets.{kind}]", f"{MAX_SIZE} = {_up(_SIZE_MARGIN * mib)}  # {reason}"]
    return "\n".join(lines) + "\n"


Rows = Sequence["tuple[ParityReport, TensorComparison]"]


def _tolerance(rows: Rows) -> Iterator[str]:
    row = max((row for _, row in rows), key=lambda row: row.mismatched)
    if not row.mismatched:
        yield f"# every element is within the default bound, {row.tolerance}, which stays"
        return
    yield f"# {row.mismatched} of {row.count} elements are beyond {row.tolerance}; they pass as"
    yield f"# {row.cause!r}, so the bound stays and the limits below hold what they may cost"


def _limits(rows: Rows) -> Iterator[str]:
    for key in _UPPER:
        known = [(v, r) for r, row in rows if (v := value_of(key, row)) is not None and v > 0]
        if known:
            value, report = max(known, key=lambda pair: pair[0])
            reason = f"{value:.3g}{LIMITS[key].unit} in {_shown(report)}; twice that"
            yield f"{key} = {_up(_MARGIN * value)}  # {reason}"
    ratios = [(row.snr_db, r) for r, row in rows if row.snr_db is not None]
    finite = [(value, report) for value, report in ratios if math.isfinite(value)]
    if finite and min(value for value, _ in finite) >= 0:
        value, report = min(finite, key=lambda pair: pair[0])
        reason = f"{value:.4g} dB in {_shown(report)}; 6 dB less is twice the error"
        yield f"min_snr_db = {max(math.floor(value - _MARGIN_DB), 0)}  # {reason}"
    ranked = [(row, r) for r, row in rows if row.top1_rows]
    if ranked:
        row, report = min(ranked, key=lambda pair: pair[0].top1_agree / pair[0].top1_rows)
        flips = row.top1_rows - row.top1_agree
        # Of a rate seen as k of n, k + 3·sqrt(k + 1) of n is about the upper end of the interval.
        most = flips + _RULE_OF_THREE * math.sqrt(flips + 1)
        share = max(0.0, math.floor((1 - most / row.top1_rows) * 1e4) / 1e4)
        reason = f"{row.top1_agree} of {row.top1_rows} in {_shown(report)}; what so many samples "
        yield f"min_top1_agreement = {share}  # {reason}can show"
    drops = [(row.accuracy.interval()[1], r) for r, row in rows if row.accuracy is not None]
    if drops:
        drop, report = max(drops, key=lambda pair: pair[0])
        reason = f"upper end of the 95% interval in {_shown(report)}"
        yield f"{MAX_ACCURACY_DROP} = {_up(max(drop, 0.0))}  # {reason}"


def _shown(report: ParityReport) -> str:
    """Its name, in a comment of one line."""
    return "".join(c if c.isprintable() else "?" for c in report.candidate)


def _up(value: float) -> float:
    """The next number with two significant digits."""
    if value <= 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / step * (1 - 1e-12)) * step:.2g}")


def _key(name: str) -> str:
    """A TOML key, quoted; JSON escapes what TOML wants escaped, but for DEL."""
    return json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")
