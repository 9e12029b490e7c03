"""Child: ``python keras3.py FOLDER``: small Keras 3 models, one for each kind of trained model.

For ``NAME`` there is ``NAME`` (a SavedModel) or ``NAME.keras``, ``NAME.inputs.npz`` and
``NAME.expected.npz``: the outputs of the same architecture rebuilt by Keras under float32, with the
same weights. Knows nothing of mpexport.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import keras3_models as models
import numpy as np
import tensorflow as tf
from keras import layers

MIXED = "mixed_float16"
RANDOM = np.random.default_rng(0)


def as_policy(policy: str, build: Callable[[], keras.Model]) -> keras.Model:
    """The model built under a policy, with weights that come from a seed."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(7)
    keras.mixed_precision.set_global_policy(policy)
    model = build()
    keras.mixed_precision.set_global_policy("float32")
    return model


def spread(model: keras.Model) -> None:
    """Weights as after a training: no bias of 0, no variance of 1."""
    random = np.random.default_rng(1)
    for variable in model.variables:
        if "seed" in variable.path or not np.issubdtype(np.asarray(variable).dtype, np.floating):
            continue
        if any(part in variable.path for part in ("bias", "beta", "moving_mean")):
            variable.assign(random.normal(0, 0.3, variable.shape))
        elif any(part in variable.path for part in ("gamma", "moving_variance")):
            variable.assign(random.uniform(0.5, 1.5, variable.shape))


def save(
    folder: Path,
    name: str,
    build: Callable[[], keras.Model],
    inputs: dict[str, np.ndarray],
    policy: str = MIXED,
    kind: str = "savedmodel",
    prepare: Callable[[keras.Model], None] = spread,
    twin: Callable[[], keras.Model] | None = None,
) -> None:
    """Builds both, gives the float32 one the weights of the other, writes all three files."""
    model = as_policy(policy, build)
    prepare(model)
    single = as_policy("float32", twin or build)
    assert [v.path for v in single.variables] == [v.path for v in model.variables], name
    for ours, theirs in zip(single.variables, model.variables, strict=True):
        ours.assign(np.asarray(theirs).astype(ours.dtype))
    given = [inputs[i.name] for i in model.inputs]
    outputs = single(given if len(given) > 1 else given[0], training=False)
    write(folder, name, inputs, outputs if isinstance(outputs, (list, tuple)) else [outputs])
    store(folder, name, model, kind)


def store(folder: Path, name: str, model: keras.Model, kind: str) -> None:
    """Writes the source itself."""
    if kind == "file":
        model.save(folder / f"{name}.keras")
    else:
        model.export(str(folder / name), verbose=False)


def write(folder: Path, name: str, inputs: dict[str, np.ndarray], outputs: Any) -> None:
    """Writes what goes in and what has to come out."""
    if not isinstance(outputs, dict):
        outputs = {f"output_{i}": value for i, value in enumerate(outputs)}
    np.savez(folder / f"{name}.inputs.npz", **inputs)
    np.savez(folder / f"{name}.expected.npz", **{k: np.asarray(v) for k, v in outputs.items()})


def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    """Inputs."""
    return RANDOM.normal(0, scale, shape).astype(np.float32)


def prune(model: keras.Model) -> None:
    spread(model)
    mask = next(v for v in model.variables if v.path.endswith("mask"))
    mask.assign(np.random.default_rng(2).integers(0, 2, mask.shape))


def save_bfloat16_lstm(folder: Path, inputs: dict[str, np.ndarray]) -> None:
    """A file in which a bfloat16 layer has an initializer that TensorFlow lacks in bfloat16."""
    made = {"recurrent_initializer": keras.initializers.RandomNormal(0, 0.25)}
    save(
        folder,
        "bfloat16_lstm",
        lambda: models.recurrent(lambda: layers.LSTM(6, dtype="bfloat16", **made), 2),
        inputs,
        "float32",
        "file",
        twin=lambda: models.recurrent(lambda: layers.LSTM(6, **made), 2),
    )
    path = folder / "bfloat16_lstm.keras"
    with zipfile.ZipFile(path) as old:
        content = {name: old.read(name) for name in old.namelist()}
    config = json.loads(content["config.json"])
    (lstm,) = (x for x in config["config"]["layers"] if x["class_name"] == "LSTM")
    orthogonal = keras.saving.serialize_keras_object(keras.initializers.Orthogonal())
    lstm["config"]["recurrent_initializer"] = orthogonal
    content["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as new:
        for name, data in content.items():
            new.writestr(name, data)


def save_text(folder: Path) -> None:
    """A text model as a whole, and its numeric part."""
    keras.mixed_precision.set_global_policy(MIXED)
    text = layers.TextVectorization(
        output_sequence_length=4, vocabulary=["cat", "dog", "runs", "sleeps"]
    )
    ids = layers.Input((4,), dtype="int64", name="ids")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(6, 8)(ids))
    numeric = keras.Model(ids, layers.Dense(2, dtype="float32")(x))
    sentence = layers.Input((1,), dtype="string", name="sentence")
    whole = keras.Model(sentence, numeric(text(sentence)))
    keras.mixed_precision.set_global_policy("float32")
    whole.export(str(folder / "text"), verbose=False)
    sentences = ["The cat sleeps!", "dog runs", "unheard-of words"]
    rows = np.asarray(text(tf.constant(sentences)[:, None]))
    table, kernel, bias = (np.asarray(v, np.float64) for v in numeric.weights)
    expected = table[rows].mean(axis=1) @ kernel + bias
    store(folder, "numeric_part", numeric, "savedmodel")
    write(folder, "numeric_part", {"ids": rows}, [expected])


def save_half_on_the_same_object(folder: Path) -> None:
    """A mixed model after someone has set the global policy and its weights again."""
    model = as_policy(MIXED, models.image_classifier)
    spread(model)
    keras.mixed_precision.set_global_policy("float32")
    model.set_weights(model.get_weights())
    model.save(folder / "policy_set_afterwards.keras")


def main(folder: Path) -> None:
    """Writes them all."""
    image = {"image": normal(3, 12, 12, 3)}
    for policy in (MIXED, "mixed_bfloat16", "float16"):
        save(folder, f"classifier_{policy}", models.image_classifier, image, policy, "file")
    save_half_on_the_same_object(folder)
    save(folder, "depthwise", models.depthwise, {"image": normal(3, 9, 9, 4)}, kind="file")
    x6 = {"x": normal(3, 6)}
    save(folder, "another_order", models.created_in_another_order, x6)
    save(
        folder,
        "one_half_layer",
        models.one_half_layer,
        x6,
        "float32",
        "file",
        twin=models.one_half_layer_twin,
    )
    exact = {"x": x6["x"].astype(np.float16).astype(np.float32)}
    save(
        folder,
        "half_input",
        models.half_input,
        exact,
        "float32",
        "file",
        twin=models.half_input_twin,
    )
    save(folder, "casts", models.casts, {"image": normal(3, 8, 8, 1)}, twin=models.casts_twin)
    save(folder, "skip", models.skip_from_the_input, {"signal": normal(3, 16, 2)}, kind="file")
    save(folder, "stable_softmax", models.softmax_in_float32, {"x": normal(3, 8)})
    save(folder, "upsampling", models.upsampling, {"image": normal(2, 6, 6, 3)}, kind="file")
    save(
        folder,
        "layer_norm",
        models.normalized_depthwise,
        {"image": normal(3, 8, 8, 8)},
        kind="file",
    )
    inputs = {
        "line": normal(2, 9, 2),
        "image": normal(2, 9, 9, 2),
        "volume": normal(2, 5, 5, 5, 2),
    }
    save(folder, "convolutions", models.convolutions, inputs, "mixed_bfloat16", "file")
    save(folder, "gelu", models.gelu, {"x": normal(3, 8)}, kind="file")
    save(folder, "three_heads", models.three_heads, x6)
    save(folder, "positions", models.added_positions, {"x": normal(2, 4, 6)})
    pixels = {"pixels": RANDOM.integers(0, 256, (3, 6)).astype(np.float32)}
    save(folder, "preprocessing", models.preprocessing, pixels, kind="file")
    save(folder, "large_variance", models.large_variance, {"x": pixels["pixels"]}, kind="file")
    save(folder, "pooling", models.pooling, {"image": normal(2, 5, 5, 3)})
    save(folder, "nested", models.nested, x6)
    save(folder, "pruned", models.pruned, x6, prepare=prune)

    series = {"x": normal(2, 5, 4)}
    save(folder, "lstm", models.normalized_lstm, series, kind="file")
    save(folder, "gru", lambda: models.recurrent(lambda: layers.GRU(6)), series, kind="file")
    save(folder, "lstm_fixed", lambda: models.normalized_lstm(2), series, kind="file")
    save(
        folder,
        "gru_fixed",
        lambda: models.recurrent(lambda: layers.GRU(32), 2),
        series,
        kind="file",
    )
    save(folder, "both_ways", models.both_ways, {"x": normal(2, 8, 4)}, kind="file")
    one = normal(1, 5, 4)
    save(folder, "encoder", models.encoder, {"x": one})
    save(folder, "decoder", models.decoder, {"x": one, "h": normal(1, 6), "c": normal(1, 6)})
    save_bfloat16_lstm(folder, series)
    save(folder, "stateful", models.stateful, {"x": normal(1, 3, 4)}, kind="file")

    ids = np.array([[1, 2049, 2909, 4001], [4097, 4999, 7, 2051]], np.float32)
    for policy in (MIXED, "mixed_bfloat16"):
        save(folder, f"ids_{policy}", models.ids_as_floats, {"ids": ids}, policy, "file")
    save_text(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
