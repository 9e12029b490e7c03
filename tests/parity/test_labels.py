"""Labels go with their samples, and with one output."""

from __future__ import annotations

import numpy as np
import pytest

from mpexport.errors import InputError, UnsafeModelError, UsageError
from mpexport.parity.labels import Labels

ONE = {"logits": np.zeros((2, 3), np.float32), "ids": np.zeros((2, 3), np.int32)}
TWO = {**ONE, "more": np.zeros((2, 5), np.float32), "image": np.zeros((2, 4, 4, 3), np.float32)}


@pytest.fixture
def path(tmp_path):
    np.save(tmp_path / "labels.npy", np.arange(4))
    return tmp_path / "labels.npy"


def test_they_come_in_order(path):
    labels = Labels(path)
    assert labels.take(ONE)["logits"].tolist() == [0, 1]
    assert labels.take(ONE)["logits"].tolist() == [2, 3]
    labels.finish()
    with pytest.raises(UsageError, match="4 labels for more samples"):
        labels.take(ONE)


def test_too_many_are_an_error_in_the_end(path):
    labels = Labels(path)
    labels.take(ONE)
    with pytest.raises(UsageError, match="4 labels for 2 samples"):
        labels.finish()


@pytest.mark.parametrize(
    ("outputs", "name", "text"),
    [
        (TWO, None, "which output are the labels for.*logits, more"),
        ({"ids": ONE["ids"]}, None, "none"),
        (TWO, "mor", "did you mean 'more'"),
        (TWO, "image", r"shape \[2, 4, 4, 3\]: labels need \[batch, classes\]"),
    ],
)
def test_the_output_must_be_clear(path, outputs, name, text):
    with pytest.raises(UsageError, match=text):
        Labels(path, name).take(outputs)


def test_a_named_output_is_taken(path):
    assert list(Labels(path, "more").take(TWO)) == ["more"]


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (np.zeros(3), UsageError, "vector of integers"),
        (np.zeros((3, 1), int), UsageError, "vector of integers"),
        (np.array([{}]), UnsafeModelError, "nothing was read"),
    ],
)
def test_what_is_no_label(tmp_path, value, error, text):
    np.save(tmp_path / "l.npy", value, allow_pickle=True)
    with pytest.raises(error, match=text):
        Labels(tmp_path / "l.npy")


def test_no_file_and_no_array(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        Labels(tmp_path / "l.npy")
    (tmp_path / "l.npy").write_bytes(b"rubbish")
    with pytest.raises(InputError, match="damaged"):
        Labels(tmp_path / "l.npy")
