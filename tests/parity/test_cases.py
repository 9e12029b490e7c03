"""Cases cut from the user's data."""

from __future__ import annotations

import numpy as np
import pytest

from mpexport.errors import InconclusiveError, UsageError
from mpexport.parity import cases
from mpexport.signature import Signature, TensorSpec


def signature(*specs):
    return Signature("serving_default", tuple(TensorSpec(*s) for s in specs), ())


def cases_of(path, signature, batch=None):
    return list(cases.from_data(path, signature, batch))


@pytest.fixture
def npz(tmp_path):
    def write(**arrays):
        np.savez(tmp_path / "data.npz", **arrays)
        return tmp_path / "data.npz"

    return write


def test_cases_are_cut_along_the_leading_axis(npz):
    sig = signature(("x", (None, 2), "float32"), ("y", (None,), "int32"), ("t", (), "float32"))
    path = npz(x=np.arange(10.0).reshape(5, 2), y=np.arange(5), t=np.float32(3))
    cases = cases_of(path, sig, batch=2)
    assert [len(c["x"]) for c in cases] == [2, 2, 1]
    np.testing.assert_array_equal(np.concatenate([c["y"] for c in cases]), np.arange(5))
    assert all(c["t"] == 3 and c["t"].shape == () for c in cases)
    assert len(cases_of(path, sig)) == 1


def test_a_fixed_batch_decides(npz):
    sig = signature(("x", (2, 3), "float32"))
    assert len(cases_of(npz(x=np.ones((6, 3))), sig)) == 3
    with pytest.raises(UsageError, match="5 samples are no multiple of the fixed batch 2"):
        cases_of(npz(x=np.ones((5, 3))), sig)
    with pytest.raises(UsageError, match="fixed to 2, not 3"):
        cases_of(npz(x=np.ones((6, 3))), sig, batch=3)


def test_data_is_rounded_to_the_declared_type(npz):
    case = cases_of(npz(x=np.array([[0.1]])), signature(("x", (None, 1), "float16")))
    assert case[0]["x"][0, 0] == np.float32(np.float16(0.1))
    case = cases_of(npz(x=np.array([[0.1]])), signature(("x", (None, 1), "float64")))
    assert case[0]["x"][0, 0] == 0.1


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.ones((2, 2)), "z": np.ones(2)}, "no input 'z'"),
        ({"x": np.ones((2, 2))}, "missing inputs: y"),
        ({"x": np.ones((2, 2)), "y": np.ones(3, int)}, "x: 2, y: 3"),
        ({"x": np.ones((2, 3)), "y": np.ones(2, int)}, r"got float64\[2, 3\]"),
        ({"x": np.ones((2, 2), np.uint8), "y": np.ones(2, int)}, "got uint8"),
        ({"x": np.ones((2, 2)), "y": np.ones(2)}, "got float64"),
    ],
)
def test_data_that_does_not_fit(npz, arrays, message):
    sig = signature(("x", (None, 2), "float32"), ("y", (None,), "int32"))
    with pytest.raises(UsageError, match=message):
        cases_of(npz(**arrays), sig)


def test_no_samples_are_inconclusive(npz):
    with pytest.raises(InconclusiveError) as caught:
        cases_of(npz(x=np.ones((0, 2))), signature(("x", (None, 2), "float32")))
    assert caught.value.exit_code == 9
