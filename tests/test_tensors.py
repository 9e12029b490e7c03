"""Named arrays: storing, fitting to a declared input, refusing what is damaged or unsafe."""

from __future__ import annotations

import json
import pickle
import zipfile

import numpy as np
import pytest

from mpexport import tensors
from mpexport.errors import InputError, UnsafeModelError, UsageError
from mpexport.signature import TensorSpec


def spec(dtype, *shape):
    return TensorSpec("x", shape, dtype)


def test_bfloat16_bits_are_the_upper_half_of_float32():
    bits = np.arange(2**16, dtype=np.uint16)  # every bfloat16 there is
    values = tensors.bfloat16_bits_to_float32(bits)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values.view(np.uint32), bits.astype(np.uint32) << 16)
    assert tensors.bfloat16_bits_to_float32(np.array([0x3F80, 0xFF80], np.uint16)).tolist() == [
        1.0,
        -np.inf,
    ]


def test_rounding_to_bfloat16_agrees_with_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 200_000, dtype=np.uint32)
    values = np.concatenate([bits.view(np.float32), np.float32([0.0, -0.0, np.inf, 3.4e38, 1e-45])])
    with np.errstate(all="ignore"):
        expected = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(tensors.representable(values, "bfloat16"), expected)


def test_rounding_keeps_what_the_type_holds():
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    halves = halves[~np.isnan(halves)]
    as32 = halves.astype(np.float32)
    np.testing.assert_array_equal(tensors.representable(as32, "float16"), as32)
    np.testing.assert_array_equal(tensors.representable(as32, "float32"), as32)
    assert tensors.representable(np.array([0.1]), "float16")[0] == np.float32(np.float16(0.1))


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "uint64", "bool"])
def test_as_float64_is_exact(dtype):
    values = np.array([0, 1, 100], dtype)
    assert tensors.as_float64(values).tolist() == [float(v) for v in values]


@pytest.mark.parametrize(
    ("value", "name", "kind"),
    [
        (np.zeros(1, ">f4"), "float32", "float"),
        (np.array(["é"]), "string", "string"),
        (np.array([b"x"]), "string", "string"),
        (np.zeros(1, "M8[s]"), "datetime64[s]", "opaque"),
        (np.zeros(1, "V2"), "void16", "opaque"),
    ],
)
def test_names_and_kinds(value, name, kind):
    assert tensors.dtype_name(value.dtype) == name
    assert tensors.kind_of(value) == kind


def test_fit_casts_within_the_kind():
    assert tensors.fit(spec("float16", None), np.array([0.5, 2.0])).dtype == np.float16
    assert tensors.fit(spec("int32", 2), np.array([1, -1])).dtype == np.int32
    assert tensors.fit(spec("string", 2), np.array(["é", "b"])).tolist() == ["é".encode(), b"b"]
    fortran = np.asfortranarray(np.ones((2, 3), np.float32))
    assert tensors.fit(spec("float32", 2, 3), fortran).flags.c_contiguous
    assert tensors.fit(spec("float32"), np.float64(3)).shape == ()
    assert np.isinf(tensors.fit(spec("float16", 1), np.array([np.inf]))).all()


@pytest.mark.parametrize(
    ("declared", "value", "message"),
    [
        (spec("float32", None, 4), np.zeros((2, 5)), r"x: float32\[\?, 4\]; got float64\[2, 5\]"),
        (spec("float32", None, 4), np.zeros(4), "got float64"),
        (spec("float32", 1), np.zeros(1, int), "got int64"),
        (spec("int32", 1), np.zeros(1), "got float64"),
        (spec("int32", 1), np.zeros(1, bool), "got bool"),
        (spec("int32", 1), np.array([2**31]), "2147483648..2147483648 does not fit in int32"),
        (spec("uint8", 2), np.array([-1, 3]), "-1..3 does not fit"),
        (spec("float16", 1), np.array([1e5]), "100000 overflows float16"),
        (spec("float32", 1), np.array([1e39]), "overflows float32"),
        (spec("string", 1), np.array([3], object), "holds a int"),
    ],
)
def test_fit_refuses(declared, value, message):
    with pytest.raises(UsageError, match=message) as caught:
        tensors.fit(declared, value)
    assert "\n" not in str(caught.value)


def test_npz_round_trip(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, **{"x:0": np.ones((2, 3)), "s": np.array([b"a", b"bc"])})
    loaded = tensors.load_npz(path)
    assert loaded["x:0"].shape == (2, 3)
    assert loaded["s"].tolist() == [b"a", b"bc"]


def test_npz_never_unpickles(tmp_path):
    marker = tmp_path / "marker"

    class Bomb:
        def __reduce__(self):
            return (open, (str(marker), "w"))

    np.savez(tmp_path / "o.npz", x=np.array([Bomb()], object))
    (tmp_path / "p.npz").write_bytes(pickle.dumps(Bomb()))
    for name in ("o.npz", "p.npz"):
        with pytest.raises(UnsafeModelError) as caught:
            tensors.load_npz(tmp_path / name)
        assert caught.value.exit_code == 4
    assert not marker.exists()


def test_npz_damaged_anywhere_is_one_line(tmp_path):
    good, bad = tmp_path / "good.npz", tmp_path / "bad.npz"
    np.savez_compressed(good, x=np.arange(300.0), y=np.ones((3, 3), np.int8))
    raw = good.read_bytes()
    rng = np.random.default_rng(1)
    messages = []
    for trial in range(400):
        cut = rng.integers(len(raw))
        damaged = bytearray(raw[:cut] if trial % 2 else raw)
        if not trial % 2:
            damaged[cut] ^= int(rng.integers(1, 256))
        bad.write_bytes(bytes(damaged))
        try:
            tensors.load_npz(bad)
        except (InputError, UnsafeModelError) as e:
            messages.append(e.message)
    assert len(messages) > 300
    assert not any("\n" in message for message in messages)


def test_npz_refuses_other_things(tmp_path):
    np.save(tmp_path / "one.npy", np.ones(3))
    with pytest.raises(InputError, match="one array without a name"):
        tensors.load_npz(tmp_path / "one.npy")
    with pytest.raises(InputError, match="no such file"):
        tensors.load_npz(tmp_path / "none.npz")
    with pytest.raises(InputError, match="no such file"):
        tensors.load_npz(tmp_path)
    with zipfile.ZipFile(tmp_path / "z.npz", "w") as archive:
        archive.writestr("x.npy", b"text")
    with pytest.raises(InputError, match="'x' is no array"):
        tensors.load_npz(tmp_path / "z.npz")
    np.savez(tmp_path / "t.npz", x=np.zeros(1, "M8[s]"))
    with pytest.raises(InputError, match="no plain numbers"):
        tensors.load_npz(tmp_path / "t.npz")


def test_npy_dir_round_trip_with_any_name(tmp_path):
    values = {
        "../x/y:0": np.arange(6, dtype=np.float16).reshape(2, 3),
        "": np.float32(3.5),
        "empty": np.zeros((0, 4), np.int64),
        "text": np.array([["é", "long"], ["", "z"]], object),
        "bytes": np.array([b"\xff\x00a", b""], object),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
    }
    tensors.save_npy_dir(values, tmp_path / "new" / "dir")
    loaded = tensors.load_npy_dir(tmp_path / "new" / "dir")
    assert list(loaded) == list(values)
    assert loaded["../x/y:0"].dtype == np.float16
    assert not loaded["../x/y:0"].flags.writeable
    for name in ("../x/y:0", "", "empty", "fortran"):
        np.testing.assert_array_equal(loaded[name], values[name])
        assert loaded[name].shape == np.shape(values[name])
    assert loaded["text"].tolist() == [["é".encode(), b"long"], [b"", b"z"]]
    assert loaded["bytes"].tolist() == [b"\xff\x00a", b""]


def test_npy_dir_decodes_bfloat16_to_float32(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.array([1.5, -3.0, np.inf, 1e-40], ml_dtypes.bfloat16)
    tensors.save_npy_dir({"x": values}, tmp_path)
    assert np.load(tmp_path / "0.npy").dtype == np.uint16
    loaded = tensors.load_npy_dir(tmp_path)["x"]
    assert loaded.dtype == np.float32
    np.testing.assert_array_equal(loaded, values.astype(np.float32))
    np.testing.assert_array_equal(tensors.as_float64(values), values.astype(np.float64))


def test_npy_dir_refuses(tmp_path):
    with pytest.raises(UsageError, match="zero byte"):
        tensors.save_npy_dir({"x": np.array([b"a\0"], object)}, tmp_path)
    with pytest.raises(UsageError, match="cannot be stored"):
        tensors.save_npy_dir({"x": np.zeros(1, "M8[s]")}, tmp_path)
    with pytest.raises(InputError):
        tensors.load_npy_dir(tmp_path / "none")
    tensors.save_npy_dir({"x": np.ones(4)}, tmp_path)
    (tmp_path / "0.npy").write_bytes((tmp_path / "0.npy").read_bytes()[:-8])
    with pytest.raises(InputError, match="damaged"):
        tensors.load_npy_dir(tmp_path)
    outside = {"tensors": [{"name": "x", "file": "../0.npy", "dtype": "float64"}]}
    for index in (outside, {"tensors": [{"name": "x"}]}, {"tensors": 3}, []):
        (tmp_path / "index.json").write_text(json.dumps(index))
        with pytest.raises(InputError, match="damaged"):
            tensors.load_npy_dir(tmp_path)
