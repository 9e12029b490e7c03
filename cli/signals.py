"""Ctrl-C and SIGTERM become an exception, so that every ``with`` block cleans up on the way out."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# Terminals and wrappers often send the same signal twice; a second one must not stop the cleaning
# up that the first began. Cleaning up takes a fraction of this.
GRACE_S = 3.0


class Interrupted(BaseException):
    """A signal that asks the process to end.

    Attributes:
        signum: Its number.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum

    @property
    def exit_code(self) -> int:
        """128 + the signal's number: 130 or 143."""
        return 128 + self.signum


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT and SIGTERM raise `Interrupted` inside; only in the main thread.

    SIGINT is taken over too: a shell script's background job starts with it ignored. After an
    interruption both stay ignored, as the process is about to end and is to end with its exit code.
    """
    last = -GRACE_S

    def stop(signum: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= GRACE_S:
            last = now
            raise Interrupted(signum)

    before = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        is_interrupted = last > 0
        for signum, handler in before.items():
            signal.signal(signum, signal.SIG_IGN if is_interrupted else handler)
