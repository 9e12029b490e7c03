"""What the product makes of a model: one cell of the table per target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mpexport
from mpexport.errors import MpExportError, OutputError, UsageError
from mpexport.formats import resolve
from mpexport.parity.cases import InputOptions
from mpexport.results import ExportedFile
from mpexport.tflite_file.requirements import runs_on
from tests.conformance.case import TARGETS, Case
from tests.conformance.children import Children

_OLD = ("tflite", "tflite-float16")
OLD_RUNTIME = "2.14"


def _options(case: Case) -> dict[str, Any]:
    return {name: dict(values) for name, values in case.options.items()}


def _inputs(case: Case, folder: Path) -> InputOptions:
    """The product's own inputs, unless the case says what its inputs must be."""
    largest = folder / "built" / f"inputs-{len(case.batches) - 1}.npz"
    return InputOptions(data=str(largest)) if case.feeds else InputOptions()


def run_twin(case: Case, twin: str, scratch: Path, children: Children) -> dict[str, Any]:
    """Target → op histogram of the file made of the float32 twin, or why there is none."""
    wanted = ["tflite", "onnx"]
    made = _export_all(case, twin, wanted, scratch, children, None)
    if made is None:
        made = {t: _export(case, twin, t, scratch / t, children, None) for t in wanted}
    return {target: cell for target, (cell, _) in made.items()}


def run_policy(
    case: Case,
    policy: str,
    facts: dict[str, Any],
    twin: dict[str, Any],
    folder: Path,
    children: Children,
) -> dict[str, Any]:
    """All targets for one model."""
    cells: dict[str, Any] = {}
    files: dict[str, str] = {}
    wanted = [t for t in TARGETS if t not in case.refused]
    inputs = _inputs(case, folder)
    together = _export_all(case, facts["source"], wanted, folder / policy, children, inputs)
    for target in TARGETS:
        if together is not None and target in together:
            cell, path = together[target]
        else:
            cell, path = _export(
                case,
                facts["source"],
                target,
                folder / policy / f"one-{target}",
                children,
                inputs,
            )
        cells[target] = cell
        if path is not None:
            files[target] = str(path)
    checked = children.builder(case.keras).call(
        "check",
        folder=str(folder / "built"),
        policy=policy,
        signature=case.signature,
        files=files,
        allowed=facts["allowed"],
        half=facts["allowed_float16"],
    )
    for target, cell in cells.items():
        seen = (
            {"agrees": False, "ratio": "inf", "problem": checked["error"]}
            if "error" in checked
            else checked.get(target)
        )
        cell["twin"] = seen
        cell["problem"] = _problem(case, target, cell, seen)
        if target in twin and "ops" in twin[target] and "ops" in cell:
            cell["ops_beyond_twin"] = _more(cell["ops"], twin[target]["ops"])
    old = {
        target: _on_old_runtime(target, policy, facts, folder, files[target], children)
        for target in _OLD
        if children.old_runtime is not None and target in files
    }
    return {
        "targets": cells,
        "old_runtime": old,
        "twin_converts": {k: "ops" in v for k, v in twin.items()},
        **{k: facts[k] for k in ("bare", "trained", "allowed") if k in facts},
    }


def _on_old_runtime(
    target: str,
    policy: str,
    facts: dict[str, Any],
    folder: Path,
    path: str,
    children: Children,
) -> dict[str, Any]:
    assert children.old_runtime is not None
    seen = children.old_runtime.call(
        "check",
        folder=str(folder / "built"),
        policy=policy,
        path=path,
        allowed=facts["allowed_float16" if target.endswith("float16") else "allowed"],
    )
    if "error" in seen:
        seen = {"runs": False, "problem": seen["error"]}
    return {**seen, "predicted": runs_on(path, OLD_RUNTIME)}


def _problem(case: Case, target: str, cell: dict[str, Any], seen: Any) -> str:
    """What is wrong with a cell, in one line; empty when it is as it should be."""
    if target in case.refused:
        return "" if cell["code"] == 5 else f"should be refused: {case.refused[target]}"
    if cell["code"] != 0:
        return cell["message"]
    if not seen["agrees"]:
        why = seen["problem"] or f"{seen['ratio']:.2f} times the bound"
        return f"the twin disagrees: {why}"
    return ""


def _more(ops: dict[str, int], twin: dict[str, int]) -> dict[str, int]:
    counts = {op: ops.get(op, 0) - twin.get(op, 0) for op in sorted({*ops, *twin})}
    return {op: count for op, count in counts.items() if count}


def _export_all(
    case: Case,
    source: str,
    targets: list[str],
    folder: Path,
    children: Children,
    inputs: InputOptions | None,
) -> dict[str, Any] | None:
    """All targets in one go, as most people do; None when one of them can't be made."""
    folder.mkdir(parents=True)
    try:
        result = mpexport.export(
            source,
            folder / "release",
            targets,
            run=children.run,
            signature=case.signature or None,
            options=_options(case),
            verify=inputs is not None,
            inputs=inputs,
        )
    except (UsageError, OutputError):
        raise  # a fault of the suite, not of the model
    except MpExportError:
        return None  # which of them, and why, shows when they are made one by one
    return {f.artifact.format: (_cell(f), Path(f.artifact.path)) for f in result.files}


def _export(
    case: Case,
    source: str,
    target: str,
    folder: Path,
    children: Children,
    inputs: InputOptions | None,
) -> tuple[dict[str, Any], Path | None]:
    spec, _ = resolve(target)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        result = mpexport.convert(
            source,
            target,
            folder / f"model{spec.suffix}",
            verify=inputs is not None,
            inputs=inputs,
            run=children.run,
            signature=case.signature or None,
            **_options(case).get(spec.name, {}),
        )
    except MpExportError as e:
        return {"code": e.exit_code, "message": str(e)}, None
    file = result.files[0]
    return _cell(file), Path(file.artifact.path)


def _cell(file: ExportedFile) -> dict[str, Any]:
    causes = sorted({row.cause for report in file.parity for row in report.rows})
    return {
        "code": 0,
        "message": "",
        "causes": causes,
        "ops": file.contract.ops,
        "notes": list(file.conversion.notes),
        "min_runtime": file.contract.facts.get("min_runtime_version", ""),
        "size": file.artifact.size_bytes,
    }
