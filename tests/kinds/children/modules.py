"""Child: ``python modules.py FOLDER``: SavedModels of plain TensorFlow, without Keras.

``NAME.inputs.npz`` and ``NAME.expected.npz`` as in ``keras3.py``; what is expected is computed with
numpy in float64. Knows nothing of mpexport.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf

RANDOM = np.random.default_rng(3)
WEIGHTS = RANDOM.normal(0, 1, (6, 4))
NUMPY = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


class Matmul(tf.Module):
    """A variable and a constant of 16 bits, and input and output of float32."""

    def __init__(self, dtype: str) -> None:
        super().__init__()
        self.kernel = tf.Variable(WEIGHTS.astype(NUMPY[dtype]))
        self.shift = tf.constant(np.array([1.5, -2.25, 0.1, 3.0]).astype(NUMPY[dtype]))

    @tf.function(input_signature=[tf.TensorSpec((None, 6), tf.float32, name="x")])
    def __call__(self, x: Any) -> dict[str, Any]:
        y = tf.matmul(tf.cast(x, self.kernel.dtype), self.kernel) + self.shift
        return {"y": tf.cast(y, tf.float32)}


class StoredHalf(tf.Module):
    """Kernels that someone has rounded to float16 before saving; inputs of float32."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = tf.Variable(RANDOM.normal(0, 1, (3, 3, 2, 4)).astype(np.float16))

    @tf.function(input_signature=[tf.TensorSpec((None, 6, 6, 2), tf.float32, name="x")])
    def __call__(self, x: Any) -> dict[str, Any]:
        return {"y": tf.nn.conv2d(x, tf.cast(self.kernel, tf.float32), 1, "VALID")}


class Loop(tf.Module):
    """A recurrent net whose recurrent kernel alone is rounded to bfloat16, at each step."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = tf.Variable(RANDOM.normal(0, 0.5, (4, 4)).astype(np.float32))

    @tf.function(input_signature=[tf.TensorSpec((2, 5, 4), tf.float32, name="x")])
    def __call__(self, x: Any) -> dict[str, Any]:
        def step(i: Any, h: Any) -> Any:
            kernel = tf.cast(self.kernel, tf.bfloat16)
            product = tf.cast(tf.matmul(tf.cast(h, tf.bfloat16), kernel), tf.float32)
            return i + 1, tf.tanh(product + x[:, i])

        _, h = tf.while_loop(lambda i, _: i < 5, step, [0, tf.zeros((2, 4))])
        return {"h": h}


class Mapped(tf.Module):
    """A map over the batch, in half."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = tf.Variable(RANDOM.normal(0, 1, (40, 40)).astype(np.float32))

    @tf.function(input_signature=[tf.TensorSpec((3, 4, 40), tf.float32, name="x")])
    def __call__(self, x: Any) -> dict[str, Any]:
        kernel = tf.cast(self.kernel, tf.float16)
        y = tf.map_fn(lambda row: tf.matmul(row[1:, :], kernel), tf.cast(x, tf.float16))
        return {"y": tf.cast(y, tf.float32)}


class AllNan(tf.Module):
    """A model that gives NaN for everything."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = tf.Variable(np.ones((4, 2), np.float32))

    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32, name="x")])
    def __call__(self, x: Any) -> dict[str, Any]:
        half = tf.cast(x, tf.bfloat16)
        y = tf.matmul(-half * half - 1, tf.cast(self.kernel, tf.bfloat16))
        return {"y": tf.cast(tf.math.log(y), tf.float32)}


class Constant(AllNan):
    """A model that gives the same for everything."""

    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32, name="x")])
    def __call__(self, x: Any) -> dict[str, Any]:
        y = tf.matmul(tf.cast(x, tf.bfloat16) * 0, tf.cast(self.kernel, tf.bfloat16))
        return {"y": tf.cast(y, tf.float32)}


class SevenAxes(tf.Module):
    """A product of two tensors of four axes, with seven axes in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = tf.Variable(RANDOM.normal(0, 1, (2, 3, 4, 5)).astype(np.float32))

    @tf.function(input_signature=[tf.TensorSpec((1, 2, 2, 2), tf.float32, name="x")])
    def __call__(self, x: Any) -> dict[str, Any]:
        kernel = tf.cast(self.kernel, tf.float16)
        y = tf.tensordot(tf.cast(x, tf.float16), kernel, [[3], [0]])
        return {"y": tf.cast(tf.expand_dims(y, 0), tf.float32)}


class NoSignature(tf.Module):
    """Takes anything, and was saved without having been called."""

    @tf.function
    def predict(self, x: Any) -> Any:
        return tf.cast(x, tf.float16) * 2


def write(folder: Path, name: str, module: Any, x: np.ndarray, **expected: np.ndarray) -> None:
    """Writes a SavedModel, what goes in and what has to come out."""
    tf.saved_model.save(module, str(folder / name), signatures=module.__call__)
    np.savez(folder / f"{name}.inputs.npz", x=x)
    np.savez(folder / f"{name}.expected.npz", **expected)


def main(folder: Path) -> None:
    """Writes them all."""
    eye = np.eye(6, dtype=np.float32)
    for dtype in NUMPY:
        module = Matmul(dtype)
        y = module.kernel.numpy().astype(np.float64) + module.shift.numpy().astype(np.float64)
        write(
            folder,
            f"variables_{dtype}",
            module,
            eye,
            y=y,
            kernel=module.kernel.numpy().astype(np.float32),
        )
    stored = StoredHalf()
    x = RANDOM.normal(0, 1, (2, 6, 6, 2)).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (1, 2))
    kernel = stored.kernel.numpy().astype(np.float64)
    y = np.einsum("bijchw,hwco->bijo", windows, kernel)
    write(folder, "stored_half", stored, x, y=y, kernel=kernel.astype(np.float32))
    loop = Loop()
    x = RANDOM.normal(0, 1, (2, 5, 4)).astype(np.float32)
    h = np.zeros((2, 4))
    for i in range(5):
        h = np.tanh(h @ loop.kernel.numpy().astype(np.float64) + x[:, i])
    write(folder, "loop", loop, x, h=h)
    mapped = Mapped()
    x = RANDOM.normal(0, 1, (3, 4, 40)).astype(np.float32)
    y = x[:, 1:].astype(np.float64) @ mapped.kernel.numpy().astype(np.float64)
    write(folder, "mapped", mapped, x, y=y)
    x = RANDOM.normal(0, 1, (3, 4)).astype(np.float32)
    write(folder, "all_nan", AllNan(), x)
    write(folder, "constant", Constant(), x)
    axes = SevenAxes()
    x = RANDOM.normal(0, 1, (1, 2, 2, 2)).astype(np.float32)
    y = np.tensordot(x.astype(np.float64), axes.kernel.numpy().astype(np.float64), [[3], [0]])
    write(folder, "seven_axes", axes, x, y=y[None])
    tf.saved_model.save(NoSignature(), str(folder / "no_signature"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
