"""Reports for machines and people beside the result: which, where, and how they get there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from mpexport.errors import UsageError

if TYPE_CHECKING:
    from mpexport.artifacts import Output
    from mpexport.render.parity_document import ParityDocument

_REPORTS = Group("Reports", sort_key=3)


def _file(text: str) -> Parameter:
    return Parameter(help=text, group=_REPORTS, metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Which reports of a comparison are written, whatever its verdict."""

    junit: Annotated[Path | None, _file("Write JUnit XML.")] = None
    markdown: Annotated[Path | None, _file("Write a summary in Markdown.")] = None
    html: Annotated[Path | None, _file("Write a page with plots, for a browser.")] = None
    github: Annotated[
        bool,
        Parameter(
            help="Print annotations for GitHub Actions on standard error.",
            group=_REPORTS,
            negative="",
            show_default=False,
        ),
    ] = False

    @property
    def asked(self) -> bool:
        """Whether any is wanted."""
        return self.github or bool(self._files())

    def keep_off(self, *paths: str) -> None:
        """Refuses to replace what is read.

        Raises:
            UsageError: A report has the path of an input.
        """
        inputs = {os.path.realpath(path) for path in paths}
        for path in self._files().values():
            if os.path.realpath(path) in inputs:
                raise UsageError(f"{path}: the report would replace what is read")

    @contextmanager
    def opened(self) -> Iterator[Reports]:
        """The reports, with their places checked and taken before the work begins.

        Raises:
            OutputError: A place cannot be written to.
            UsageError: Two reports have the same place.
        """
        files = self._files()
        if len({os.path.realpath(path) for path in files.values()}) < len(files):
            raise UsageError("two reports have the same FILE")
        with ExitStack() as stack:
            outputs = {}
            if files:
                from mpexport.artifacts import Output

                for kind, path in files.items():
                    outputs[kind] = stack.enter_context(Output(path, is_directory=False))
            yield Reports(outputs, self.github)

    def _files(self) -> dict[str, Path]:
        places = {"junit": self.junit, "markdown": self.markdown, "html": self.html}
        return {kind: path for kind, path in places.items() if path is not None}


class Reports:
    """Places for reports.

    Args:
        outputs: Kind of report → its place.
        annotate: Whether to print annotations too.
    """

    def __init__(self, outputs: Mapping[str, Output], annotate: bool) -> None:
        self._outputs, self._annotate = outputs, annotate

    def write(self, document: Mapping[str, Any]) -> None:
        """Renders the JSON document of a comparison; each file appears whole or not at all.

        Raises:
            OutputError: A file cannot be written.
        """
        if not self._outputs and not self._annotate:
            return
        from mpexport.errors import OutputError, disk_full
        from mpexport.render import github, parity_document

        view = parity_document.read(document)
        for kind, output in self._outputs.items():
            try:
                output.building.write_text(_renderer(kind)(view), encoding="utf-8")
            except OSError as e:
                error = f"{output.path}: cannot be written: {e.strerror or e}"
                raise disk_full(e) or OutputError(error, where=str(output.path)) from e
            output.commit()
        # GitHub reads commands from both streams; standard output is for the result.
        if self._annotate and sys.stderr is not None:
            sys.stderr.write(github.render(view))
            sys.stderr.flush()


def _renderer(kind: str) -> Callable[[ParityDocument], str]:
    from mpexport.render import html, junit, markdown

    return {"junit": junit.render, "markdown": markdown.render, "html": html.render}[kind]


ReportFiles = Annotated[ReportOptions, Parameter(name="*")]
NO_REPORTS = ReportOptions()
