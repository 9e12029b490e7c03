"""The verbs of mpexport: load, check, normalize, convert, export, inspect, compare, measure.

Nothing here imports a framework: models and files are touched by worker processes only.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Optional, Union

from mpexport import comparing, exported, formats
from mpexport.artifacts import Output
from mpexport.errors import UsageError
from mpexport.exported import exported_file, format_of, is_exported_file
from mpexport.exporting import (
    Target,
    default_output,
    file_name,
    finish,
    format_options,
    open_source,
    produce,
)
from mpexport.inspection import FileReport, inspect_file
from mpexport.latency.report import LatencyReport
from mpexport.optional import require_installed
from mpexport.parity.cases import InputOptions
from mpexport.parity.gate import Gate
from mpexport.parity.partial import Partial, Shard
from mpexport.parity.report import ParityReport
from mpexport.precision import PrecisionReport
from mpexport.reference import FileReference, ModelReference, Reference
from mpexport.render import parity_text
from mpexport.results import ExportResult, ModelHandle, RunOptions
from mpexport.runtime_choice import parse_choice
from mpexport.signature import Signature
from mpexport.sources import SourceOptions, sniff
from mpexport.worker.parent import Worker

Model = Union[str, "os.PathLike[str]", "ModelHandle", Any]


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
        described = open_source(worker, source, "float32")
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


def check(model: Model, *, run: Optional[RunOptions] = None, **source: Any) -> PrecisionReport:
    """Checks what a model computes in which precision; see `load` for the arguments.

    Returns:
        Counts by element type, Casts with their roles, layer policies, literals, findings.
    """
    options, _keep = _source(model, **source)
    with (run or RunOptions()).worker() as worker:
        open_source(worker, options, "float32")
        return PrecisionReport.from_json(worker.call("check"))


def normalize(model: Model, output: Union[str, os.PathLike[str]], **options: Any) -> ExportResult:
    """Writes the normalized SavedModel; `convert` with the format ``savedmodel``."""
    return convert(model, "savedmodel", output, **options)


def convert(
    model: Model,
    format: str,
    output: Union[str, os.PathLike[str], None] = None,
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
    chosen = format_options(spec, {**values, **options})
    source, _keep = _source(model, signature, tag, allow_code, tuple(imports))
    if output is None:
        if not isinstance(model, (str, os.PathLike)):
            raise UsageError("an output path is needed for a model in memory")
        output = default_output(source.path, spec, chosen)
    out = Output(
        Path(output),
        is_directory=spec.is_directory,
        overwrite=overwrite,
        sources=(Path(source.path),),
    )
    with out:
        target = Target(format, spec, chosen, out.building, out.path)
        produced = produce(source, [target], verify, inputs or InputOptions(), run or RunOptions())
        result = finish(out, source, produced, inputs or InputOptions(), [target])
        out.commit()
    return result


def export(
    model: Model,
    output: Union[str, os.PathLike[str]],
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
    out = Output(Path(output), is_directory=True, overwrite=overwrite, sources=(Path(source.path),))
    with out:
        targets = []
        out.building.mkdir()
        for name in formats_wanted:
            spec, values = formats.resolve(name)
            chosen = format_options(spec, {**values, **(options or {}).get(spec.name, {})})
            file = file_name(source.path, name)
            targets.append(Target(name, spec, chosen, out.building / file, out.path / file))
        produced = produce(source, targets, verify, inputs or InputOptions(), run or RunOptions())
        result = finish(out, source, produced, inputs or InputOptions(), targets)
        out.commit()
    return result


def inspect(file: Union[str, os.PathLike[str]]) -> FileReport:
    """Tells what a TFLite or ONNX file holds, and which runtime it needs.

    Args:
        file: Its path.

    Raises:
        InputError: Missing, damaged, or no format of ours.
        UsageError: A SavedModel, which `check` tells of.
    """
    return inspect_file(Path(file), format_of(Path(file)).name)


def compare(
    reference: Model,
    candidates: Iterable[Union[str, os.PathLike[str]]],
    *,
    inputs: Optional[InputOptions] = None,
    gate: Optional[Gate] = None,
    runtimes: Iterable[str] = (),
    num_threads: int = 1,
    run: Optional[RunOptions] = None,
    **source: Any,
) -> list[ParityReport]:
    """Compares exported files with a reference, output by output, by name.

    Args:
        reference: A source model (compared in float64, with the trained model's own error as noise
            floor), or an exported file (two runs only).
        candidates: Exported files.
        inputs: Where sample inputs come from. Without data they are made up, so as to try the
            model's corners, see `mpexport.parity.stress`.
        gate: What the candidates must hold: bounds, further limits, least number of samples.
            Default: the bound of the candidate's precision.
        runtimes: Runtimes to run the candidates in, as ``NAME[:KEY=VALUE,…]``, for example
            ``litert:xnnpack=off``; each runs the candidates of its formats. Default: the preferred
            one.
        num_threads: Threads of the candidates' runtimes.
        run: How to run.
        **source: See `load`; for a source model.

    Returns:
        One report per candidate and runtime; each is true when it passed.
    """
    parts = compare_part(
        reference,
        candidates,
        inputs=inputs,
        gate=gate,
        runtimes=runtimes,
        num_threads=num_threads,
        run=run,
        **source,
    )
    return [part.report() for part in parts]


def compare_part(
    reference: Model,
    candidates: Iterable[Union[str, os.PathLike[str]]],
    *,
    shard: Optional[Shard] = None,
    inputs: Optional[InputOptions] = None,
    gate: Optional[Gate] = None,
    runtimes: Iterable[str] = (),
    num_threads: int = 1,
    run: Optional[RunOptions] = None,
    **source: Any,
) -> list[Partial]:
    """One shard of `compare`, to be merged with the others: `mpexport.parity.partial.merge`.

    Args:
        reference: See `compare`.
        candidates: See `compare`.
        shard: Which cases to run; all by default.
        inputs: See `compare`.
        gate: See `compare`.
        runtimes: See `compare`.
        num_threads: See `compare`.
        run: See `compare`.
        **source: See `compare`.

    Returns:
        One per candidate and runtime; ``report()`` gives what it shows by itself.
    """
    paths = [Path(c) for c in candidates]
    if not paths:
        raise UsageError("nothing to compare: name at least one candidate")
    plan = comparing.planned(paths, [parse_choice(text) for text in runtimes], num_threads)
    open_reference: Callable[[Worker, Path], Reference]
    if isinstance(reference, (str, os.PathLike)) and is_exported_file(Path(reference)):
        place = Path(reference)
        open_reference = functools.partial(FileReference, place)
    else:
        model, _keep = _source(reference, **source)
        open_reference = functools.partial(ModelReference, model, open_source)
    return comparing.compare(
        open_reference,
        plan,
        inputs or InputOptions(),
        gate or Gate(),
        run or RunOptions(),
        shard=shard,
    )


def measure(
    file: Union[str, os.PathLike[str]],
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
    place = exported_file(Path(file), num_threads=num_threads)
    timing = {
        "warmup_runs": warmup_runs,
        "num_runs": num_runs,
        "min_secs": min_secs,
        "max_secs": max_secs,
    }
    with (run or RunOptions()).worker() as worker:
        return exported.measure(worker, place, inputs or InputOptions(), batch, timing)


def assert_parity(
    reference: Model, *candidates: Union[str, os.PathLike[str]], **options: Any
) -> None:
    """For a test suite: fails unless every candidate computes what the reference computes.

    Args:
        reference: See `compare`.
        *candidates: Exported files.
        **options: See `compare`.

    Raises:
        AssertionError: A candidate does not pass; the message is a table of its outputs.
    """
    message = parity_text.failure(compare(reference, candidates, **options))
    if message:
        raise AssertionError(message)
