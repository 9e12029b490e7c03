"""From a source to verified files at their final names: what stands behind convert and export."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mpexport import __version__, formats, runtimes
from mpexport.artifacts import MANIFEST, Artifact, Output, digest_of, write_json
from mpexport.errors import InconclusiveError, UsageError, VerificationError
from mpexport.findings import Verdict
from mpexport.formats import Contract, Conversion, FormatSpec
from mpexport.optional import require_installed
from mpexport.parity.cases import InputOptions, iterate
from mpexport.parity.report import ParityReport
from mpexport.results import ExportedFile, ExportResult, RunOptions
from mpexport.scratch import make_scratch
from mpexport.signature import Signature
from mpexport.sources import SourceOptions, sniff
from mpexport.verify import (
    References,
    RunFile,
    compare_file,
    has_rounded_weights,
)
from mpexport.worker.parent import Worker


@dataclass(frozen=True)
class Target:
    """One file to make: format or variant name, its options and its place."""

    name: str
    spec: FormatSpec
    options: Any
    building: Path
    path: Path


def format_options(spec: FormatSpec, values: Mapping[str, Any]) -> Any:
    """Options of a format, checked.

    Raises:
        UsageError: No such option, or a value that is no choice.
    """
    known = set(spec.options.__dataclass_fields__)
    unknown = sorted(set(values) - known)
    if unknown:
        raise UsageError(f"format {spec.name} has no option {unknown[0]!r}")
    made = spec.options(**values)
    for name, info in spec.options.__dataclass_fields__.items():
        choices = info.metadata.get("choices")
        if choices and getattr(made, name) not in choices:
            shown = ", ".join(choices)
            raise UsageError(f"{name} {getattr(made, name)!r}: choose from {shown}")
    return made


def file_name(source: str, name: str) -> str:
    """``model.keras``, ``tflite-float16`` → ``model_float16.tflite``."""
    spec, _ = formats.resolve(name)
    variant = name.removeprefix(spec.name).replace("-", "_")
    stem = _stem(source)
    for ending in ("_savedmodel", "_saved_model"):
        stem = stem.removesuffix(ending) or stem
    return f"{stem}{variant}{spec.suffix}"


def _stem(source: str) -> str:
    path = Path(source)
    return path.stem if path.suffix in (".keras", ".h5", ".hdf5") else path.name


def default_output(source: str, spec: FormatSpec, options: Any) -> Path:
    """Beside the source, named after it and after the variant that the options make."""
    made = (
        name.removeprefix(spec.name).replace("-", "_")
        for name, values in spec.variants.items()
        if all(getattr(options, option) == value for option, value in values.items())
    )
    return Path(source).parent / f"{_stem(source)}{next(made, '')}{spec.suffix}"


def open_source(worker: Worker, source: SourceOptions, io_dtype: str) -> dict[str, Any]:
    """Loads and normalizes a source in a worker; see `mpexport.tf.describe` for what comes back."""
    return worker.call("open", source=source.to_json(), io_dtype=io_dtype, cwd=os.getcwd())


def source_purpose(source: SourceOptions) -> str:
    """What a pooled worker for a source may be used again for; see `RunOptions.worker`.

    One process holds one generation of Keras, and modules of a user's stay imported.
    """
    kind = sniff(source.path)
    if source.allow_code or source.imports or kind.name == "h5":
        return ""
    return f"source:{kind.name}:{kind.is_legacy_keras}"


@dataclass(frozen=True)
class Written:
    """A file that was made and waits for its proof: what it promises, and what it holds."""

    target: Target
    conversion: Conversion
    contract: Contract


@dataclass(frozen=True)
class Produced:
    """What became of the targets: the source's description, and each file with its reports."""

    described: dict[str, Any]
    files: list[tuple[Written, list[ParityReport]]]


def produce(
    source: SourceOptions,
    targets: list[Target],
    verify: bool,
    inputs: InputOptions,
    run: RunOptions,
) -> Produced:
    """Converts all targets in one worker, then runs each file in a worker of its own."""
    for target in targets:
        require_installed(target.spec.modules, target.spec.extra)
        if verify:
            runtimes.require_any(target.spec.name)
    io_dtype = getattr(targets[0].options, "io_dtype", "float32")
    if len(targets) > 1 and any(
        getattr(t.options, "io_dtype", "float32") != "float32" for t in targets
    ):
        raise UsageError(
            "16-bit inputs and outputs can be kept for the savedmodel format alone",
            hint="export it by itself: mpexport savedmodel --io-dtype keep",
        )
    with ExitStack() as stack:
        scratch = make_scratch()
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        with run.worker(source_purpose(source)) as worker:
            described = open_source(worker, source, io_dtype)
            written = [
                _convert(worker, target, is_last_use=not verify and target is targets[-1])
                for target in targets
            ]
            references = References(worker, scratch)
            if verify:
                for key in _keys(written):
                    _run_references(references, described, written, key, inputs)
        files = []
        for file in written:
            reports = []
            if verify:
                with run.worker(f"runtime:{file.target.spec.name}") as worker:
                    keys = [s.key for s in file.conversion.signatures if s.key in references.cases]
                    for key in keys:
                        reports.append(
                            compare_file(
                                worker,
                                RunFile(
                                    file.target.building,
                                    file.target.spec.name,
                                    file.conversion.precision,
                                    key,
                                    is_clamped=_is_clamped(file),
                                ),
                                key,
                                references,
                                reference=source.path,
                                shown=file.target.path,
                                seed=inputs.seed,
                            )
                        )
                _refuse_failed(file, reports)
            files.append((file, reports))
    return Produced(described, files)


def _convert(worker: Worker, target: Target, *, is_last_use: bool) -> Written:
    answer = worker.call(
        "convert",
        format=target.spec.name,
        options=asdict(target.options),
        path=str(target.building),
        is_last_use=is_last_use,
    )
    conversion = Conversion.from_json(answer["conversion"])
    contract = Contract.from_json(answer["contract"])
    if contract.violations:
        more = f" (and {len(contract.violations) - 1} more)" if len(contract.violations) > 1 else ""
        raise VerificationError(
            f"{target.name}: the written file breaks its contract: {contract.violations[0]}{more}",
            hint="nothing was kept; please report this",
            where=str(target.path),
            details={"violations": list(contract.violations)},
        )
    return Written(target, conversion, contract)


def _keys(written: list[Written]) -> list[str]:
    return list(dict.fromkeys(s.key for f in written for s in f.conversion.signatures))


def _run_references(
    references: References,
    described: dict[str, Any],
    written: list[Written],
    key: str,
    inputs: InputOptions,
) -> None:
    """Makes cases for one signature and runs the model on them, unless another stands for it."""
    if key not in described["distinct"]:
        return
    having = [(f, s) for f in written for s in f.conversion.signatures if s.key == key]
    signature = Signature.from_json(described["original_signatures"][key])
    files = [s for _, s in having]
    cases = list(iterate(signature, files, inputs, described["ranges"][key]))
    rounded = any(has_rounded_weights(f.conversion.precision) for f, _ in having)
    clamped = any(_is_clamped(f) for f, _ in having)
    references.run(key, cases, rounded=rounded, clamped=clamped)


def _is_clamped(file: Written) -> bool:
    return any(c.kind == "weight-clamped" for c in file.conversion.changes)


def _refuse_failed(file: Written, reports: list[ParityReport]) -> None:
    for report in reports:
        if report.verdict is Verdict.PASS:
            continue
        row = next((r for r in report.rows if r.verdict is report.verdict), None)
        cause = f"output {row.output}: {row.message}" if row else "no output was compared"
        if report.verdict is not Verdict.FAIL:
            raise InconclusiveError(
                f"{file.target.name}: nothing is proved: {cause}",
                hint="give real inputs with --inputs data.npz; --no-verify keeps a file unproved",
                where=str(file.target.path),
                details={"parity": [r.to_json() for r in reports]},
            )
        raise VerificationError(
            f"{file.target.name}: the file does not compute what the model computes: {cause}",
            hint="nothing was kept; --no-verify keeps a file unproved",
            where=str(file.target.path),
            details={"parity": [r.to_json() for r in reports]},
        )


def finish(
    out: Output,
    source: SourceOptions,
    produced: Produced,
    inputs: InputOptions,
    targets: list[Target],
) -> ExportResult:
    """The result of what was built in ``out``; a folder gets its manifest."""
    built = out.entries()
    files = []
    for file, reports in produced.files:
        target = file.target
        name = target.building.name
        inside = tuple(
            e for e in built if e.path == name or e.path.startswith((f"{name}/", f"{name}."))
        )
        entries = inside if target.building.parent == out.building else built
        artifact = Artifact(str(target.path), target.name, entries)
        files.append(ExportedFile(artifact, file.conversion, file.contract, tuple(reports)))
    notes = list(dict.fromkeys(n for f in files for n in f.conversion.notes))
    result = ExportResult(
        str(out.path), tuple(files), tuple(produced.described["changes"]), tuple(notes)
    )
    if out.is_directory:
        write_json(
            out.building / MANIFEST, _manifest(result, source, produced.described, inputs, targets)
        )
    return result


def _manifest(
    result: ExportResult,
    source: SourceOptions,
    described: dict[str, Any],
    inputs: InputOptions,
    targets: list[Target],
) -> dict[str, Any]:
    return {
        "schema_version": "1.0",
        "tool": "mpexport",
        "tool_version": __version__,
        "source": {"name": Path(source.path).name, "sha256": digest_of(Path(source.path))},
        "source_options": {k: v for k, v in source.to_json().items() if k != "path"},
        "seed": inputs.seed,
        "versions": described["versions"],
        "changes": described["changes"],
        "artifacts": [_manifest_entry(f, t) for f, t in zip(result.files, targets)],
    }


def _manifest_entry(file: ExportedFile, target: Target) -> dict[str, Any]:
    return {
        "format": file.artifact.format,
        "options": asdict(target.options),
        "files": [asdict(e) for e in file.artifact.files],
        "size_bytes": file.artifact.size_bytes,
        "signatures": [s.to_json() for s in file.conversion.signatures],
        "precision": file.conversion.precision,
        "notes": list(file.conversion.notes),
        "ops": file.contract.ops,
        "facts": file.contract.facts,
        "verified": bool(file.parity),
        "parity": [
            {
                "verdict": p.verdict.value,
                "num_samples": p.num_samples,
                "inputs_sha256": p.inputs_sha256,
                "runtime": p.environment,
                "outputs": {
                    r.output: {"cause": r.cause, "max_abs": r.max_abs, "noise_floor": r.noise_floor}
                    for r in p.rows
                },
            }
            for p in file.parity
        ],
    }
