"""Samples from files: the right rows, in constant memory, and clear errors."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from mpexport.errors import InconclusiveError, InputError, UnsafeModelError, UsageError
from mpexport.parity.data import read_batches

RNG = np.random.default_rng(0)
DATA = {
    "x": RNG.standard_normal((10, 3, 2)).astype(np.float32),
    "ids": RNG.integers(0, 9, 10),
    "text": np.array([f"word {i}" for i in range(10)]).astype("S9"),
    "temperature": np.float32(0.5),
}


def joined(batches):
    batches = list(batches)
    assert all(b["temperature"].shape == () and b["temperature"] == 0.5 for b in batches)
    return {n: np.concatenate([b[n] for b in batches]) for n in batches[0] if n != "temperature"}


def check(batches):
    found = joined(batches)
    assert set(found) == set(DATA) - {"temperature"}
    for name, array in found.items():
        assert array.dtype == DATA[name].dtype
        np.testing.assert_array_equal(array, DATA[name])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_archive(tmp_path, save):
    save(tmp_path / "data.npz", **DATA)
    batches = list(read_batches(tmp_path / "data.npz", 4))
    assert [len(b["x"]) for b in batches] == [4, 4, 2]
    check(batches)


def test_arrays_in_column_order(tmp_path):
    np.savez(tmp_path / "data.npz", **{**DATA, "x": np.asfortranarray(DATA["x"])})
    check(read_batches(tmp_path / "data.npz", 3))


def test_a_directory_of_archives_is_read_in_order_of_names(tmp_path):
    for name, rows in (("b.npz", slice(7, 10)), ("a.npz", slice(0, 7))):
        np.savez(tmp_path / name, **{n: a[rows] if a.ndim else a for n, a in DATA.items()})
    batches = list(read_batches(tmp_path, 4))
    assert [len(b["x"]) for b in batches] == [4, 3, 3]
    check(batches)


def test_a_directory_of_arrays(tmp_path):
    for name, array in DATA.items():
        np.save(tmp_path / f"{name}.npy", array)
    check(read_batches(tmp_path, 4))


def test_memory_does_not_grow_with_the_file(tmp_path):
    rows = np.zeros((2000, 1000), np.float32)
    np.savez(tmp_path / "data.npz", x=rows)
    del rows
    tracemalloc.start()
    try:
        assert sum(len(b["x"]) for b in read_batches(tmp_path / "data.npz", 8)) == 2000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000  # the file has 8 MB


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda p: None, InputError, "no such file"),
        (lambda p: p.write_bytes(b"PK\x03\x04rubbish"), InputError, "damaged or no .npz file"),
        (lambda p: p.mkdir(), InputError, "holds no .npz and no .npy"),
        (lambda p: np.savez(p, x=np.array([{}])), UnsafeModelError, "nothing was read"),
        (lambda p: np.savez(p, x=np.zeros(3), y=np.zeros(4)), UsageError, "x: 3, y: 4"),
        (lambda p: np.savez(p, x=np.zeros((0, 3))), InconclusiveError, "no samples"),
        (lambda p: np.savez(p, x=np.zeros(2, "M8[s]")), InputError, "holds no plain numbers"),
    ],
)
def test_errors_name_the_file(tmp_path, make, error, text):
    path = tmp_path / "data.npz"
    make(path)
    with pytest.raises(error) as caught:
        list(read_batches(path, 2))
    assert text in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_cut_archive_is_damaged_not_short(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, x=np.arange(1000.0))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="damaged"):
        list(read_batches(path, 100))


def test_pickled_arrays_in_a_directory_are_not_read(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(UnsafeModelError):
        list(read_batches(tmp_path, 1))


def test_a_directory_with_both_kinds_is_ambiguous(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(1))
    np.save(tmp_path / "x.npy", np.zeros(1))
    with pytest.raises(InputError, match=r"both \.npz and \.npy"):
        list(read_batches(tmp_path, 1))
