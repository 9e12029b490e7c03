"""Real handwritten digits without a download.

scikit-learn carries 1797 scans of 8x8 pixels inside its wheel. They are scaled up, so that
convolutions and attention have something to work on, and split once and for all by a seed.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sample_models.errors import MissingDependencyError, UsageError

NUM_CLASSES = 10
TEST_FRACTION = 0.2
_SOURCE_MAXIMUM = 16.0
"""The scans count dark pixels in 4x4 blocks: integers from 0 to 16."""

FloatArray = npt.NDArray[np.float32]
LabelArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Digits:
    """The data set, split for training and testing.

    Attributes:
        train_images: float32 (n_train, size, size, 1), gray values in [0, 1].
        train_labels: int64 (n_train,), the digit in [0, 9].
        test_images: float32 (n_test, size, size, 1), gray values in [0, 1].
        test_labels: int64 (n_test,), the digit in [0, 9].
    """

    train_images: FloatArray
    train_labels: LabelArray
    test_images: FloatArray
    test_labels: LabelArray


def load_digits(size: int = 28, seed: int = 0) -> Digits:
    """Loads the digits, scales them up and splits them.

    The split is stratified (each digit has the same share in both parts, up to one image) and
    depends on nothing but the seed.

    Args:
        size: Height and width of the images in pixels, at least 8.
        seed: Seed of the split, at least 0.

    Returns:
        About 80% of the 1797 images for training, the rest for testing.

    Raises:
        UsageError: The size or the seed is too small.
        MissingDependencyError: scikit-learn is not installed.
    """
    if size < 8:
        raise UsageError(f"size must be at least 8 pixels, the size of the scans; got {size}")
    if seed < 0:
        raise UsageError(f"seed must be at least 0; got {seed}")
    bunch = _scikit_learn("datasets").load_digits()
    labels = np.asarray(bunch.target, dtype=np.int64)
    scans = np.asarray(bunch.images, dtype=np.float64) / _SOURCE_MAXIMUM
    images = resize_bilinear(scans, size).astype(np.float32)[..., np.newaxis]
    train, test = _scikit_learn("model_selection").train_test_split(
        np.arange(len(labels)), test_size=TEST_FRACTION, random_state=seed, stratify=labels
    )
    return Digits(images[train], labels[train], images[test], labels[test])


def resize_bilinear(images: npt.NDArray[np.float64], size: int) -> npt.NDArray[np.float64]:
    """Scales square images with bilinear interpolation between pixel centers.

    Args:
        images: float64 (n, side, side).
        size: New height and width in pixels.

    Returns:
        float64 (n, size, size), within the range of the given values.
    """
    weights = _interpolation_matrix(images.shape[1], size)
    # Clipped, since the two weights of a pixel may add up to 1 + 1 ULP.
    scaled = np.clip(weights @ images @ weights.T, images.min(), images.max())
    return np.asarray(scaled, dtype=np.float64)


def _interpolation_matrix(source: int, target: int) -> npt.NDArray[np.float64]:
    """Returns the float64 (target, source) matrix that interpolates along one axis."""
    centers = (np.arange(target) + 0.5) * (source / target) - 0.5
    centers = np.clip(centers, 0.0, source - 1.0)
    lower = np.minimum(np.floor(centers).astype(np.int64), source - 2)
    upper_share = centers - lower
    matrix = np.zeros((target, source))
    rows = np.arange(target)
    matrix[rows, lower] = 1.0 - upper_share
    matrix[rows, lower + 1] = upper_share
    return matrix


def _scikit_learn(module: str) -> Any:
    """Imports a module of scikit-learn, or says what to install."""
    try:
        return importlib.import_module(f"sklearn.{module}")
    except ImportError as error:
        raise MissingDependencyError(
            "the digits come with scikit-learn, which is not installed: pip install scikit-learn"
        ) from error
