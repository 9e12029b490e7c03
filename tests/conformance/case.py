"""What a conformance case is: one model, built in 16 bits and again in float32 as its own twin.

The modules of ``cases/`` hold ``CASES``, lists of these. They import no TensorFlow and no Keras at
the top: the process that plans the suite reads them, other processes build.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Feed = Callable[[np.random.Generator, int], Array]

MIXED = ("mixed_float16", "mixed_bfloat16")
TARGETS = ("savedmodel", "tflite", "tflite-float16", "onnx", "onnx-float16")


@dataclass(frozen=True)
class Build:
    """What a case is built with; for the twin everything is float32, and the seed is the same.

    Attributes:
        policy: The policy under test, or ``float32`` for the twin. It is the global policy already.
        half: ``float16`` or ``bfloat16``, or ``float32`` for the twin: for explicit casts, dtypes
            of single layers and of variables.
        keras: Keras 3, tf_keras, or None for a case without Keras.
        rng: For weights of a case without Keras.
    """

    policy: str
    half: str
    keras: Any
    rng: np.random.Generator


@dataclass(frozen=True)
class Saved:
    """A ``tf.Module`` with what ``tf.saved_model.save`` takes as ``signatures``."""

    module: Any
    signatures: Any


@dataclass(frozen=True)
class Case:
    """One model of the suite.

    Attributes:
        name: ``group/what``, unique; the row of the table.
        build: Returns a Keras model, or `Saved`. Weights of a Keras model are drawn anew by the
            suite (no zeros and ones, so that a bias or a statistic that gets lost is seen), those
            of `Saved` come from ``rng``.
        keras: ``keras``, ``tf_keras`` or ``""``.
        policies: Policies to build under; for a case without Keras they only choose ``half``.
        feeds: Input name → values for (rng, batch). Default: standard normal for floats; other
            types need one.
        source: How the model is handed over: ``keras``, ``h5`` or ``savedmodel``; ``""`` takes
            .keras under mixed_float16 and a SavedModel otherwise.
        signature: Signature to convert, where there are several.
        batches: Samples per run.
        options: Format name → options of the export, for example ``{"tflite": {"batch": 1}}``.
        refused: Target → why no faithful file can be made; exit code 5 is right there, and
            anything else a fault.
        fast: Whether ``make test`` runs it too.
        literals: Whether the model holds Python numbers that a 16-bit trace rounds; the twin is
            then allowed the difference that rounding them makes in the twin itself.
        bare: Whether the bare tools run on it too. They take minutes for a large model.
        deep: Whether it only has more of the same blocks than another case; runs when it is named
            or all are asked for.
    """

    name: str
    build: Callable[[Build], Any]
    keras: str = "keras"
    policies: tuple[str, ...] = MIXED
    feeds: Mapping[str, Feed] = field(default_factory=dict)
    source: str = ""
    signature: str = ""
    batches: tuple[int, ...] = (1, 3)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    fast: bool = False
    literals: bool = True
    bare: bool = True
    deep: bool = False


def integers(low: int, high: int, *shape: int, dtype: str = "int32") -> Feed:
    """Whole numbers in [low, high), one sample of the given shape."""
    return lambda rng, batch: rng.integers(low, high, (batch, *shape)).astype(dtype)


def normal(*shape: int, scale: float = 1.0, dtype: str = "float32") -> Feed:
    """Normally distributed samples of the given shape."""
    return lambda rng, batch: (scale * rng.standard_normal((batch, *shape))).astype(dtype)


def uniform(low: float, high: float, *shape: int) -> Feed:
    """Evenly distributed samples of the given shape."""
    return lambda rng, batch: rng.uniform(low, high, (batch, *shape)).astype(np.float32)
