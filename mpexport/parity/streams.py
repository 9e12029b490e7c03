"""Samples that a program gives: the user's own function, or a folder of files and a function."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Union

import numpy as np

from mpexport.errors import InconclusiveError, InputError, UsageError
from mpexport.tensors import Array, TensorSet

# Samples by input name, or of the only input, along the leading axis.
Batch = Union[Mapping[str, Any], Any]
Stream = Callable[[], Iterable[Batch]]


def is_saved_dataset(path: Path) -> bool:
    """Whether ``tf.data.Dataset.save`` wrote this directory."""
    return (path / "dataset_spec.pb").is_file()


def load_function(option: str, text: str) -> Callable[..., Any]:
    """Imports ``module:function``; modules of the working directory are found too.

    Args:
        option: Where it was given, for messages.
        text: What was given.

    Raises:
        UsageError: Not of that form, or there is no such module or function.
        InputError: Importing the module fails.
    """
    module_name, colon, name = text.partition(":")
    if not colon or not module_name or not name:
        raise UsageError(f"{option} {text}: no function", hint="write MODULE:FUNCTION")
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as e:
        raise UsageError(f"{option} {text}: {e}") from e
    except Exception as e:
        raise InputError(f"{option} {text}: importing it fails: {_cause(e)}") from e
    finally:
        sys.path.remove(here)
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{option} {text}: {module_name} has no function {name!r}")
    found: Callable[..., Any] = function
    return found


def of_files(folder: Path, preprocess: Callable[[str], Batch]) -> Stream:
    """One sample per file of a folder, in the order of their names.

    Args:
        folder: Where the files are, at any depth; those whose name begins with a dot are left out.
        preprocess: Gets the path of a file; gives the sample, without a leading axis: an array, or
            a mapping from input names to arrays.

    Raises:
        InputError: There is no such folder, or no file in it.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder", where=str(folder))
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))
    if not files:
        raise InputError(f"{folder}: holds no files", where=str(folder))

    def stream() -> Iterator[Batch]:
        for file in files:
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    made = preprocess(str(file))
            except Exception as e:
                raise InputError(
                    f"{file}: preprocessing fails: {_cause(e)}", where=str(file)
                ) from e
            if isinstance(made, Mapping):
                yield {name: np.asarray(array)[np.newaxis] for name, array in made.items()}
            else:
                yield np.asarray(made)[np.newaxis]

    return stream


def rebatch(
    stream: Stream, only: str | None, batch: int, *, exact: bool = False
) -> Iterator[TensorSet]:
    """Samples of a stream, ``batch`` at a time.

    Args:
        stream: Gives batches of any size.
        only: Name of the model's input, where it has one only and batches may be plain arrays.
        batch: At least 1.
        exact: Whether a smaller last batch is an error.

    Raises:
        InputError: The stream fails.
        UsageError: The arrays of one batch disagree in their number of samples, or see ``exact``.
        InconclusiveError: There are no samples at all.
    """
    if batch < 1:
        raise UsageError(f"batch {batch}: need at least 1")
    waiting: list[TensorSet] = []
    rows = total = 0
    for given in _guarded(stream):
        made, count = _as_rows(given, only)
        if waiting and set(waiting[0]) != set(made):
            raise UsageError(
                f"the samples name other inputs than before: {', '.join(sorted(made))}"
            )
        waiting.append(made)
        rows, total = rows + count, total + count
        while rows >= batch:
            whole = _joined(waiting)
            yield {name: array[:batch] for name, array in whole.items()}
            rows -= batch
            waiting = [{name: array[batch:] for name, array in whole.items()}] if rows else []
    if total == 0:
        raise InconclusiveError("the samples' function gave none, so nothing to compare")
    if rows and exact:
        raise UsageError(f"{total} samples are no multiple of the fixed batch {batch}")
    if rows:
        yield _joined(waiting)


def _joined(parts: list[TensorSet]) -> TensorSet:
    if len(parts) == 1:
        return parts[0]
    try:
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    except ValueError as e:
        raise UsageError(f"samples of different shapes: {e}") from e


def _guarded(stream: Stream) -> Iterator[Batch]:
    """The stream, with what it prints on standard error and its errors in one line."""
    items: Iterator[Batch] | None = None
    while True:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                items = iter(stream()) if items is None else items
                given = next(items)
        except StopIteration:
            return
        except (InputError, UsageError):
            raise
        except Exception as e:
            raise InputError(f"the samples' function fails: {_cause(e)}") from e
        yield given


def _as_rows(given: Batch, only: str | None) -> tuple[TensorSet, int]:
    if not isinstance(given, Mapping):
        if only is None:
            raise UsageError(
                "the samples are arrays, and the model has several inputs",
                hint="give mappings from input names to arrays",
            )
        given = {only: given}
    made: dict[str, Array] = {str(name): np.asarray(array) for name, array in given.items()}
    counts = {array.shape[:1] for array in made.values()}
    if len(counts) != 1 or counts == {()}:
        shapes = ", ".join(f"{name}: {list(array.shape)}" for name, array in made.items())
        raise UsageError(f"samples lie along the leading axis of every array; got {shapes}")
    return made, counts.pop()[0]


def _cause(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
