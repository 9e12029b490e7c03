"""Tests of builders and twins with ``tf_keras``, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sample_models import builders

pytestmark = pytest.mark.tf

SCRIPT = """
import json, sys
import numpy as np
import tf_keras as keras
from sample_models import builders, twin

result = {}
for name in builders.names():
    options = {"side": 64} if name == "resnet50" else {}
    mixed, single = twin.build_twin_pair(name, keras, "mixed_float16", seed=1, **options)
    mixed.compile("adam", "sparse_categorical_crossentropy")
    rebuilt = twin.float32_twin(mixed, keras)
    images = np.random.default_rng(2).random((2, *mixed.input_shape[1:]), dtype=np.float32)
    result[name] = {
        "mixed": sorted({x.compute_dtype for x in mixed.layers[1:]}),
        "twin": sorted({x.compute_dtype for x in rebuilt._flatten_layers()}),
        "ends": [mixed.layers[0].name, mixed.layers[-1].name],
        "optimizer": type(mixed.optimizer).__name__,
        "weights": [[w.name, *map(int, w.shape)] for w in mixed.weights],
        "same": bool(np.array_equal(single(images), rebuilt(images))),
        "output": mixed(images).dtype.name,
        "policy_after": keras.mixed_precision.global_policy().name,
    }
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def legacy(fresh_process: Callable[..., Any]) -> Any:
    return fresh_process(SCRIPT, legacy_keras=True)


@pytest.mark.parametrize("name", builders.names())
def test_same_builder_serves_keras_2(legacy: Any, name: str) -> None:
    figures = legacy[name]
    assert figures["mixed"] == ["float16"]
    assert figures["output"] == "float16"
    assert figures["ends"] == ["images", "probabilities"]
    assert figures["optimizer"].startswith("LossScaleOptimizer")
    assert figures["policy_after"] == "float32"


@pytest.mark.parametrize("name", builders.names())
def test_twin_of_keras_2(legacy: Any, name: str) -> None:
    assert legacy[name]["twin"] == ["float32"]
    assert legacy[name]["same"]


@pytest.mark.parametrize("name", builders.names(trainable_only=True))
def test_weights_have_the_order_of_keras_3(legacy: Any, name: str) -> None:
    import keras

    model = builders.build(name, keras)
    expected = [[f"{weight.path}:0", *weight.shape] for weight in model.weights]
    assert legacy[name]["weights"] == expected
