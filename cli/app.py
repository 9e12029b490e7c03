"""The table of commands. Nothing here imports what the commands need."""

from __future__ import annotations

from cyclopts import App, Group, Parameter
from cyclopts.config import Env

from mpexport import __version__

from .export_commands import add_format_commands

EPILOGUE = (
    "Every option also reads an environment variable: --num-runs is MPEXPORT_NUM_RUNS. "
    "COMMAND --help lists the options of a command."
)


def build_app() -> App:
    """The parser, one subcommand per export format included."""
    app = App(
        name="mpexport",
        help="Ship TensorFlow/Keras models trained in mixed precision.",
        help_epilogue=EPILOGUE,
        help_format="plaintext",
        version=f"mpexport {__version__}",
        config=Env("MPEXPORT_", command=False, show=False),
        default_parameter=Parameter(negative_iterable="", json_list=False, json_dict=False),
        group_parameters=Group("Options", sort_key=0),
        print_error=False,
        exit_on_error=False,
    )
    app.command(
        f"{__package__}.check:check",
        name="check",
        help="Tell what a model computes in which precision, and what may go wrong.",
    )
    add_format_commands(app)
    app.command(
        f"{__package__}.export_commands:export",
        name="export",
        help="Export a model to several formats, into one release folder with a manifest.",
    )
    app.command(
        f"{__package__}.inspect:inspect",
        name="inspect",
        help="Tell what exported files hold and which runtime they need.",
    )
    app.command(
        f"{__package__}.parity:app",
        name="parity",
        help="Compare exported files with a model, or with another exported file.",
    )
    app.command(
        f"{__package__}.report:report",
        name="report",
        help="Make reports of a comparison from its stored JSON document.",
    )
    app.command(
        f"{__package__}.bench:bench",
        name="bench",
        help="Time exported files: load, first inference, steady state.",
    )
    return app
