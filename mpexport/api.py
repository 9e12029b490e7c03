"""The verbs of mpexport: load, check, normalize, convert, export, compare, measure.

Nothing here imports a framework: models and files are touched by worker processes only.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

from mpexport import __version__, formats, parity_runs
from mpexport.artifacts import MANIFEST, Artifact, Output, digest_of, write_json
from mpexport.errors import InputError, UsageError, VerificationError
from mpexport.findings import Verdict
from mpexport.formats import Contract, Conversion, FormatSpec
from mpexport.latency.report import LatencyReport
from mpexport.optional import require_installed
from mpexport.parity.report import ParityReport
from mpexport.precision import PrecisionReport
from mpexport.signature import Signature
from mpexport.sources import SourceOptions, sniff
from mpexport.verify import (
    InputOptions,
    References,
    Written,
    make_cases,
    require_runtime,
    verify_file,
)
from mpexport.worker.parent import DEFAULT_TIMEOUT_S, Worker, make_scratch

Model = Union[str, "os.PathLike[str]", "ModelHandle", Any]


@dataclass(frozen=True)
class RunOptions:
    """How a command runs, whatever it does.

    Attributes:
        timeout_s: Limit for one job of a worker, in seconds.
        debug: Whether the workers' noise goes to standard error.
        progress: Called with a short text whenever something that takes time begins.
    """

    timeout_s: float = DEFAULT_TIMEOUT_S
    debug: bool = False
    progress: Optional[Callable[[str], None]] = None

    def worker(self) -> Worker:
        """A new worker process."""
        return Worker(timeout_s=self.timeout_s, debug=self.debug, on_progress=self.progress)


@dataclass(frozen=True)
class ModelHandle:
    """A source model that was loaded once and found good; the model itself is not kept in memory.

    Attributes:
        source: Where it is and how it is read.
        signatures: All signatures, as they are in the source.
        chosen: The signature that single-signature formats use; None when one must be named.
        notes: What loading had to say.
    """

    source: SourceOptions
    signatures: tuple[Signature, ...]
    chosen: Optional[str]
    notes: tuple[str, ...]
    _keep: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class ExportedFile:
    """One verified file.

    Attributes:
        artifact: Path, size, SHA-256.
        conversion: What it promises.
        contract: What was read back from it.
        parity: One report per signature; empty when verification was switched off.
    """

    artifact: Artifact
    conversion: Conversion
    contract: Contract
    parity: tuple[ParityReport, ...]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            **self.artifact.to_json(),
            "conversion": self.conversion.to_json(),
            "contract": self.contract.to_json(),
            "verified": bool(self.parity),
            "parity": [p.to_json() for p in self.parity],
        }


@dataclass(frozen=True)
class ExportResult:
    """What an export made.

    Attributes:
        path: The file, or the release folder.
        files: One entry per format.
        changes: What normalization changed: pass, kind and count.
        notes: What the user should know.
        manifest: The manifest as it was written, or would have been.
    """

    path: str
    files: tuple[ExportedFile, ...]
    changes: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]
    manifest: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "path": self.path,
            "files": [f.to_json() for f in self.files],
            "changes": list(self.changes),
            "notes": list(self.notes),
        }


def load(
    model: Model,
    *,
    signature: Optional[str] = None,
    tag: Optional[str] = None,
    allow_code: bool = False,
    imports: Sequence[str] = (),
    run: Optional[RunOptions] = None,
) -> ModelHandle:
    """Loads a model in a worker and says what it is.

    Args:
        model: Path of a SavedModel directory, ``.keras`` or ``.h5`` file; or a Keras model,
            ``tf.Module`` or ConcreteFunction of this process.
        signature: Signature key or endpoint name, where there are several.
        tag: Tag set of the MetaGraph, where there are several.
        allow_code: Whether Python that the author put into the file may run.
        imports: Modules that register custom classes.
        run: How to run.

    Raises:
        InputError: Missing or damaged.
        UnsafeModelError: Loading would run the author's code.
        UsageError: A signature or tag must be chosen.
    """
    run = run or RunOptions()
    source, keep = _source(model, signature, tag, allow_code, tuple(imports))
    with run.worker() as worker:
        described = _open(worker, source, "float32")
    return ModelHandle(
        source,
        tuple(Signature.from_json(s) for s in described["original_signatures"].values()),
        described["chosen"],
        tuple(described["notes"]),
        keep,
    )


def _source(
    model: Model,
    signature: Optional[str] = None,
    tag: Optional[str] = None,
    allow_code: bool = False,
    imports: tuple[str, ...] = (),
) -> tuple[SourceOptions, Any]:
    """A source on disk for anything that is a model, and what keeps it there."""
    if isinstance(model, ModelHandle):
        return model.source, model
    keep: Any = None
    if not isinstance(model, (str, os.PathLike)):
        from mpexport.tf.memory import save_in_memory

        keep = save_in_memory(model)
        model = keep.path
    sniff(os.fspath(model))
    require_installed(("tensorflow",), "tensorflow")
    path = os.path.abspath(model)
    return SourceOptions(path, signature, tag, allow_code, imports), keep


def _open(worker: Worker, source: SourceOptions, io_dtype: str) -> dict[str, Any]:
    return worker.call("open", source=source.to_json(), io_dtype=io_dtype, cwd=os.getcwd())


def check(model: Model, *, run: Optional[RunOptions] = None, **source: Any) -> PrecisionReport:
    """Checks what a model computes in which precision; see `load` for the arguments.

    Returns:
        Counts by element type, Casts with their roles, layer policies, literals, findings.
    """
    options, _keep = _source(model, **source)
    with (run or RunOptions()).worker() as worker:
        _open(worker, options, "float32")
        return PrecisionReport.from_json(worker.call("check"))


def normalize(model: Model, output: Union[str, "os.PathLike[str]"], **options: Any) -> ExportResult:
    """Writes the normalized SavedModel; `convert` with the format ``savedmodel``."""
    return convert(model, "savedmodel", output, **options)


@dataclass(frozen=True)
class _Target:
    """One file to make: format or variant name, its options and its place."""

    name: str
    spec: FormatSpec
    options: Any
    building: Path
    path: Path


def _format_options(spec: FormatSpec, values: Mapping[str, Any]) -> Any:
    known = {f for f in spec.options.__dataclass_fields__}
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


def convert(
    model: Model,
    format: str,
    output: Union[str, "os.PathLike[str]", None] = None,
    *,
    verify: bool = True,
    inputs: Optional[InputOptions] = None,
    overwrite: bool = False,
    run: Optional[RunOptions] = None,
    signature: Optional[str] = None,
    tag: Optional[str] = None,
    allow_code: bool = False,
    imports: Sequence[str] = (),
    **options: Any,
) -> ExportResult:
    """Exports a model to one format, and proves the file before it gets its name.

    Args:
        model: See `load`.
        format: Format or variant name, for example ``tflite`` or ``tflite-float16``.
        output: File or folder to write; default: beside the source, named after it.
        verify: Whether to run the file and compare it.
        inputs: Where sample inputs come from.
        overwrite: Whether a folder that isn't ours may be replaced.
        run: How to run.
        signature: See `load`.
        tag: See `load`.
        allow_code: See `load`.
        imports: See `load`.
        **options: Options of the format.

    Raises:
        ConversionError: No faithful file can be made.
        VerificationError: A file was made, but contract or numbers failed; it was not kept.
        OutputError: The output cannot be written.
    """
    spec, values = formats.resolve(format)
    chosen = _format_options(spec, {**values, **options})
    source, _keep = _source(model, signature, tag, allow_code, tuple(imports))
    if output is None:
        if not isinstance(model, (str, os.PathLike)):
            raise UsageError("an output path is needed for a model in memory")
        output = default_output(source.path, format)
    out = Output(
        Path(output), is_directory=spec.is_directory, overwrite=overwrite, sources=(Path(source.path),)
    )
    with out:
        target = _Target(format, spec, chosen, out.building, out.path)
        produced = _produce(source, [target], verify, inputs or InputOptions(), run or RunOptions())
        result = _result(out, source, produced, inputs or InputOptions(), [target])
        if spec.is_directory:
            write_json(out.building / MANIFEST, result.manifest)
        out.commit()
    return result


def export(
    model: Model,
    output: Union[str, "os.PathLike[str]"],
    formats_wanted: Sequence[str] = ("savedmodel", "tflite", "tflite-float16", "onnx"),
    *,
    verify: bool = True,
    inputs: Optional[InputOptions] = None,
    overwrite: bool = False,
    run: Optional[RunOptions] = None,
    signature: Optional[str] = None,
    tag: Optional[str] = None,
    allow_code: bool = False,
    imports: Sequence[str] = (),
    options: Optional[Mapping[str, Mapping[str, Any]]] = None,
) -> ExportResult:
    """Exports a model to several formats, into one release folder with a manifest.

    Args:
        model: See `load`.
        output: The folder; it appears whole or not at all.
        formats_wanted: Format or variant names.
        verify: See `convert`.
        inputs: See `convert`.
        overwrite: See `convert`.
        run: How to run.
        signature: See `load`.
        tag: See `load`.
        allow_code: See `load`.
        imports: See `load`.
        options: Format name → option values.
    """
    if not formats_wanted:
        raise UsageError("no formats to export to")
    if len(set(formats_wanted)) != len(formats_wanted):
        raise UsageError(f"a format is named twice: {', '.join(formats_wanted)}")
    source, _keep = _source(model, signature, tag, allow_code, tuple(imports))
    out = Output(
        Path(output), is_directory=True, overwrite=overwrite, sources=(Path(source.path),)
    )
    with out:
        targets = []
        out.building.mkdir()
        for name in formats_wanted:
            spec, values = formats.resolve(name)
            chosen = _format_options(spec, {**values, **(options or {}).get(spec.name, {})})
            file = file_name(source.path, name)
            targets.append(_Target(name, spec, chosen, out.building / file, out.path / file))
        produced = _produce(source, targets, verify, inputs or InputOptions(), run or RunOptions())
        result = _result(out, source, produced, inputs or InputOptions(), targets)
        write_json(out.building / MANIFEST, result.manifest)
        out.commit()
    return result


def file_name(source: str, name: str) -> str:
    """``model.keras``, ``tflite-float16`` → ``model_float16.tflite``."""
    spec, _ = formats.resolve(name)
    variant = name.removeprefix(spec.name).replace("-", "_")
    return f"{_stem(source)}{variant}{spec.suffix}"


def _stem(source: str) -> str:
    path = Path(source)
    return path.stem if path.suffix in (".keras", ".h5", ".hdf5") else path.name


def default_output(source: str, name: str) -> Path:
    """Beside the source, named after it."""
    spec, _ = formats.resolve(name)
    return Path(source).parent / f"{_stem(source)}{spec.suffix}"


@dataclass(frozen=True)
class _Produced:
    described: dict[str, Any]
    files: list[tuple[Written, list[ParityReport]]]


def _produce(
    source: SourceOptions,
    targets: list[_Target],
    verify: bool,
    inputs: InputOptions,
    run: RunOptions,
) -> _Produced:
    """Converts all targets in one worker, then runs each file in a worker of its own."""
    for target in targets:
        require_installed(target.spec.modules, target.spec.extra)
        if verify:
            require_runtime(target.spec.name)
    io_dtype = next((t.options.io_dtype for t in targets if hasattr(t.options, "io_dtype")), "float32")
    with ExitStack() as stack:
        scratch = make_scratch()
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        with run.worker() as worker:
            described = _open(worker, source, io_dtype)
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
                with run.worker() as worker:
                    keys = [s.key for s in file.conversion.signatures if s.key in references.cases]
                    for key in keys:
                        reports.append(
                            verify_file(file, key, references, worker, source.path, inputs.seed)
                        )
                _refuse_failed(file, reports)
            files.append((file, reports))
    return _Produced(described, files)


def _convert(worker: Worker, target: _Target, *, is_last_use: bool) -> Written:
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
    return Written(
        target.name, target.spec.name, target.building, target.path, conversion, contract
    )


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
    having = [
        (f, s) for f in written for s in f.conversion.signatures if s.key == key
    ]
    signature = Signature.from_json(described["original_signatures"][key])
    cases = make_cases(signature, [s for _, s in having], inputs, described["ranges"][key])
    rounded = any(f.conversion.precision == "float16-weights" for f, _ in having)
    references.run(key, cases, rounded=rounded)


def _refuse_failed(file: Written, reports: list[ParityReport]) -> None:
    for report in reports:
        if report.verdict is Verdict.PASS:
            continue
        row = next((r for r in report.rows if r.verdict is not Verdict.PASS), None)
        cause = f"output {row.output}: {row.message}" if row else "no output was compared"
        raise VerificationError(
            f"{file.name}: the written file does not compute what the model computes: {cause}",
            hint="nothing was kept; --no-verify keeps a file unproved",
            where=str(file.path),
            details={"parity": [r.to_json() for r in reports]},
        )


def _result(
    out: Output,
    source: SourceOptions,
    produced: _Produced,
    inputs: InputOptions,
    targets: list[_Target],
) -> ExportResult:
    whole = out.artifact("release")
    files = []
    for file, reports in produced.files:
        base = file.building if file.building.is_dir() else file.building.parent
        if out.is_directory and file.building != out.building:
            prefix = file.building.name
            entries = tuple(
                e for e in whole.files if e.path == prefix or e.path.startswith((f"{prefix}/", f"{prefix}."))
            )
        else:
            del base
            entries = whole.files
        artifact = Artifact(str(file.path), file.name, entries)
        files.append(ExportedFile(artifact, file.conversion, file.contract, tuple(reports)))
    notes = list(dict.fromkeys(n for f in files for n in f.conversion.notes))
    manifest = {
        "schema_version": "1.0",
        "tool": "mpexport",
        "tool_version": __version__,
        "source": {"name": Path(source.path).name, "sha256": digest_of(Path(source.path))},
        "source_options": {k: v for k, v in source.to_json().items() if k != "path"},
        "seed": inputs.seed,
        "versions": produced.described["versions"],
        "changes": produced.described["changes"],
        "artifacts": [_manifest_entry(f, t) for f, t in zip(files, targets)],
    }
    return ExportResult(
        str(out.path), tuple(files), tuple(produced.described["changes"]), tuple(notes), manifest
    )


def _manifest_entry(file: ExportedFile, target: _Target) -> dict[str, Any]:
    return {
        "format": file.artifact.format,
        "options": asdict(target.options),
        "files": [asdict(e) for e in file.artifact.files],
        "size_bytes": file.artifact.size_bytes,
        "signatures": [s.to_json() for s in file.conversion.signatures],
        "precision": file.conversion.precision,
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


def compare(
    reference: Model,
    candidates: Iterable[Union[str, "os.PathLike[str]"]],
    *,
    inputs: Optional[InputOptions] = None,
    tolerances: Any = None,
    num_threads: int = 1,
    run: Optional[RunOptions] = None,
    **source: Any,
) -> list[ParityReport]:
    """Compares exported files with a reference, output by output, by name.

    Args:
        reference: A source model (compared in float64, with the trained model's own error as noise
            floor), or an exported file (two runs only).
        candidates: Exported files.
        inputs: Where sample inputs come from.
        tolerances: A `Tolerance`, or one per output name; default: by the candidate's precision.
        num_threads: Threads of the candidates' runtimes.
        run: How to run.
        **source: See `load`; for a source model.

    Returns:
        One report per candidate; each is true when it passed.
    """
    paths = [Path(c) for c in candidates]
    if not paths:
        raise UsageError("nothing to compare: name at least one candidate")
    files = [parity_runs.candidate(path) for path in paths]
    options = inputs or InputOptions()
    how = run or RunOptions()
    if isinstance(reference, (str, os.PathLike)) and parity_runs.is_exported_file(Path(reference)):
        return parity_runs.against_file(
            Path(reference), files, options, tolerances, num_threads, how.worker
        )
    model, _keep = _source(reference, **source)
    return parity_runs.against_model(
        model, lambda w: _open(w, model, "float32"), files, options, tolerances, num_threads, how.worker
    )


def measure(
    file: Union[str, "os.PathLike[str]"],
    *,
    inputs: Optional[InputOptions] = None,
    batch: int = 1,
    num_threads: int = 1,
    warmup_runs: int = 5,
    num_runs: int = 50,
    min_secs: float = 1.0,
    max_secs: float = 30.0,
    run: Optional[RunOptions] = None,
) -> LatencyReport:
    """Times an exported file in its runtime: load, first inference, steady state.

    Args:
        file: TFLite or ONNX file, or SavedModel directory.
        inputs: Where sample inputs come from.
        batch: Size of a dynamic leading axis.
        num_threads: Threads of the runtime.
        warmup_runs: Runs that are not counted.
        num_runs: Least number of counted runs.
        min_secs: Least measuring time, in seconds.
        max_secs: Time at which measuring stops, in seconds.
        run: How to run.
    """
    place = Path(file)
    spec = formats.detect(place)
    if spec is None:
        if not place.exists():
            raise InputError(f"{file}: no such file or directory", where=str(file))
        raise InputError(f"{file}: is no exported file", hint="expected TFLite, ONNX or a SavedModel")
    require_runtime(spec.name)
    timing = {
        "warmup_runs": warmup_runs,
        "num_runs": num_runs,
        "min_secs": min_secs,
        "max_secs": max_secs,
    }
    with (run or RunOptions()).worker() as worker:
        return parity_runs.measure(
            worker, spec.name, place, inputs or InputOptions(), batch, num_threads, timing
        )


def assert_parity(reference: Model, *candidates: Union[str, "os.PathLike[str]"], **options: Any) -> None:
    """For a test suite: fails unless every candidate computes what the reference computes.

    Args:
        reference: See `compare`.
        *candidates: Exported files.
        **options: See `compare`.

    Raises:
        AssertionError: A candidate does not pass; the message says which output and how far off.
    """
    for report in compare(reference, candidates, **options):
        lines = [
            f"{report.candidate}: {row.output}: {row.message}"
            for row in report.rows
            if row.verdict is not Verdict.PASS
        ]
        if not report:
            raise AssertionError("\n".join(lines) or f"{report.candidate}: nothing was compared")
