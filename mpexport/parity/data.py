"""Samples from files, a batch at a time: memory does not grow with the file.

The leading axis of every array counts samples; an array of rank 0 is the same for all of them.
Read are an ``.npz``, a directory of ``.npz`` files (one after the other, in order of their names),
and a directory of ``.npy`` files, each named like its input.
"""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from mpexport import tensors
from mpexport.errors import InconclusiveError, InputError, UnsafeModelError, UsageError
from mpexport.tensors import DAMAGED, Array, TensorSet


class Column(Protocol):
    """One array, read from front to back.

    Attributes:
        shape: Its whole shape.
        dtype: Its element type.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def take(self, rows: int) -> Array:
        """The next ``rows`` samples; of an array of rank 0, itself."""


class _Mapped:
    """An array in memory, or mapped into it."""

    def __init__(self, array: Array) -> None:
        self.shape, self.dtype = array.shape, array.dtype
        self._array, self._next = array, 0

    def take(self, rows: int) -> Array:
        if not self.shape:
            return np.array(self._array)
        start, self._next = self._next, self._next + rows
        return np.array(self._array[start : self._next])


class _Streamed:
    """A member of an ``.npz``, which may be compressed: its rows come one after the other."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read = np.lib.format.read_array_header_2_0
        self.shape, fortran, self.dtype = read(stream)
        if self.dtype.hasobject:
            raise _PickledError
        self._whole: _Mapped | None = None
        # Column by column, the first sample ends in the last byte.
        if not self.shape or (fortran and len(self.shape) > 1):
            count = int(np.prod(self.shape, dtype=np.int64))
            self._whole = _Mapped(self._read(count).reshape(self.shape, order="F"))

    def take(self, rows: int) -> Array:
        if self._whole is not None:
            return self._whole.take(rows)
        size = int(np.prod(self.shape[1:], dtype=np.int64))
        return self._read(rows * size).reshape(rows, *self.shape[1:])

    def _read(self, count: int) -> Array:
        size = count * self.dtype.itemsize
        data = self._stream.read(size)
        if len(data) != size:
            raise EOFError("the array ends too early")
        return np.frombuffer(data, self.dtype, count)


class _PickledError(Exception):
    """Objects, which would have to be unpickled."""


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turns what numpy and zipfile raise into errors that name the file."""
    try:
        yield
    except _PickledError as e:
        raise UnsafeModelError(
            f"{path}: holds pickled objects, which can run code; nothing was read",
            hint="save plain numeric or fixed-width string arrays",
            where=str(path),
        ) from e
    except DAMAGED as e:
        cause = str(e).strip().partition("\n")[0] or type(e).__name__
        raise InputError(
            f"{path}: damaged or no .npz file: {cause}",
            hint="make one with numpy.savez(path, name=array, …)",
            where=str(path),
        ) from e


@contextlib.contextmanager
def _open_npz(path: Path) -> Iterator[dict[str, Column]]:
    with contextlib.ExitStack() as stack:
        with _readable(path):
            archive = stack.enter_context(zipfile.ZipFile(path))
            columns: dict[str, Column] = {}
            for name in archive.namelist():
                if not name.endswith(".npy"):
                    raise ValueError(f"{name!r} is no array")
                stream = stack.enter_context(archive.open(name))
                columns[name[: -len(".npy")]] = _Streamed(stream)
        yield columns


@contextlib.contextmanager
def _open_npy_dir(paths: list[Path]) -> Iterator[dict[str, Column]]:
    yield {path.stem: _Mapped(tensors.map_npy(path)) for path in paths}


def _parts(path: Path) -> list[Any]:
    """Context managers that open one set of columns each."""
    if not path.exists():
        raise InputError(f"{path}: no such file or directory", where=str(path))
    if not path.is_dir():
        return [_open_npz(path)]
    archives, arrays = sorted(path.glob("*.npz")), sorted(path.glob("*.npy"))
    if archives and arrays:
        raise InputError(f"{path}: holds both .npz and .npy files", where=str(path))
    if archives:
        return [_open_npz(p) for p in archives]
    if arrays:
        return [_open_npy_dir(arrays)]
    raise InputError(
        f"{path}: holds no .npz and no .npy files",
        hint="put in .npz files, or one .npy for each input, named like it",
        where=str(path),
    )


def read_batches(path: Path, batch: int, *, exact: bool = False) -> Iterator[TensorSet]:
    """The samples of a file or directory, ``batch`` at a time.

    A batch doesn't reach over the end of a file: the last one of each may be smaller.

    Args:
        path: See the module.
        batch: At least 1.
        exact: Whether a smaller batch is an error.

    Raises:
        InputError: Missing or damaged.
        UnsafeModelError: Pickled objects; they are not read.
        UsageError: The arrays of one file disagree in their number of samples, or that number is
            no multiple of ``batch`` with ``exact``.
        InconclusiveError: There are no samples at all.
    """
    if batch < 1:
        raise UsageError(f"batch {batch}: need at least 1")
    total = 0
    for part in _parts(path):
        with part as columns:
            rows = _sample_count(path, columns)
            total += rows
            if exact and rows % batch:
                raise UsageError(
                    f"{path}: {rows} samples are no multiple of the fixed batch {batch}"
                )
            for start in range(0, rows, batch):
                count = min(batch, rows - start)
                with _readable(path):
                    case = {name: column.take(count) for name, column in columns.items()}
                yield case
    if total == 0:
        raise InconclusiveError(f"{path}: no samples, so nothing to compare")


def _sample_count(path: Path, columns: dict[str, Column]) -> int:
    for name, column in columns.items():
        if tensors.kind_of(np.empty(0, column.dtype)) == "opaque":
            raise InputError(
                f"{path}: {name!r} has element type {column.dtype}, which holds no plain numbers",
                hint="store bfloat16 values as float32",
                where=str(path),
            )
    counts = {name: column.shape[0] for name, column in columns.items() if column.shape}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{n}: {c}" for n, c in sorted(counts.items()))
        raise UsageError(f"{path}: the inputs have different numbers of samples: {listed}")
    # Arrays of rank 0 alone are one sample.
    return next(iter(counts.values()), 1 if columns else 0)
