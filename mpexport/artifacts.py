"""Output paths that hold the old complete artifact or the new complete one, and nothing else.

An artifact is built in a private folder beside its final place, on the same file system, and moves
there by rename once it is verified. A run that is killed leaves only such a folder, which the next
run recognizes by the process id in its name and removes.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Optional

from mpexport.errors import OutputError, UsageError
from mpexport.scratch import make_folder

MANIFEST = "manifest.json"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@dataclass(frozen=True)
class FileEntry:
    """One file of an artifact: path relative to its folder, size in bytes, SHA-256."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Artifact:
    """A written export.

    Attributes:
        path: Final place.
        format: Format or variant name.
        files: All its files.
    """

    path: str
    format: str
    files: tuple[FileEntry, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(f.size_bytes for f in self.files)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**asdict(self), "size_bytes": self.size_bytes}


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in constant memory."""
    digest = hashlib.sha256()
    with path.open("rb") as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    else:
        yield from sorted(p for p in path.rglob("*") if p.is_file() and p.name != MANIFEST)


def entries(path: Path, base: Path) -> tuple[FileEntry, ...]:
    """Entries of a file or of every file in a folder, sorted by path; manifests are left out."""
    return tuple(
        FileEntry(p.relative_to(base).as_posix(), p.stat().st_size, sha256_of(p))
        for p in _files(path)
    )


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    return sum(p.stat().st_size for p in _files(path))


def digest_of(path: Path) -> str:
    """One SHA-256 for a file, or for the names and contents of a folder."""
    if path.is_file():
        return sha256_of(path)
    digest = hashlib.sha256()
    for entry in entries(path, path):
        digest.update(f"{entry.sha256} {entry.path}\n".encode())
    return digest.hexdigest()


def write_json(path: Path, data: Any) -> None:
    """Writes JSON with sorted keys and a final newline."""
    path.write_text(json.dumps(data, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def is_ours(directory: Path) -> bool:
    """Whether a folder carries a manifest of mpexport."""
    try:
        data = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and data.get("tool") == "mpexport"


class Output:
    """A place for one artifact (a file, a file with companions, or a folder).

    Use as a context manager: ``with Output(path, is_directory=False) as out`` gives
    ``out.building`` to write to; ``out.commit()`` moves it to its final name. Without a commit
    nothing is left.

    Args:
        path: The final place.
        is_directory: Whether the artifact is a folder.
        overwrite: Whether a folder that isn't ours may be replaced.
        sources: Paths that must not be the output.

    Raises:
        OutputError: Not writable, locked by another run, or a folder that isn't ours.
        UsageError: The output is the input.
    """

    def __init__(
        self,
        path: Path,
        *,
        is_directory: bool,
        overwrite: bool = False,
        sources: tuple[Path, ...] = (),
    ) -> None:
        self.path = Path(os.path.abspath(path))
        self.is_directory = is_directory
        self._check_place(overwrite, sources)
        try:
            self.folder = make_folder(self.path.parent, ".mpexport")
        except OSError as e:
            raise self._not_writable(e) from e
        self.building = self.folder / self.path.name
        self._lock = self._take_lock()

    def _check_place(self, overwrite: bool, sources: tuple[Path, ...]) -> None:
        for source in sources:
            real = Path(os.path.realpath(source))
            mine = Path(os.path.realpath(self.path))
            if mine == real or (real in mine.parents and self.is_directory):
                raise UsageError(
                    f"{self.path}: the output is (in) the input", hint="choose another -o"
                )
            if self.is_directory and mine in real.parents:
                raise UsageError(
                    f"{self.path}: the input lies in the output", hint="choose another -o"
                )
        parent = self.path.parent
        if not parent.is_dir():
            raise OutputError(
                f"{parent}: no such folder", hint="create it first", where=str(parent)
            )
        if self.path.is_dir() and not self.is_directory:
            raise OutputError(
                f"{self.path}: is a folder, a file is to be written", where=str(self.path)
            )
        if not self.is_directory and self.path.exists() and not self.path.is_file():
            # A rename would put a file in the place of a device such as /dev/null.
            raise OutputError(f"{self.path}: exists and is no regular file", where=str(self.path))
        if self.is_directory and self.path.exists() and not self.path.is_dir():
            raise OutputError(
                f"{self.path}: is a file, a folder is to be written", where=str(self.path)
            )
        foreign = self.is_directory and self.path.is_dir() and any(self.path.iterdir())
        if foreign and not overwrite and not is_ours(self.path):
            raise OutputError(
                f"{self.path}: exists, is not empty and was not made by mpexport",
                hint="choose another folder, or replace it with --overwrite",
                where=str(self.path),
            )

    def _not_writable(self, error: OSError) -> OutputError:
        return OutputError(
            f"{self.path.parent}: cannot be written to: {error.strerror or error}",
            hint="choose another place with -o",
            where=str(self.path.parent),
        )

    def _take_lock(self) -> int:
        """An advisory lock for the output path; it dies with the process."""
        name = hashlib.sha256(os.fsencode(os.path.realpath(self.path))).hexdigest()[:32]
        folder = Path(tempfile.gettempdir()) / f"mpexport-locks-{os.getuid()}"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as e:
            self.abort()
            raise OutputError(f"{folder}: cannot be written to: {e.strerror}") from e
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
            os.close(lock)
            self.abort()
            raise OutputError(
                f"{self.path}: another run (process {holder or 'unknown'}) is writing it",
                hint="wait for it to end",
                where=str(self.path),
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        return lock

    def __enter__(self) -> Output:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.abort()
        os.close(self._lock)

    def abort(self) -> None:
        """Removes everything that has not been committed."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def entries(self) -> tuple[FileEntry, ...]:
        """The files built so far, as if they stood at their final place already."""
        base = self.building if self.is_directory else self.folder
        return entries(base, base)

    def commit(self) -> None:
        """Moves the built artifact to its final name, durably.

        Companions of a file (external data) move before the file that names them.

        Raises:
            OutputError: The move failed; the old artifact is intact.
        """
        try:
            _share(self.folder)
            _fsync_tree(self.folder)
            if self.is_directory and self.path.exists():
                _exchange(self.building, self.path)
            else:
                companions = sorted(p for p in self.folder.iterdir() if p != self.building)
                for built in [*companions, self.building]:
                    os.rename(built, self.path.parent / built.name)
            _fsync(self.path.parent)
        except OSError as e:
            raise self._not_writable(e) from e
        self.abort()


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _share(folder: Path) -> None:
    """Gives files the permissions any new file has; some writers make them private."""
    mask = os.umask(0)
    os.umask(mask)
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(0o666 & ~mask)


def _fsync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        _fsync(path)
    _fsync(folder)


def _exchange(new: Path, old: Path) -> None:
    """Swaps two folders in one step where the kernel can (Linux), else in two."""
    libc = ctypes.CDLL(None, use_errno=True)
    swap = getattr(libc, "renameat2", None)
    if swap is not None:
        names = (os.fsencode(new), os.fsencode(old))
        if swap(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
            return
    aside = new.parent / "replaced"
    os.rename(old, aside)
    os.rename(new, old)
