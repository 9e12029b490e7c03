"""Standard streams, which may be closed."""

from __future__ import annotations

from typing import TextIO


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person watches; ``>&-`` makes a stream None."""
    return stream is not None and stream.isatty()
