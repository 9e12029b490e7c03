"""Options that several commands share, and their way into the library's own option classes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from mpexport.errors import InputError, UsageError

if TYPE_CHECKING:
    from mpexport.parity.cases import InputOptions
    from mpexport.parity.streams import Stream

# poll(2) counts milliseconds in 32 bits: 24 days.
MAX_TIMEOUT_S = 2_000_000.0
DEFAULT_TIMEOUT_S = 3600.0

_MODEL = Group("Model", sort_key=1)
_SAMPLES = Group("Sample inputs", sort_key=2)
_EXPORT = Group("Export", sort_key=3)
_RUN = Group("Run and report", sort_key=4)

Positive = Number(gte=1)
ModelPath = Annotated[
    str, Parameter(help="SavedModel directory, .keras or .h5 file.", metavar="MODEL")
]


def _flag(text: str, group: Group, *alias: str, negative: str = "") -> Parameter:
    return Parameter(help=text, group=group, alias=alias, negative=negative, show_default=False)


def _value(text: str, group: Group, metavar: str, **more: Any) -> Parameter:
    return Parameter(help=text, group=group, metavar=metavar, **more)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How a source model is read."""

    signature: Annotated[
        str | None, _value("Signature to use, where there are several.", _MODEL, "NAME")
    ] = None
    tag: Annotated[
        str | None, _value("Tag set to use, where there are several.", _MODEL, "TAG")
    ] = None
    allow_code: Annotated[
        bool, _flag("Run Python code that the model's author put into the file.", _MODEL)
    ] = False
    imports: Annotated[
        tuple[str, ...],
        _value(
            "Import a module that registers custom classes; repeatable.",
            _MODEL,
            "MODULE",
            name="--import",
            show_default=False,
        ),
    ] = ()

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the library's functions that take a model."""
        return {
            "signature": self.signature,
            "tag": self.tag,
            "allow_code": self.allow_code,
            "imports": self.imports,
        }


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """Where sample inputs come from."""

    inputs: Annotated[
        str | None,
        _value(
            "Arrays by input name, samples along the first axis: .npz, a folder of .npz or .npy, a "
            "saved tf.data dataset, or MODULE:FUNCTION that gives batches; with --preprocess, a "
            "folder of files.",
            _SAMPLES,
            "DATA",
        ),
    ] = None
    preprocess: Annotated[
        str | None,
        _value("Makes a sample of the path of a file.", _SAMPLES, "MODULE:FUNCTION"),
    ] = None
    input_range: Annotated[
        tuple[str, ...],
        _value(
            "Range of made-up values of one input, for example ids:0..30521; repeatable.",
            _SAMPLES,
            "NAME:LO..HI",
            show_default=False,
        ),
    ] = ()
    seed: Annotated[
        int, _value("Seed of made-up inputs.", _SAMPLES, "N", validator=Number(gte=0))
    ] = 0

    def to_library(self) -> InputOptions:
        """The library's form.

        Raises:
            InputError: There are no such data.
            UsageError: A function isn't there; a range is malformed or given twice.
        """
        from mpexport.parity.cases import InputOptions
        from mpexport.parity.inputs import parse_range

        ranges: dict[str, tuple[float, float]] = {}
        for text in self.input_range:
            name, low, high = parse_range(text)
            if name in ranges:
                raise UsageError(f"--input-range {text}: input {name!r} has a range already")
            ranges[name] = (low, high)
        return InputOptions(data=self._data(), ranges=ranges or None, seed=self.seed)

    def _data(self) -> str | Stream | None:
        from mpexport.parity.streams import load_function, of_files

        if self.preprocess is not None:
            if self.inputs is None:
                raise UsageError("--preprocess needs a folder of files: --inputs FOLDER")
            return of_files(Path(self.inputs), load_function("--preprocess", self.preprocess))
        if self.inputs is None or os.path.exists(self.inputs):
            return self.inputs
        if ":" in self.inputs:
            return load_function("--inputs", self.inputs)
        raise InputError(f"{self.inputs}: no such file or directory", where=self.inputs)


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """How an export is written."""

    verify: Annotated[
        bool,
        _flag(
            "Run the written file and compare it with the model (the default), or don't.",
            _EXPORT,
            negative="--no-verify",
        ),
    ] = True
    overwrite: Annotated[bool, _flag("Replace a folder that mpexport didn't make.", _EXPORT)] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a command runs and what it prints."""

    timeout: Annotated[
        float,
        _value(
            "Limit for one step of the work.",
            _RUN,
            "SECONDS",
            show_default=lambda seconds: f"{seconds:g}",
        ),
    ] = DEFAULT_TIMEOUT_S
    json: Annotated[bool, _flag("Print one JSON document.", _RUN)] = False
    quiet: Annotated[bool, _flag("Print nothing on success.", _RUN, "-q")] = False
    verbose: Annotated[bool, _flag("Print details, and each step as it begins.", _RUN, "-v")] = (
        False
    )
    debug: Annotated[
        bool, _flag("Show tracebacks, and all that converters and runtimes print.", _RUN)
    ] = False

    def checked_timeout(self) -> float:
        """The time limit in seconds.

        Raises:
            UsageError: Not a positive number, or more than a month.
        """
        if not 0 < self.timeout <= MAX_TIMEOUT_S:
            raise UsageError(f"--timeout {self.timeout:g}: need 0 < SECONDS <= {MAX_TIMEOUT_S:.0f}")
        return self.timeout


Model = Annotated[ModelOptions, Parameter(name="*")]
Samples = Annotated[SampleOptions, Parameter(name="*")]
Write = Annotated[WriteOptions, Parameter(name="*")]
Run = Annotated[RunOptions, Parameter(name="*")]
NO_MODEL = ModelOptions()
NO_SAMPLES = SampleOptions()
NO_WRITE = WriteOptions()
NO_RUN = RunOptions()
