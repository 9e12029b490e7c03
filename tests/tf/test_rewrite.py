"""The promoted twin of a SavedModel on disk: same numbers, no weight written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from mpexport.sources import SourceOptions
from mpexport.tf.describe import index_ranges
from mpexport.tf.load import load
from mpexport.tf.normalized import NormalizedModel, normalize
from mpexport.tf.rewrite import write_promoted

pytestmark = pytest.mark.tf


def exported(folder: Path, inputs: Any, outputs: Any) -> NormalizedModel:
    model = keras.Model(inputs, outputs)
    model.export(str(folder / "source"), verbose=False)
    return normalize(load(SourceOptions(str(folder / "source")), folder))


def dense(policy: str) -> tuple[Any, Any]:
    x = keras.Input((4,), name="x")
    return x, keras.layers.Dense(3, activation="gelu", dtype=policy)(x)


def test_same_numbers_with_linked_variables(tmp_path: Path) -> None:
    model = exported(tmp_path, *dense("mixed_float16"))
    assert write_promoted(model, tmp_path / "promoted")
    assert os.path.islink(tmp_path / "promoted" / "variables")
    restored = tf.saved_model.load(str(tmp_path / "promoted")).signatures["serving_default"]
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    got = restored(x=tf.constant(x))["output_0"]
    assert got.dtype == tf.float32
    want = model.function("serving_default")(tf.constant(x))["output_0"]
    np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_half_variables_need_new_ones(tmp_path: Path) -> None:
    model = exported(tmp_path, *dense("float16"))
    assert not write_promoted(model, tmp_path / "promoted")
    assert not (tmp_path / "promoted").exists()


def test_functions_that_capture_tensors_of_functions(tmp_path: Path) -> None:
    """swish has a custom gradient, a function of its own that captures its input by name."""
    x = keras.Input((8, 8, 2))
    h = keras.layers.BatchNormalization(dtype="mixed_float16")(x)
    h = keras.layers.Activation("swish", dtype="mixed_float16")(h)
    model = exported(tmp_path, x, h)
    assert not write_promoted(model, tmp_path / "promoted")


def test_range_of_an_index_that_wraps_around(tmp_path: Path) -> None:
    ids = keras.Input((6,), dtype="int32", name="ids")
    model = exported(tmp_path, ids, keras.layers.Embedding(50, 4, dtype="mixed_float16")(ids))
    assert index_ranges(model.program, "serving_default") == {"ids": [0, 49]}
