"""Tests of the float32 twins with Keras 3."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sample_models import builders, twin
from sample_models.errors import TwinError

pytestmark = [
    pytest.mark.tf,
    # Keras itself reads its variables in a way that numpy 2 deprecates when it saves a file.
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]

POLICIES = ("mixed_float16", "mixed_bfloat16")


@pytest.fixture(scope="module")
def keras() -> Any:
    return importlib.import_module("keras")


def policies(model: Any) -> set[str]:
    return {layer.dtype_policy.name for layer in model._flatten_layers()}


def compute_dtypes(model: Any) -> set[str]:
    return {layer.compute_dtype for layer in model._flatten_layers()}


def random_batch(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(2).random(shape, dtype=np.float32)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", builders.names(trainable_only=True))
def test_twin_is_float32_with_equal_weights(keras: Any, name: str, policy: str) -> None:
    mixed, single = twin.build_twin_pair(name, keras, policy, seed=1)
    rebuilt = twin.float32_twin(mixed, keras)
    assert policies(rebuilt) == policies(single) == {"float32"}
    assert policy in policies(mixed)
    for a, b, c in zip(mixed.weights, single.weights, rebuilt.weights, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
        np.testing.assert_array_equal(a.numpy(), c.numpy())
    images = random_batch((2, 28, 28, 1))
    # Two ways to the same float32 model: the builder, and the replaced policies.
    np.testing.assert_array_equal(single(images), rebuilt(images))


def awkward_model(keras: Any) -> Any:
    """Nested model, wrappers, cells, policies per layer, a 16-bit variable and casts."""
    layers = keras.layers
    images = keras.Input((6, 4), name="images")
    with builders.policy_scope(keras, "mixed_float16"):
        nested = keras.Sequential([keras.Input((6, 4)), layers.TimeDistributed(layers.Dense(5))])
        x = nested(images)
        x = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(x)
        x = layers.Lambda(lambda value: value * 2)(x)
        x = layers.RNN([layers.GRUCell(3), layers.LSTMCell(2)])(x)
    x = layers.Dense(3, dtype="float16")(x)
    x = keras.ops.cast(x, "bfloat16") + 1
    x = layers.Dense(3, dtype=keras.DTypePolicy("mixed_bfloat16"))(x)
    return keras.Model(images, layers.Dense(2, dtype="float32")(x))


def test_nested_models_wrappers_cells_and_casts(keras: Any) -> None:
    model = awkward_model(keras)
    before = policies(model)
    single = twin.float32_twin(model, keras)
    assert before == policies(model) == {"float32", "mixed_float16", "float16", "mixed_bfloat16"}
    assert policies(single) == {"float32"}
    assert "bfloat16" not in str(single.get_config())
    assert {str(weight.dtype) for weight in single.weights} == {"float32"}
    batch = random_batch((3, 6, 4))
    # One bfloat16 addition (unit roundoff 2**-8) near 1 dominates the difference.
    np.testing.assert_allclose(model(batch), single(batch), atol=16 * 2.0**-8)
    assert np.any(np.asarray(model(batch)) != np.asarray(single(batch)))


def test_dtype_policy_map(keras: Any) -> None:
    policy_map = keras.dtype_policies.DTypePolicyMap(default_policy="mixed_bfloat16")
    policy_map["attention/query"] = keras.DTypePolicy("mixed_float16")
    tokens = keras.Input((5, 8))
    attention = keras.layers.MultiHeadAttention(2, 4, name="attention", dtype=policy_map)
    model = keras.Model(tokens, attention(tokens, tokens))
    assert {"float16", "bfloat16"} <= compute_dtypes(model)
    single = twin.float32_twin(model, keras)
    assert compute_dtypes(single) == {"float32"}


def test_other_dtypes_stay_what_they_are(keras: Any) -> None:
    ids = keras.Input((4,), dtype="int32", name="ids")
    x = keras.layers.Embedding(9, 3, dtype="mixed_float16")(ids)
    model = keras.Model(ids, keras.layers.Dense(2, dtype="float64")(x))
    single = twin.float32_twin(model, keras)
    assert single.inputs[0].dtype == "int32"
    assert [layer.compute_dtype for layer in single.layers[1:]] == ["float32", "float64"]


def test_custom_layer_needs_no_registration(keras: Any) -> None:
    class Scale(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x * 3

    images = keras.Input((4,))
    single = twin.float32_twin(keras.Model(images, Scale(dtype="mixed_float16")(images)), keras)
    assert policies(single) == {"float32"}


def test_layer_that_insists_on_half_is_refused(keras: Any) -> None:
    class Stubborn(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**{**options, "dtype": "float16"})

        def call(self, x: Any) -> Any:
            return x * 3

    images = keras.Input((4,))
    model = keras.Model(images, Stubborn(name="stubborn")(images))
    with pytest.raises(TwinError, match="stubborn insists on float16"):
        twin.float32_twin(model, keras)


def test_quantized_layers_are_refused(keras: Any) -> None:
    model = builders.build("mlp", keras, "mixed_bfloat16", hidden=8)
    model.get_layer("hidden").quantize("int8")
    with pytest.raises(TwinError, match="quantized"):
        twin.float32_twin(model, keras)


def test_adapted_state_is_carried_over(keras: Any) -> None:
    layers = keras.layers
    numbers, words = keras.Input((4,)), keras.Input((1,), dtype="string")
    scale, lookup = layers.Normalization(dtype="mixed_float16"), layers.StringLookup()
    scale.adapt(100 + random_batch((64, 4)))
    lookup.adapt(["b", "a", "b"])
    embedding = layers.Embedding(4, 4, dtype="mixed_float16")
    word = layers.Flatten()(embedding(lookup(words)))
    model = keras.Model([numbers, words], [scale(numbers), word])
    single = twin.float32_twin(model, keras)
    tensorflow = importlib.import_module("tensorflow")
    batch = 100 + random_batch((8, 4))
    scaled, embedded = single([tensorflow.constant(batch), tensorflow.constant([["b"]] * 8)])
    np.testing.assert_allclose(
        scaled, (batch - scale.adapt_mean) / np.sqrt(scale.adapt_variance), atol=2.0**-12
    )
    np.testing.assert_array_equal(embedded[0], single.get_layer(embedding.name).embeddings[1])
    assert single.get_layer(lookup.name).get_vocabulary() == ["[UNK]", "b", "a"]


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_load_twin(keras: Any, tmp_path: Path, suffix: str) -> None:
    model = builders.build("transformer", keras, "mixed_float16", seed=4)
    model.compile("adam", "sparse_categorical_crossentropy")
    path = tmp_path / f"model{suffix}"
    model.save(path)
    single = twin.load_twin(path, keras)
    assert policies(single) == {"float32"}
    images = random_batch((2, 28, 28, 1))
    np.testing.assert_array_equal(single(images), twin.float32_twin(model, keras)(images))


def test_assignment_checks_count_shape_and_name(keras: Any) -> None:
    model = builders.build("mlp", keras, hidden=10)
    weights = twin.named_weights(model)
    before = model.get_weights()
    with pytest.raises(TwinError, match="has 4 weights, but 3 were given"):
        twin.assign_weights(model, weights[:-1])
    with pytest.raises(TwinError, match=r"weight 0 of mlp is kernel \(784, 10\)"):
        twin.assign_weights(model, [weights[2], weights[1], weights[0], weights[3]])
    with pytest.raises(TwinError, match=r"weight 3 of mlp is bias \(10,\), but gamma"):
        twin.assign_weights(model, [*weights[:3], ("gamma", weights[3][1] + 1)])
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
