"""A process that knows nothing of the product: it builds models and says what a fault does.

``python -m tests.mutation.truth`` reads one JSON job per line and answers each with one line.
``prepare`` leaves in a subject's folder:

* ``model.keras``, the thing to be exported, and ``stale-N.keras``, the same earlier in training;
* ``data.npz`` for the gate and ``rare.npz`` for placing rare faults;
* ``fresh.npz``, which nothing else ever sees, and ``twin.npz``: what the float32 twin makes of it.

``effect`` runs a file on ``fresh.npz`` with the plain runtime and compares with ``twin.npz``.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from sample_models import builders
from sample_models.data import Digits, load_digits
from sample_models.optimizers import make_optimizer
from sample_models.twin import assign_weights, float32_twin, named_weights
from tests.conformance import builder, plain
from tests.conformance.serving import serve

# Samples: what a fault on one sample in 1,000 takes to be all but surely among the data is 5,000,
# exp(-5) = 0.7%.
DATA, RARE, FRESH = 5_000, 4_001, 2_003
EPOCHS = 3
_BATCH = 64
# A step of an optimizer that a model without training data never took.
_STEP = 2e-2


def digits_like(images: Any, count: int, seed: int) -> Any:
    """Images of digits, moved by up to two pixels, of other contrast and with noise.

    Args:
        images: float32 (n, 28, 28, 1) in [0, 1].
        count: How many to make.
        seed: Of the generator.

    Returns:
        float32 (count, 28, 28, 1) in [0, 1].
    """
    rng = np.random.default_rng(seed)
    chosen = images[rng.integers(0, len(images), count)]
    moves = rng.integers(-2, 3, (count, 2))
    moved = np.stack([np.roll(x, m, (0, 1)) for x, m in zip(chosen, moves, strict=True)])
    contrast = rng.uniform(0.6, 1.0, (count, 1, 1, 1))
    noise = 0.03 * rng.standard_normal(moved.shape)
    return np.clip(contrast * moved + noise, 0, 1).astype(np.float32)


def _train(name: str, policy: str, folder: Path) -> tuple[Any, Any, Digits]:
    """A sample model after a short, real training; earlier versions of it are left behind."""
    import keras

    digits = load_digits()
    model = builders.build(name, keras, policy)
    model.compile(make_optimizer("adam", keras), loss="sparse_categorical_crossentropy")

    def fit(images: Any, labels: Any) -> None:
        model.fit(images, labels, batch_size=_BATCH, epochs=1, verbose=0)

    for epoch in range(EPOCHS - 1):
        fit(digits.train_images, digits.train_labels)
        if epoch == EPOCHS - 2:
            model.save(folder / "stale-0.keras")
    # The last epoch but for its last ten steps, and then those.
    most = len(digits.train_images) - 10 * _BATCH
    fit(digits.train_images[:most], digits.train_labels[:most])
    model.save(folder / "stale-1.keras")
    fit(digits.train_images[most:], digits.train_labels[most:])
    return model, keras, digits


def _draw(module: str, name: str, policy: str, folder: Path) -> tuple[Any, Any, Any]:
    """A model of the conformance suite, and one whose weights are a step away from it."""
    case = builder.find_case(module, name)
    twin, _ = builder._build(case, "float32")
    builder._draw_weights(twin)
    drawn = named_weights(twin)
    rng = np.random.default_rng(0)
    model, keras = builder._build(case, policy)
    steps = [(n, w + (_STEP * rng.choice([-1, 1], w.shape)).astype(w.dtype)) for n, w in drawn]
    assign_weights(
        model, [s if s[1].dtype.kind == "f" else d for s, d in zip(steps, drawn, strict=True)]
    )
    model.save(folder / "stale-0.keras")
    assign_weights(model, drawn)
    return model, keras, case


def prepare(model: str, policy: str, module: str, folder: str) -> dict[str, Any]:
    """Builds a subject, its twin and its data.

    Returns:
        Output name → the trained model's noise: max|model - twin| over the fresh samples.
    """
    place = Path(folder)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    counts = {"data": DATA, "rare": RARE, "fresh": FRESH}
    if module:
        mixed, keras, case = _draw(module, model, policy, place)
        twin = float32_twin(mixed, keras)
        saved = builder._save(twin, keras, builder._folder(place / "twin"), "savedmodel")
        sized = dataclasses.replace(case, batches=tuple(counts.values()))
        made = dict(zip(counts, builder._inputs(sized, saved), strict=True))
    else:
        mixed, keras, digits = _train(model, policy, place)
        twin = float32_twin(mixed, keras)
        saved = builder._save(twin, keras, builder._folder(place / "twin"), "savedmodel")
        seen = np.concatenate([digits.train_images, digits.test_images])
        images = {k: digits_like(seen, n, seed) for seed, (k, n) in enumerate(counts.items())}
        made = {k: {builders.INPUT_NAME: v} for k, v in images.items()}
    for name, arrays in made.items():
        np.savez(place / f"{name}.npz", **arrays)
    mixed.save(place / "model.keras")
    as_trained = builder._save(mixed, keras, builder._folder(place / "trained"), "savedmodel")
    right = plain.run_saved_model(saved, "", [made["fresh"]])[0]
    np.savez(place / "twin.npz", **right)
    trained = plain.run_saved_model(as_trained, "", [made["fresh"]])[0]
    keras.backend.clear_session()
    return {"noise": {k: worst(v, trained[k]) for k, v in right.items()}}


def worst(right: Any, found: Any) -> float:
    """max|found - right| in float64; infinite where one is finite and the other isn't."""
    r, f = np.asarray(right, np.float64), np.asarray(found, np.float64)
    if r.shape != f.shape or not np.array_equal(np.isfinite(r), np.isfinite(f)):
        return float("inf")
    finite = np.isfinite(r)
    return float(np.abs(f[finite] - r[finite]).max(initial=0.0))


def effect(folder: str, path: str) -> dict[str, Any]:
    """What a file computes beside the twin.

    Returns:
        Output name → max|file - twin| over the fresh samples, and in how many of them the file
        gives a NaN. Another set of outputs is an error, as is a file that doesn't run.
    """
    place = Path(folder)
    fresh, right = (dict(np.load(place / f"{n}.npz")) for n in ("fresh", "twin"))
    found = plain.run_file(Path(path), "", fresh)
    if set(found) != set(right):
        raise ValueError(f"outputs {sorted(found)} instead of {sorted(right)}")
    nan = [np.isnan(v.reshape(len(v), -1)).any(axis=1) for v in found.values()]
    return {
        "effect": {k: worst(v, found[k]) for k, v in right.items()},
        "nan_samples": int(np.logical_or.reduce(nan).sum()),
    }


def lowest(folder: str, path: str, output: str, share: float) -> dict[str, Any]:
    """Below which number a share of the samples of ``rare.npz`` go anywhere in an output."""
    rare = dict(np.load(Path(folder) / "rare.npz"))
    values = np.asarray(plain.run_file(Path(path), "", rare)[output], np.float64)
    if values.size % len(next(iter(rare.values()))):
        raise ValueError(f"{output} does not come by the sample")
    lows = values.reshape(len(next(iter(rare.values()))), -1).min(axis=1)
    return {"limit": float(np.quantile(lows, share))}


JOBS = {"prepare": prepare, "effect": effect, "lowest": lowest}


if __name__ == "__main__":
    serve(JOBS)
