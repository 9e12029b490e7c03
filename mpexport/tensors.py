"""Named arrays: reading and writing them, and fitting them to a declared input.

String tensors are object arrays of ``bytes`` in memory and fixed-width ``S`` arrays on disk.
bfloat16 is stored as its bits, so that reading it needs no package beyond numpy. Nothing here ever
unpickles.
"""

from __future__ import annotations

import json
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpexport import dtypes, optional
from mpexport.errors import InputError, UnsafeModelError, UsageError
from mpexport.signature import TensorSpec

Array = NDArray[Any]
TensorSet = dict[str, Array]

_INDEX = "index.json"
# What numpy and zipfile raise on damaged files (seen by flipping bytes and truncating).
DAMAGED = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    MemoryError,
    RuntimeError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The canonical element type name; all kinds of numpy strings are ``string``."""
    return "string" if dtype.kind in "SUO" else dtypes.canonical(dtype.name)


def kind_of(array: Array) -> str:
    """``float``, ``int``, ``bool``, ``string``, ``complex``, or ``opaque`` when not known here."""
    try:
        return dtypes.get(dtype_name(array.dtype)).kind
    except KeyError:
        return "opaque"


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy type for a canonical name; bfloat16 needs ml_dtypes, strings are ``object``."""
    if name == "bfloat16":
        scalar: type = optional.require("ml_dtypes", "litert").bfloat16
        return np.dtype(scalar)
    return np.dtype(object if name == "string" else name)


def bfloat16_bits_to_float32(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The float32 values of bfloat16 bit patterns, exactly: they are its upper halves."""
    wide: NDArray[np.uint32] = np.asarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32)


def _bfloat16_bits(array: NDArray[np.float32]) -> NDArray[np.uint16]:
    # Round to nearest, ties to even: add half an ulp less one, plus the last kept bit. Infinities
    # have no low bits, so they stay; NaN could carry into the sign and is set apart.
    bits = np.asarray(array, np.float32, order="C").view(np.uint32)
    kept = bits >> np.uint32(16)
    rounded = (bits + (np.uint32(0x7FFF) + (kept & np.uint32(1)))) >> np.uint32(16)
    quiet_nan = kept | np.uint32(0x40)
    out: NDArray[np.uint16] = np.where(np.isnan(array), quiet_nan, rounded).astype(np.uint16)
    return out


def representable(array: Array, dtype: str) -> NDArray[np.float32]:
    """Rounds float values to what ``dtype`` can hold (nearest, ties to even), kept as float32.

    Args:
        array: Any float array.
        dtype: The declared element type; float32 and float64 mean rounding to float32 only.
    """
    with np.errstate(over="ignore"):
        if dtype == "bfloat16":
            return bfloat16_bits_to_float32(_bfloat16_bits(array.astype(np.float32)))
        if dtype == "float16":
            return array.astype(np.float16).astype(np.float32)
        return array.astype(np.float32)


def as_float64(array: Array) -> NDArray[np.float64]:
    """Numbers or booleans as float64; every 16-bit and 32-bit value is kept exactly."""
    if array.dtype.name == "bfloat16":
        array = bfloat16_bits_to_float32(array.view(np.uint16))
    return array.astype(np.float64)


def as_bytes(array: Array) -> Array:
    """A string tensor as an object array of ``bytes``; text is encoded as UTF-8."""
    out = np.empty(array.shape, dtype=object)
    for index in np.ndindex(array.shape):
        item = array[index]
        if isinstance(item, str):
            item = item.encode()
        if not isinstance(item, bytes):
            raise UsageError(f"a string tensor holds a {type(item).__name__}")
        out[index] = bytes(item)
    return out


def check(spec: TensorSpec, array: Array) -> None:
    """Checks rank, known sizes and the kind of element.

    Raises:
        UsageError: One line with the declared and the given shape and type.
    """
    given = f"got {dtype_name(array.dtype)}{list(array.shape)}"
    if spec.shape is not None and (
        len(spec.shape) != array.ndim
        or any(want not in (None, have) for want, have in zip(spec.shape, array.shape))
    ):
        raise UsageError(f"the model declares {spec}; {given}", where=spec.name)
    if kind_of(array) != dtypes.get(spec.dtype).kind:
        raise UsageError(
            f"the model declares {spec}; {given}",
            hint="convert the array to the declared kind of number first",
            where=spec.name,
        )


def fit(spec: TensorSpec, array: Array) -> Array:
    """The array exactly as declared: checked, cast within its kind, C-contiguous.

    Floats are rounded to the declared width; integers only change width when every value fits.

    Raises:
        UsageError: Shape or kind differ, an integer does not fit, or a finite float would overflow.
    """
    array = np.asarray(array)
    check(spec, array)
    if spec.dtype == "string":
        return as_bytes(array)
    target = numpy_dtype(spec.dtype)
    if array.dtype == target:
        return np.asarray(array, order="C")
    if array.dtype.kind in "iu" and array.size:
        low, high = int(array.min()), int(array.max())
        limits = np.iinfo(target)
        if low < limits.min or high > limits.max:
            raise UsageError(f"{spec.name}: {low}..{high} does not fit in {spec.dtype}")
    with np.errstate(over="ignore"):
        cast = array.astype(target, order="C")
    if kind_of(array) == "float":
        lost = np.isfinite(as_float64(array)) & ~np.isfinite(as_float64(cast))
        if lost.any():
            worst = np.abs(as_float64(array)[lost]).max()
            raise UsageError(f"{spec.name}: {worst:.6g} overflows {spec.dtype}")
    return cast


def load_npz(path: Path) -> TensorSet:
    """Reads an ``.npz`` of plain arrays.

    Raises:
        InputError: Missing, damaged, not an archive of arrays, or of a type with no numbers in it.
        UnsafeModelError: An array is a pickle; it was not read.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file", where=str(path))
    hint = "make one with numpy.savez(path, name=array, …)"
    try:
        with path.open("rb") as file:  # numpy leaks it on damaged files when it opens it itself
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise InputError(f"{path}: one array without a name", hint=hint, where=str(path))
            tensors = {name: loaded[name] for name in loaded.files}
    except DAMAGED as e:
        if "Object arrays" in str(e) or _is_pickle(path):
            raise UnsafeModelError(
                f"{path}: holds pickled objects, which can run code; nothing was read",
                hint="save plain numeric or fixed-width string arrays",
                where=str(path),
            ) from e
        raise InputError(
            f"{path}: damaged or no .npz file: {_cause(e)}", hint=hint, where=str(path)
        ) from e
    for name, array in tensors.items():
        if not isinstance(array, np.ndarray):
            raise InputError(f"{path}: {name!r} is no array", hint=hint, where=str(path))
        if kind_of(array) == "opaque":
            raise InputError(
                f"{path}: {name!r} has element type {array.dtype}, which holds no plain numbers",
                hint="store bfloat16 values as float32",
                where=str(path),
            )
    return tensors


def map_npy(path: Path) -> Array:
    """An ``.npy`` mapped into memory, read-only.

    Raises:
        InputError: Missing or damaged.
        UnsafeModelError: It holds a pickle; it was not read.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file", where=str(path))
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("an archive of arrays")
    except DAMAGED as e:
        if "Python objects" in str(e) or _is_pickle(path):
            raise UnsafeModelError(
                f"{path}: holds pickled objects, which can run code; nothing was read",
                hint="save plain numeric or fixed-width string arrays",
                where=str(path),
            ) from e
        raise InputError(f"{path}: damaged or no .npy file: {_cause(e)}", where=str(path)) from e
    return array


def _is_pickle(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(1) == b"\x80"  # the PROTO opcode of pickle protocol 2 and later


def _cause(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def save_npy_dir(tensors: Mapping[str, Array], directory: Path) -> None:
    """Writes one ``.npy`` per tensor and ``index.json``, which maps any name to its file.

    Args:
        tensors: Arrays by name.
        directory: Made when absent.

    Raises:
        UsageError: An element type that ``.npy`` cannot carry.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    entries = []
    for number, (name, value) in enumerate(tensors.items()):
        array = np.asarray(value)
        kind = dtype_name(array.dtype)
        if kind == "bfloat16":
            array = array.view(np.uint16)
        elif kind == "string":
            array = _fixed_width(name, array)
        elif kind_of(array) == "opaque":
            raise UsageError(f"{name}: element type {array.dtype} cannot be stored")
        file = f"{number}.npy"
        np.save(directory / file, array, allow_pickle=False)
        entries.append({"name": name, "file": file, "dtype": kind})
    (directory / _INDEX).write_text(json.dumps({"tensors": entries}), encoding="utf-8")


def _fixed_width(name: str, array: Array) -> Array:
    strings = as_bytes(array)
    if any(item.endswith(b"\0") for item in strings.flat):
        raise UsageError(f"{name}: a string that ends in a zero byte cannot be stored")
    width = max([len(item) for item in strings.flat] + [1])
    return strings.astype(f"S{width}")


def load_npy_dir(directory: Path) -> TensorSet:
    """Reads what `save_npy_dir` wrote; arrays are memory-mapped read-only, bfloat16 as float32.

    Raises:
        InputError: The index or an array is missing or damaged.
    """
    directory = Path(directory)
    tensors: TensorSet = {}
    try:
        entries = json.loads((directory / _INDEX).read_text(encoding="utf-8"))["tensors"]
        for entry in entries:
            file = str(entry["file"])
            if Path(file).name != file:
                raise ValueError(f"{file!r} is not in the directory")
            array = np.load(directory / file, mmap_mode="r", allow_pickle=False)
            if entry["dtype"] == "bfloat16":
                array = bfloat16_bits_to_float32(array)
            tensors[entry["name"]] = array
    except (*DAMAGED, TypeError) as e:
        raise InputError(
            f"{directory}: damaged tensor directory: {_cause(e)}", where=str(directory)
        ) from e
    return tensors
