"""Weights that float16 cannot hold: counted, refused, or clamped in file and reference alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from mpexport import formats
from mpexport.errors import ConversionError
from mpexport.tf import reference, weights
from tests.tf.support import normalized
from tests.tf.tflite_support import run_file

pytestmark = pytest.mark.tf

FLUSHED = 2.0**-25


def examined(*values: float) -> Any:
    return weights.examine("w", np.float32(values))


@pytest.mark.parametrize("value", [0.0, 65504, -65519.99, 2.0**-24, FLUSHED * (1 + 2.0**-23)])
def test_what_float16_holds_is_no_damage(value):
    assert np.isfinite(np.float16(np.float32(value)))
    assert bool(np.float16(np.float32(value))) == bool(value)
    assert examined(value, 1) is None


def test_the_ends_are_where_float16_rounds_to_infinity_and_to_zero():
    with np.errstate(over="ignore"):
        assert np.isinf(np.float16(np.float32(65520)))
    assert np.float16(np.float32(FLUSHED)) == 0
    above = examined(1, -65520, 3, 1e6)
    assert (above.above, above.worst, above.index, above.is_fault) == (2, "1e+06", (3,), True)
    below = examined(1, FLUSHED, -1e-30)
    assert (below.flushed, below.lost, below.is_fault) == (2, 0, False)
    assert below.index == (1,)


def test_nan_is_worse_than_infinity():
    damage = examined(1e6, np.inf, np.nan, -np.inf)
    assert (damage.nan, damage.infinite, damage.above) == (1, 2, 1)
    assert (damage.worst, damage.index) == ("nan", (2,))


def test_channels_are_judged_apart():
    kernel = np.full((3, 4, 2), 1e-9, np.float32)
    kernel[0, 0, 0] = 2.0**-14  # rounding this one may be off by 2^-25 already
    kernel[:, :, 1] = 2e-8
    kernel[0, 0, 1] = 2.0**-14.5
    damage = weights.examine("k", kernel)
    assert (damage.flushed, damage.lost) == (11 + 11, 11)
    assert damage.index[-1] == 1
    damage = weights.examine("k", kernel[..., :1])
    assert damage.is_fault is False
    # A vector is one channel.
    assert weights.examine("b", np.float32([1, 1e-9])).lost == 0
    assert weights.examine("b", np.float32([1e-5, 1e-9])).lost == 1


def test_blocks_do_not_change_the_counts(monkeypatch):
    rng = np.random.default_rng(0)
    value = (rng.standard_normal((50, 7)) * 10.0 ** rng.integers(-12, 7, (50, 7))).astype("f4")
    whole = weights.examine("w", value)
    monkeypatch.setattr(weights, "_BLOCK", 20)
    assert weights.examine("w", value) == whole
    with np.errstate(over="ignore"):
        half = value.astype(np.float16)
    assert whole.above == int(np.isinf(half).sum()) > 0
    assert whole.flushed == int(((half == 0) & (value != 0)).sum()) > 0


KERNEL = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
# So small that a weight of 65504 gives logits of size 1.
X = (np.random.default_rng(2).standard_normal((3, 6)) * 1e-5).astype(np.float32)
MASK = np.float32([0, -1e9, 0, 0])


def model_of(path: Path, kernel: Any) -> Any:
    module = tf.Module()
    module.kernel = tf.Variable(kernel, name="kernel")
    spec = tf.TensorSpec([None, 6], tf.float32, name="x")

    def call(x: Any) -> Any:
        logits = tf.cast(x @ module.kernel, tf.float16)
        return {"y": tf.nn.softmax(logits), "m": x[:, :4] + MASK}

    module.call = tf.function(call, input_signature=[spec], autograph=False)
    tf.saved_model.save(module, str(path), signatures=module.call)
    return normalized(path)


def kernel_with(value: float) -> Any:
    kernel = KERNEL.copy()
    kernel[2, 3] = value
    return kernel


def convert(model: Any, path: Path, format: str, **options: Any) -> Any:
    spec, values = formats.resolve(format)
    chosen = spec.options(**{**values, **options})
    conversion = spec.convert(model, path, chosen)
    assert spec.check(path, conversion, chosen).violations == ()
    return conversion


@pytest.mark.parametrize("format", ["tflite-float16", "onnx-float16"])
def test_refused_with_name_count_value_and_place(format, tmp_path):
    model = model_of(tmp_path / "m", kernel_with(1e6))
    with pytest.raises(ConversionError) as e:
        convert(model, tmp_path / "out", format)
    assert "kernel:0 (1 above 65504, worst 1e+06 at [2, 3])" in e.value.message
    assert "--allow-clamp" in e.value.hint
    assert e.value.details["weights"][0]["above"] == 1
    assert not (tmp_path / "out").exists()
    with pytest.raises(ConversionError, match="1 NaN") as e:
        convert(
            model_of(tmp_path / "n", kernel_with(np.nan)),
            tmp_path / "out",
            format,
            allow_clamp=True,
        )
    assert "--allow-clamp" not in e.value.hint


def clamped_and_rounded(value: float) -> Any:
    return np.clip(kernel_with(value), -65504, 65504).astype(np.float16).astype(np.float64)


@pytest.mark.parametrize("value", [1e6, -np.inf])
def test_clamped_in_the_file_and_in_the_rounded_reference(value, tmp_path):
    model = model_of(tmp_path / "m", kernel_with(value))
    made = convert(model, tmp_path / "f", "tflite-float16", allow_clamp=True)
    assert any("clamped to ±65504: kernel:0 (1 " in n for n in made.notes)
    assert [(c.kind, c.where) for c in made.changes] == [("weight-clamped", "kernel:0")]
    logits = X.astype(np.float64) @ clamped_and_rounded(value)
    expected = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    got = run_file((tmp_path / "f").read_bytes(), {"x": X})
    # float32 arithmetic: a dozen roundings of 2^-24, and logits of size 1 in the exponent.
    np.testing.assert_allclose(got["y"], expected, rtol=2e-5)
    np.testing.assert_array_equal(got["m"], X[:, :4] + MASK)  # a mask is no weight: kept as it is
    key = model.source.choose()
    rounded = reference.make_reference(model, key, round_weights=True)
    found = reference.run(rounded.function, ["x"], {"x": X})
    np.testing.assert_allclose(found["y"], expected, rtol=1e-6)
    # The model itself is as before.
    assert [d.above + d.infinite for d in weights.float16_damage(model, key)] == [1]


def test_flushed_weights_are_told_and_lost_channels_refused(tmp_path):
    made = convert(model_of(tmp_path / "a", kernel_with(1e-9)), tmp_path / "f", "tflite-float16")
    assert any(n.startswith("1 weights of 1 variables are 0 in float16") for n in made.notes)
    lost = model_of(tmp_path / "b", KERNEL * np.float32([1, 1, 1, 1e-9]))
    with pytest.raises(ConversionError, match=r"kernel:0 \(6 flushed to 0, worst"):
        convert(lost, tmp_path / "g", "tflite-float16")
    made = convert(lost, tmp_path / "g", "tflite-float16", allow_clamp=True)
    assert any(n.startswith("channels lost weights to float16: kernel:0") for n in made.notes)
