"""``export``, and one subcommand per export format, made from the format's own declaration."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from cyclopts import App, Parameter, Token

from mpexport import dtypes, formats
from mpexport.errors import UsageError
from mpexport.formats import FormatSpec
from mpexport.plugins import did_you_mean
from mpexport.render import text

from .options import (
    NO_MODEL,
    NO_RUN,
    NO_SAMPLES,
    NO_WRITE,
    Model,
    ModelPath,
    Run,
    Samples,
    Write,
)
from .outcome import Outcome, warn
from .progress import library_options

if TYPE_CHECKING:
    from mpexport.results import ExportResult

DEFAULT_FORMATS = "savedmodel,tflite,tflite-float16,onnx"


def export(
    model: ModelPath,
    /,
    *,
    output: Annotated[str, Parameter(alias="-o", help="Folder to make.", metavar="DIR")],
    wanted: Annotated[
        str, Parameter(name="--formats", help="What to make, by comma.", metavar="NAME,NAME")
    ] = DEFAULT_FORMATS,
    source: Model = NO_MODEL,
    samples: Samples = NO_SAMPLES,
    write: Write = NO_WRITE,
    run: Run = NO_RUN,
) -> Outcome:
    """Exports a model to several formats, into one release folder with a manifest."""
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    for name in names:  # before anything else is looked at
        formats.resolve(name)
    inputs = samples.to_library()
    with library_options(run) as how:
        from mpexport import api

        result = api.export(
            model,
            output,
            names,
            verify=write.verify,
            inputs=inputs,
            overwrite=write.overwrite,
            run=how,
            **source.arguments(),
        )
    return _outcome(result, text.release(result, verbose=run.verbose))


def _outcome(result: ExportResult, blocks: Sequence[Any]) -> Outcome:
    warnings = [warn("note", note, result.path) for note in result.notes]
    warnings += [
        warn("not-verified", "the file was not run: --no-verify", file.artifact.path)
        for file in result.files
        if not file.parity
    ]
    return Outcome(result.to_json(), blocks, warnings)


def add_format_commands(app: App) -> None:
    """Adds a subcommand for every format there is."""
    for spec in formats.all_formats().values():
        command = App(
            name=spec.name,
            help=f"Export a model to one {spec.title}, and prove it.",
            default_command=_format_command(spec),
        )
        app.command(command, alias=spec.aliases)


def _format_command(spec: FormatSpec) -> Callable[..., Outcome]:
    """A function whose signature is that of `_convert`, with the format's options in place."""

    def command(*args: Any, **kwargs: Any) -> Outcome:
        return _convert(spec, *args, **kwargs)

    shared = list(inspect.signature(_convert, eval_str=True).parameters.values())
    own = [*_option_parameters(spec), *_variant_flags(spec)]
    # `spec` comes first and the format's options come last; the model and the output lead.
    signature = inspect.Signature([*shared[1:3], *own, *shared[3:-1]])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {}
    return command


def _convert(
    spec: FormatSpec,
    model: ModelPath,
    /,
    *,
    output: Annotated[
        str | None,
        Parameter(alias="-o", help="What to write; default: beside the model.", metavar="PATH"),
    ] = None,
    source: Model = NO_MODEL,
    samples: Samples = NO_SAMPLES,
    write: Write = NO_WRITE,
    run: Run = NO_RUN,
    **options: Any,
) -> Outcome:
    """Exports a model to one format. ``options`` holds only what the user gave."""
    values = _apply_variants(spec, options)
    inputs = samples.to_library()
    with library_options(run) as how:
        from mpexport import api

        result = api.convert(
            model,
            spec.name,
            output,
            verify=write.verify,
            inputs=inputs,
            overwrite=write.overwrite,
            run=how,
            **source.arguments(),
            **values,
        )
    return _outcome(result, text.exported(result, verbose=run.verbose))


def _option_parameters(spec: FormatSpec) -> list[inspect.Parameter]:
    """The fields of a format's options class as parameters of a command."""
    hints = get_type_hints(spec.options)
    parameters = []
    for field in dataclasses.fields(spec.options):
        choices = field.metadata.get("choices")
        about = field.metadata.get("help", "")
        shown = Parameter(
            help=f"{about} Repeatable.".lstrip() if field.default == () else about,
            metavar=field.metadata.get("metavar") or ("|".join(choices) if choices else None),
            converter=_chooser(choices) if choices else None,
            negative="" if field.default is False else None,
            show_default=field.default not in (None, (), False),
        )
        parameters.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=Annotated[hints[field.name], shown],
            )
        )
    return parameters


def _chooser(choices: Sequence[str]) -> Callable[[Any, Sequence[Token]], str]:
    """A converter that takes any usual spelling of an element type for the one in ``choices``."""

    def choose(kind: Any, tokens: Sequence[Token]) -> str:
        value = dtypes.canonical(tokens[0].value)
        if value not in choices:
            raise ValueError(f"{tokens[0].value!r}: {did_you_mean(value, choices)}")
        return value

    return choose


def _flags(spec: FormatSpec) -> dict[str, dict[str, Any]]:
    """Short forms of option values: the variant ``tflite-float16`` makes the flag ``float16``."""
    return {
        name.removeprefix(f"{spec.name}-").replace("-", "_"): dict(values)
        for name, values in spec.variants.items()
    }


def _variant_flags(spec: FormatSpec) -> list[inspect.Parameter]:
    parameters = []
    for flag, values in _flags(spec).items():
        long = " ".join(f"{_spelled(k)} {v}" for k, v in values.items())
        shown = Parameter(help=f"Short for {long}.", negative="", show_default=False)
        parameters.append(
            inspect.Parameter(
                flag,
                inspect.Parameter.KEYWORD_ONLY,
                default=False,
                annotation=Annotated[bool, shown],
            )
        )
    return parameters


def _spelled(name: str) -> str:
    return "--" + name.replace("_", "-")


def _apply_variants(spec: FormatSpec, given: dict[str, Any]) -> dict[str, Any]:
    """Replaces variant flags by what they stand for.

    Raises:
        UsageError: A flag and an option contradict each other.
    """
    flags = _flags(spec)
    options = {name: value for name, value in given.items() if name not in flags}
    for flag in [name for name in flags if given.get(name)]:
        for name, value in flags[flag].items():
            if options.setdefault(name, value) != value:
                raise UsageError(
                    f"{_spelled(flag)} and {_spelled(name)} {options[name]} contradict each other"
                )
    return options
