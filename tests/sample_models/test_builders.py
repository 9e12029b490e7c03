"""Tests of the builders with Keras 3; those with Keras 2 are in test_legacy_keras.py."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from sample_models import builders
from sample_models.errors import UsageError

pytestmark = pytest.mark.tf

TRAINABLE = builders.names(trainable_only=True)
HALF = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}


@pytest.fixture(scope="module")
def keras() -> Any:
    return importlib.import_module("keras")


def random_images(count: int) -> Any:
    return np.random.default_rng(1).random((count, 28, 28, 1), dtype=np.float32)


def test_registry_lists_every_model_with_a_summary() -> None:
    assert builders.names() == ("mlp", "cnn", "transformer", "lstm", "resnet50")
    assert TRAINABLE == ("mlp", "cnn", "transformer", "lstm")
    assert all(builders.find(name).summary.endswith(".") for name in builders.names())


@pytest.mark.parametrize("policy", HALF)
@pytest.mark.parametrize("name", TRAINABLE)
def test_all_layers_compute_in_half_even_the_softmax(keras: Any, name: str, policy: str) -> None:
    model = builders.build(name, keras, policy)
    layers = [x for x in model.layers if not isinstance(x, keras.layers.InputLayer)]
    assert {layer.compute_dtype for layer in layers} == {HALF[policy]}
    assert {variable.dtype for variable in model.weights} == {"float32"}
    assert model.layers[-1].activation is keras.activations.softmax
    assert model.outputs[0].dtype == HALF[policy]
    assert model.dtype_policy.name == policy


@pytest.mark.parametrize("name", TRAINABLE)
def test_names_and_shapes(keras: Any, name: str) -> None:
    model = builders.build(name, keras, batch_size=2)
    assert (model.name, model.layers[0].name, model.layers[-1].name) == (
        name,
        "images",
        "probabilities",
    )
    assert model.inputs[0].shape == (2, 28, 28, 1)
    assert model.inputs[0].dtype == "float32"
    assert model.outputs[0].shape == (2, 10)
    np.testing.assert_allclose(np.sum(model(random_images(2)), axis=-1), 1.0, rtol=1e-6)


def test_global_policy_is_restored_also_after_a_failure(keras: Any) -> None:
    with builders.policy_scope(keras, "mixed_bfloat16"):
        builders.build("mlp", keras, "mixed_float16")
        assert keras.config.dtype_policy().name == "mixed_bfloat16"
        with pytest.raises(TypeError):
            builders.build("mlp", keras, "mixed_float16", no_such_option=1)
        assert keras.config.dtype_policy().name == "mixed_bfloat16"
    assert keras.config.dtype_policy().name == "float32"


def test_seed_decides_the_weights(keras: Any) -> None:
    first, again, other = (
        builders.build("mlp", keras, seed=seed).get_weights()[0] for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_compile_adds_loss_scaling_under_float16_only(keras: Any) -> None:
    for policy in builders.POLICIES:
        model = builders.build("mlp", keras, policy)
        model.compile("adam", "sparse_categorical_crossentropy")
        scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
        assert scaled == (policy == "mixed_float16")


def test_transformer_knows_positions(keras: Any) -> None:
    model = builders.build("transformer", keras)
    images = random_images(1)
    difference = np.abs(model(images) - model(images[:, ::-1]))
    # Without positions the two agree but for the order of summation, a few times 2**-24.
    assert difference.max() > 1e-4


def test_resnet50_is_finite_in_half_and_depends_on_its_input(keras: Any) -> None:
    model = builders.build("resnet50", keras, "mixed_float16", side=64)
    assert model.count_params() > 23_000_000
    assert model.layers[0].name == "images"
    assert model.layers[-1].name == "probabilities"
    normalizations = [x for x in model.layers if isinstance(x, keras.layers.BatchNormalization)]
    assert len(normalizations) == 53
    assert all(np.ptp(layer.moving_mean) > 0 for layer in normalizations)
    assert {layer.momentum for layer in normalizations} == {0.99}
    images = builders._smooth_noise(4, 64)[:2]
    probabilities = np.asarray(model(images), dtype=np.float64)
    assert np.isfinite(probabilities).all()
    assert np.abs(probabilities[0] - probabilities[1]).max() > 2.0**-11


def test_unknown_names_are_usage_errors(keras: Any) -> None:
    with pytest.raises(UsageError, match="choose from mlp, cnn"):
        builders.build("perceptron", keras)
    with pytest.raises(UsageError, match="choose from float32"):
        builders.build("mlp", keras, "float16_mixed")
