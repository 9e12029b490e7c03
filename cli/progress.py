"""What is being done, for a person who waits: one line on the terminal that erases itself."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mpexport.render.layout import one_line

from .options import RunOptions
from .streams import is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress as Live

    from mpexport.results import RunOptions as LibraryOptions

# Shorter work needs no line.
DELAY_S = 2.0


class Progress:
    """Steps of the work, as a context.

    Args:
        line: Whether to show the current step and the seconds so far, after `DELAY_S`.
        log: Whether to print each step for good.
    """

    def __init__(self, *, line: bool, log: bool) -> None:
        self._log = log
        self._text = ""
        self._start = time.monotonic()
        self._lock = threading.Lock()
        self._is_over = False
        self._live: Live | None = None
        self._timer = threading.Timer(DELAY_S, self._show) if line else None

    def __enter__(self) -> Progress:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._is_over = True
            if self._timer is not None:
                self._timer.cancel()
            if self._live is not None:
                self._live.stop()

    def say(self, text: str) -> None:
        """A new step begins."""
        with self._lock:
            self._text = one_line(text)
            if self._live is not None:
                self._live.update(self._live.task_ids[0], description=self._text)
            if self._log:
                line = f"[{time.monotonic() - self._start:.0f} s] {self._text}"
                if self._live is not None:  # it must come above the moving line
                    self._live.console.print(line, soft_wrap=True)
                else:
                    sys.stderr.write(line + "\n")
                    sys.stderr.flush()

    def _show(self) -> None:
        """Starts the line, in the timer's thread."""
        from rich.console import Console
        from rich.progress import Progress as Live
        from rich.progress import TextColumn

        console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        if console.is_dumb_terminal:
            return
        with self._lock:
            if self._is_over:
                return
            self._live = Live(
                TextColumn("[{task.elapsed:.0f} s] {task.description}", markup=False),
                console=console,
                get_time=time.monotonic,
                refresh_per_second=4,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            task = self._live.add_task(self._text)
            self._live.tasks[task].start_time = self._start
            self._live.start()


@contextmanager
def library_options(run: RunOptions) -> Iterator[LibraryOptions]:
    """The library's run options, with progress shown while the context lasts."""
    from mpexport.results import RunOptions as LibraryOptions

    watched = is_terminal(sys.stderr) and (is_terminal(sys.stdout) or not run.json)
    # The noise of workers, which --debug lets through, would tear the line apart.
    line = watched and not run.quiet and not run.debug
    timeout = run.checked_timeout()
    log = run.verbose and not run.quiet and sys.stderr is not None
    with Progress(line=line, log=log) as progress:
        yield LibraryOptions(timeout_s=timeout, debug=run.debug, progress=progress.say)
