"""What an exported file holds, as blocks of text."""

from __future__ import annotations

from mpexport.inspection import FileReport
from mpexport.render.layout import Block, Facts, Table
from mpexport.render.text import NONE, size


def inspection(report: FileReport) -> list[Block]:
    """Facts of the file, its signatures, and its ops."""
    need = report.requirements
    pairs = [("format", report.format), ("size", size(report.size_bytes))]
    pairs += [("sha256", report.sha256), ("precision", report.precision)]
    stored = [f"{size(n)} {dtype}" for dtype, n in report.weight_bytes.items()]
    pairs.append(("weights", ", ".join(stored) or NONE))
    if "min_runtime_version" in need:
        pairs.append(("runtime", f"{need['min_runtime_version'] or 'any'} or later"))
    if "opset" in need:
        opsets = [f"{domain or 'ai.onnx'} {version}" for domain, version in need["opset"].items()]
        pairs += [("opset", ", ".join(opsets)), ("ir version", str(need["ir_version"]))]
    if report.reduced_precision:
        pairs.append(("reduced precision", report.reduced_precision))
    pairs += [("external data", name) for name in report.external_data]
    for signature in report.signatures:
        pairs.append(("signature", signature.key or NONE))
        pairs += [("  input", str(spec)) for spec in signature.inputs]
        pairs += [("  output", str(spec)) for spec in signature.outputs]
    pairs += [(f"metadata {name}", text) for name, text in report.metadata.items()]
    rows = [(op.name, str(op.version), f"{op.count:,}") for op in report.ops]
    return [Facts(report.file, pairs), "", Table(("op", ">version", ">count"), rows)]
