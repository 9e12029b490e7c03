"""Text, tables and sound in ``keras.layers``: lookups, hashes, bins, encodings, spectrograms.

What works on strings exists only in a SavedModel: no runtime of TFLite or ONNX has TensorFlow's
string ops. Lookups of whole numbers may be made of other ops and aren't refused beforehand.

Keras counts with an op that has no 16-bit weights: what gives counts or several ones out of floats
is float32 here, as it must be in a model that trains. Its Fourier transform has no bfloat16 either.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.case import Build, Case, Feed, integers, normal
from tests.conformance.cases._between import after, data, fast, refused, row, special

_WORDS = ["the", "cat", "sat", "on", "a", "mat"]
_STRINGS = "works on strings"
_HASHED = "hashes the text of its input"


def _words(*shape: int) -> Feed:
    """Words of the vocabulary and unknown ones."""
    pool = np.array([*_WORDS, "dog", "ran"])
    return lambda rng, batch: rng.choice(pool, (batch, *shape))


def _sentences(rng: Any, batch: int) -> Any:
    words = _words(5)(rng, batch)
    return np.array([[f"{' '.join(sample).capitalize()}!"] for sample in words])


def _text(name: str, **kwargs: Any) -> Case:
    return refused(
        data(name, _sentences, (1,), "string", vocabulary=_WORDS, **kwargs), _STRINGS
    )  # fmt: skip


def _tf_idf(name: str, feed: Feed, shape: tuple[int, ...], dtype: str, **kwargs: Any) -> Case:
    weights = [0.5 + 0.25 * i for i in range(len(kwargs["vocabulary"]))]
    return data(name, feed, shape, dtype, output_mode="tf_idf", idf_weights=weights, **kwargs)


def _inverted(b: Build) -> Any:
    k = b.keras.layers
    x = b.keras.Input((4,), dtype="int64", name="x")
    words = k.StringLookup(vocabulary=_WORDS, invert=True)(x)
    return b.keras.Model(x, {"words": words, "numbers": k.Dense(3)(k.Embedding(7, 4)(x))})


def _adapted(**kwargs: Any) -> Any:
    def build(b: Build) -> Any:
        k = b.keras.layers
        values = np.random.default_rng(7).normal(3.0, 2.0, (64, 5, 4)).astype(np.float32)
        layer = k.Normalization(**kwargs)
        layer.adapt(values)
        x = b.keras.Input((5, 4), name="x")
        return b.keras.Model(x, after(b, layer(k.Dense(4)(x))))

    return build


def _bins_adapted(b: Build) -> Any:
    k = b.keras.layers
    layer = k.Discretization(num_bins=5)
    layer.adapt(np.random.default_rng(7).normal(size=(256, 1)).astype(np.float32))
    x = b.keras.Input((6,), name="x")
    return b.keras.Model(x, after(b, layer(k.Dense(6)(x))))


def _crossed(mode: str) -> Any:
    def build(b: Build) -> Any:
        k = b.keras.layers
        one = b.keras.Input((1,), dtype="string", name="one")
        two = b.keras.Input((1,), dtype="int64", name="two")
        return b.keras.Model(
            [one, two], after(b, k.HashedCrossing(9, output_mode=mode)([one, two]))
        )

    return build


def _weighted(b: Build) -> Any:
    k = b.keras.layers
    ids = b.keras.Input((4,), dtype="int32", name="ids")
    weights = b.keras.Input((4,), name="weights")
    counts = k.CategoryEncoding(9, output_mode="count", dtype="float32")(
        ids, count_weights=k.Dense(4)(weights)
    )
    return b.keras.Model([ids, weights], after(b, counts))


_BINS = [-0.7, -0.1, 0.3, 0.9]
_IDS = integers(0, 9, 4)
_KEYS = [10, 20, 30, 45]
_KEYED = integers(0, 4, 5, dtype="int64")


def _keys(rng: Any, batch: int) -> Any:
    """Keys of the vocabulary and one that isn't in it."""
    return np.array([*_KEYS, 77])[_KEYED(rng, batch) + rng.integers(0, 2, (batch, 5))]


def _lookup(name: str, **kwargs: Any) -> Case:
    return data(f"IntegerLookup{name}", _keys, (5,), "int64", vocabulary=_KEYS, **kwargs)


_TABLES = [
    data("CategoryEncoding", _IDS, (4,), "int32", 9, output_mode="multi_hot"),
    data("CategoryEncoding-count", _IDS, (4,), "int32", 9, output_mode="count"),
    data("CategoryEncoding-one-hot", integers(0, 9, 1), (1,), "int32", 9, output_mode="one_hot"),
    special(
        data("CategoryEncoding-weighted", _IDS, (4,), "int32", 9), build=_weighted,
        feeds={"ids": _IDS, "weights": normal(4)},
    ),
    fast(row("Discretization", (6,), bin_boundaries=_BINS)),
    row("Discretization-one-hot", (6,), bin_boundaries=_BINS, output_mode="multi_hot",
        dtype="float32"),
    special(row("Discretization-adapted", (6,), bin_boundaries=_BINS), build=_bins_adapted),
    refused(data("Hashing", integers(0, 99, 4, dtype="int64"), (4,), "int64", 9), _HASHED),
    refused(data("Hashing-salted", _words(4), (4,), "string", 9, salt=[3, 4]), _HASHED),
    refused(data("Hashing-one-hot", _words(1), (1,), "string", 9, output_mode="one_hot"), _HASHED),
    *(
        refused(
            special(
                data(f"HashedCrossing{suffix}", _words(1), (1,), "string", 9),
                build=_crossed(mode),
                feeds={"one": _words(1), "two": integers(0, 5, 1, dtype="int64")},
            ),
            _HASHED,
        )
        for suffix, mode in (("", "int"), ("-one-hot", "one_hot"))
    ),
    _lookup(""),
    _lookup("-masked", mask_token=0, num_oov_indices=2),
    _lookup("-multi-hot", output_mode="multi_hot"),
    _lookup("-count", output_mode="count"),
    _tf_idf("IntegerLookup-tf-idf", _keys, (5,), "int64", vocabulary=_KEYS),
    data("IntegerLookup-inverted", integers(0, 5, 4, dtype="int64"), (4,), "int64",
         vocabulary=[3, 5, 7, 11], invert=True),
    special(row("Normalization-adapted", (5, 4)), build=_adapted()),
    special(row("Normalization-inverted", (5, 4)), build=_adapted(invert=True, axis=None)),
    row("Normalization", (5, 4), mean=[0.1, 0.2, 0.3, 0.4], variance=[1.0, 2.0, 0.5, 1.5]),
    row("Normalization-scalar", (5, 4), axis=None, mean=0.3, variance=2.25),
    row("Normalization-axes", (5, 4), axis=(1, 2), mean=0.3, variance=2.25),
]  # fmt: skip

_TEXT = [
    # TFLite has string tensors, and builtins for a table of strings.
    fast(special(data("StringLookup", _words(4), (4,), "string", vocabulary=_WORDS),
                 refused=dict.fromkeys(("onnx", "onnx-float16"), _STRINGS))),
    refused(data("StringLookup-masked", _words(4), (4,), "string", vocabulary=_WORDS,
                 mask_token="", num_oov_indices=3), _STRINGS),
    refused(data("StringLookup-multi-hot", _words(4), (4,), "string", vocabulary=_WORDS,
                 output_mode="multi_hot"), _STRINGS),
    refused(_tf_idf("StringLookup-tf-idf", _words(4), (4,), "string", vocabulary=_WORDS), _STRINGS),
    refused(
        special(data("StringLookup-inverted", integers(0, 7, 4, dtype="int64"), (4,), "int64"),
                build=_inverted),
        _STRINGS,
    ),
    _text("TextVectorization", output_sequence_length=6),
    _text("TextVectorization-multi-hot", output_mode="multi_hot"),
    _text("TextVectorization-ngrams", ngrams=2, output_mode="count"),
    _text("TextVectorization-characters", split="character", output_sequence_length=9),
]  # fmt: skip

_STFT = [
    *(row(f"STFTSpectrogram-{mode}", (96, 1), mode=mode, frame_length=32, frame_step=16)
      for mode in ("log", "magnitude", "psd", "real", "imag", "angle", "stft")),
    row("STFTSpectrogram-same", (96, 2), mode="magnitude", frame_length=24, frame_step=8,
        fft_length=32, padding="same", window=None),
    row("STFTSpectrogram-expanded", (96, 1), mode="log", frame_length=32, expand_dims=True),
]  # fmt: skip

_SOUND = [
    row("MelSpectrogram", (160,), fft_length=32, sequence_stride=16, sampling_rate=800,
        num_mel_bins=8, max_freq=400.0),
    row("MelSpectrogram-power", (160,), fft_length=32, sequence_stride=16, sampling_rate=800,
        num_mel_bins=8, max_freq=400.0, power_to_db=False),
    *(special(c, policies=("mixed_float16",)) for c in _STFT),
]  # fmt: skip

CASES = [*_TABLES, *_TEXT, *_SOUND]
