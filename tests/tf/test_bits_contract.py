"""A model that looks at the bits of a half tensor keeps that one edge, and is no broken promise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from mpexport import formats
from mpexport.sources import SourceOptions
from mpexport.tf.load import load
from mpexport.tf.normalized import normalize

pytestmark = pytest.mark.tf


def test_bitcast_of_half(tmp_path: Path) -> None:
    class Bits(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
        def __call__(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"bits": tf.bitcast(tf.cast(x, tf.float16), tf.int16)}

    bits = Bits()
    tf.saved_model.save(bits, str(tmp_path / "source"), signatures=bits.__call__)
    model = normalize(load(SourceOptions(str(tmp_path / "source")), tmp_path))
    spec = formats.get("savedmodel")
    done = spec.convert(model, tmp_path / "out", spec.options())
    assert spec.check(tmp_path / "out", done, spec.options()).violations == ()
    x = np.array([1.0, -2.5, 65504.0], np.float32)
    got = tf.saved_model.load(str(tmp_path / "out")).signatures["serving_default"](x=tf.constant(x))
    np.testing.assert_array_equal(got["bits"].numpy(), x.astype(np.float16).view(np.int16))
