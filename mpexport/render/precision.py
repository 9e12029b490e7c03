"""The precision report as blocks of text."""

from __future__ import annotations

from collections import Counter

from mpexport.findings import Finding
from mpexport.precision import LayerPolicy, PrecisionReport
from mpexport.render.layout import Block, Facts, Table
from mpexport.render.text import count, size

# Lines of a list without --verbose.
_FEW = 5


def precision(report: PrecisionReport, *, verbose: bool = False) -> list[Block]:
    """Counts, casts, policies, literals and findings."""
    few = None if verbose else _FEW
    pairs = []
    for signature in report.signatures:
        pairs.append(("signature", signature.key))
        pairs += [("  input", str(spec)) for spec in signature.inputs]
        pairs += [("  output", str(spec)) for spec in signature.outputs]
    pairs += [("note", note) for note in report.notes]
    blocks: list[Block] = [Facts(report.source, pairs), "", _counts(report)]
    if report.casts:
        blocks += ["", _casts(report)]
    if report.policies:
        blocks += ["", *_policies(report.policies, few)]
    if report.literals:
        blocks += ["", _literals(report, few)]
    blocks.append("")
    for finding in report.findings:
        blocks.append(_finding(finding))
    blocks.append(_summary(report))
    return blocks


def _counts(report: PrecisionReport) -> Table:
    rows = [
        (c.dtype, f"{c.ops:,}", f"{c.variables:,}", size(c.variable_bytes)) for c in report.counts
    ]
    return Table(("dtype", ">ops", ">variables", ">size"), rows)


def _casts(report: PrecisionReport) -> Table:
    roles = Counter((c.role, c.src_dtype, c.dst_dtype) for c in report.casts)
    rows = [(role, src, dst, f"{n:,}") for (role, src, dst), n in roles.most_common()]
    return Table(("cast of", "from", "to", ">count"), rows)


def _policies(policies: tuple[LayerPolicy, ...], few: int | None) -> list[Block]:
    groups = Counter((p.policy, p.compute_dtype, p.variable_dtype) for p in policies)
    rows = [(*group, f"{n:,}") for group, n in groups.items()]
    blocks: list[Block] = [Table(("policy", "computes in", "stores in", ">layers"), rows)]
    nested = [p for p in policies if _is_nested(p, policies)]
    if nested:
        lines = [(p.policy, f"{p.layer} ({p.kind}, {p.origin})") for p in nested]
        title = f"{count(len(nested), 'layer')} inside other layers:"
        blocks.append(Facts(title, _first(lines, few)))
    return blocks


def _is_nested(policy: LayerPolicy, policies: tuple[LayerPolicy, ...]) -> bool:
    """Whether a layer is inside another; the outermost model, if all have it, doesn't count."""
    roots = {p.layer.partition("/")[0] for p in policies}
    return policy.layer.count("/") > (1 if len(roots) == 1 else 0)


def _literals(report: PrecisionReport, few: int | None) -> Facts:
    lines = [(f"{x.value} {x.dtype}", x.where) for x in report.literals]
    return Facts(
        f"{count(len(lines), 'literal')} rounded to 16 bits when the model was traced:",
        _first(lines, few),
    )


def _first(lines: list[tuple[str, str]], few: int | None) -> list[tuple[str, str]]:
    if few is None or len(lines) <= few:
        return lines
    return [*lines[:few], ("", f"and {len(lines) - few:,} more; --verbose lists them")]


def _finding(finding: Finding) -> Facts:
    pairs = [("at", finding.where)] if finding.where else []
    if finding.hint:
        pairs.append(("hint", finding.hint))
    return Facts(f"{finding.severity.value} {finding.rule}: {finding.message}", pairs)


def _summary(report: PrecisionReport) -> str:
    found = Counter(f.severity.value for f in report.findings)
    if not found:
        return "no findings" if report.is_16_bit else "no findings; nothing is in 16 bits"
    return ", ".join(count(found[s], s) for s in ("error", "warning", "info") if found[s])
