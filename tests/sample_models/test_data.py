"""Tests of the digits: what they are, and that they are always the same."""

from __future__ import annotations

import importlib
from types import ModuleType

import numpy as np
import pytest

from sample_models.data import load_digits, resize_bilinear
from sample_models.errors import MissingDependencyError, UsageError

COUNT = 1797


def test_shapes_types_and_range() -> None:
    digits = load_digits()
    for images, labels in (
        (digits.train_images, digits.train_labels),
        (digits.test_images, digits.test_labels),
    ):
        assert images.shape == (len(labels), 28, 28, 1)
        assert images.dtype == np.float32
        assert labels.dtype == np.int64
        assert images.min() == 0.0
        assert images.max() == 1.0
        assert set(labels) == set(range(10))


def test_split_is_disjoint_complete_and_about_80_to_20() -> None:
    digits = load_digits(size=8)
    assert len(digits.train_labels) + len(digits.test_labels) == COUNT
    assert len(digits.test_labels) == round(0.2 * COUNT + 0.5)
    together = np.concatenate([digits.train_images, digits.test_images]).reshape(COUNT, -1)
    # A scan that was in both parts, or in none, would change the number of distinct scans.
    source = importlib.import_module("sklearn.datasets").load_digits().data
    assert len(np.unique(together, axis=0)) == len(np.unique(source, axis=0))
    assert together.sum() == pytest.approx(source.sum() / 16, rel=1e-6)


def test_split_is_stratified() -> None:
    digits = load_digits(size=8)
    in_test = np.bincount(digits.test_labels)
    expected = 0.2 * (in_test + np.bincount(digits.train_labels))
    assert np.all(np.abs(in_test - expected) <= 1)


def test_same_seed_same_data_and_other_seed_other_split() -> None:
    first, again, other = load_digits(seed=3), load_digits(seed=3), load_digits(seed=4)
    np.testing.assert_array_equal(first.train_images, again.train_images)
    np.testing.assert_array_equal(first.test_labels, again.test_labels)
    assert not np.array_equal(first.test_labels, other.test_labels)


def test_resize_to_the_same_size_changes_nothing() -> None:
    images = np.random.default_rng(0).random((2, 8, 8))
    np.testing.assert_array_equal(resize_bilinear(images, 8), images)


def test_resize_is_linear_between_centers_and_constant_beyond() -> None:
    ramp = np.broadcast_to(np.arange(4.0), (1, 4, 4))
    row = resize_bilinear(ramp, 8)[0, 0]
    np.testing.assert_allclose(row, [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3], atol=1e-15)


def test_resize_tells_rows_from_columns() -> None:
    image = np.zeros((1, 8, 8))
    image[0, 0, 7] = 1.0
    scaled = resize_bilinear(image, 28)[0]
    assert scaled[0, 27] == 1.0
    assert scaled[27, 0] == 0.0


@pytest.mark.parametrize(("size", "seed"), [(7, 0), (28, -1)])
def test_bad_arguments(size: int, seed: int) -> None:
    with pytest.raises(UsageError):
        load_digits(size, seed)


def test_missing_scikit_learn_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> ModuleType:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(MissingDependencyError, match="pip install scikit-learn"):
        load_digits()
