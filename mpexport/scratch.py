"""Private temporary folders, named after the process that made them.

A process that is killed cannot clean up. Its folders are recognized by the process id in their
names, and the next run removes them.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Optional

from mpexport.errors import OutputError


def make_folder(parent: Optional[Path] = None, prefix: str = "mpexport") -> Path:
    """Makes a private folder, and removes those that dead processes have left beside it.

    Args:
        parent: Where; None for the folder of temporary files.
        prefix: Start of its name.

    Raises:
        OSError: ``parent`` cannot be written to.
    """
    place = Path(tempfile.gettempdir()) if parent is None else parent
    remove_stale(place, prefix)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}-{os.getpid()}-", dir=place))


def make_scratch() -> Path:
    """A private folder for temporary files.

    Raises:
        OutputError: There is no writable place for them.
    """
    try:
        return make_folder()
    except OSError as e:
        raise OutputError(
            f"no place for temporary files: {e.strerror or e}",
            hint="set TMPDIR to a writable folder",
        ) from e


def remove_stale(parent: Path, prefix: str) -> None:
    """Removes folders of processes that no longer live."""
    pattern = re.compile(re.escape(prefix) + r"-(\d+)-\w+")
    for entry in parent.glob(f"{prefix}-*"):
        match = pattern.fullmatch(entry.name)
        if match and entry.is_dir() and not _is_alive(int(match.group(1))):
            shutil.rmtree(entry, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
