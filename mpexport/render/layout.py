"""Blocks of text and their look: on a terminal as wide as it is, in a pipe as wide as needed."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# Wider than any line: what goes into a pipe is never wrapped.
_UNLIMITED = 1_000_000
_STYLES = {
    "PASS": "green",
    "FAIL": "bold red",
    "INCONCLUSIVE": "yellow",
    "error": "bold red",
    "warning": "yellow",
}


@dataclass(frozen=True)
class Facts:
    """A heading, and below it one line per fact.

    Attributes:
        title: The heading; empty for none.
        pairs: Name and value; an empty name continues the one before.
    """

    title: str
    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Table:
    """Rows under column titles.

    Attributes:
        columns: Titles; one that starts with ``>`` is aligned to the right.
        rows: Cells.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


Block = Union[str, Facts, Table]


def one_line(text: str) -> str:
    r"""The text on one line, with escapes for what its reader would take as a command.

    Terminals read control characters; GitHub Actions reads ``::`` at the start of a line of the log
    and ``##[`` anywhere in it.

    >>> one_line("layer \x1b[2J\nof a model")
    'layer \\x1b[2J of a model'
    >>> one_line("::error::of a model")
    '\\x3a:error::of a model'
    """
    flat = " ".join(text.splitlines()).replace("##[", r"##\x5b")
    if flat.lstrip().startswith("::"):
        flat = flat.replace(":", r"\x3a", 1)
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in flat
    )


def to_text(blocks: Iterable[Block], *, is_terminal: bool) -> str:
    """Renders blocks: for a terminal with colors and wrapped, else plain and as wide as needed."""
    from rich.console import Console

    buffer = io.StringIO()
    console = Console(
        file=buffer,
        # Said explicitly: otherwise FORCE_COLOR puts escapes into pipes and files.
        force_terminal=is_terminal,
        width=None if is_terminal else _UNLIMITED,
        markup=False,
        highlight=False,
        emoji=False,
    )
    for block in blocks:
        _print(console, block)
    return "".join(line.rstrip() + "\n" for line in buffer.getvalue().split("\n")[:-1])


def plain(blocks: Iterable[Block]) -> str:
    """Renders blocks without rich, which old devices lack: no colors, as wide as needed."""
    lines: list[str] = []
    for block in blocks:
        if isinstance(block, str):
            lines.append(one_line(block))
        elif isinstance(block, Facts):
            lines += [one_line(block.title)] if block.title else []
            lines += _columns([("  " + name, value) for name, value in block.pairs], ())
        else:
            titles = tuple(title.lstrip(">") for title in block.columns)
            right = [i for i, title in enumerate(block.columns) if title.startswith(">")]
            lines += _columns([titles, *map(tuple, block.rows)], right)
    return "".join(line.rstrip() + "\n" for line in lines)


def _columns(rows: Sequence[tuple[str, ...]], right: Iterable[int]) -> list[str]:
    cells = [[one_line(cell) if cell.strip() else cell for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        )
        for row in cells
    ]


def _print(console: Console, block: Block) -> None:
    from rich import table

    if isinstance(block, str):
        console.print(_styled(block))
        return
    if isinstance(block, Facts):
        if block.title:
            console.print(_styled(block.title))
        grid = table.Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in block.pairs:
            grid.add_row("  " + one_line(name), _styled(value))
        console.print(grid)
        return
    grid = table.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in block.columns:
        if title.startswith(">"):
            grid.add_column(title[1:], justify="right", no_wrap=True)
        else:
            grid.add_column(title, overflow="fold")
    for row in block.rows:
        grid.add_row(*(_styled(cell) for cell in row))
    console.print(grid)


def _styled(text: str) -> Text:
    from rich.text import Text

    clean = one_line(text)
    return Text(clean, style=_STYLES.get(clean.partition(" ")[0].rstrip(":"), ""))
