"""Builders of the sample models, for both generations of Keras.

Each builder is one function that gets the Keras module to build with (``keras``, version 3, or
``tf_keras``, version 2) and uses standard layers only, so that a saved file loads without custom
classes. The dtype policy is set around the call; the builders don't know it. They leave the
softmax in the compute dtype, as most people write it: that is the case an export must survive.

Every input layer is called ``images`` and every head ``probabilities``. To add a model, write one
function with the ``@sample_model`` decorator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from sample_models.data import NUM_CLASSES, FloatArray, resize_bilinear
from sample_models.errors import UsageError

POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")
INPUT_NAME = "images"
OUTPUT_NAME = "probabilities"

_SIDE = 28
"""Height and width of the images, in pixels."""


@dataclass(frozen=True, slots=True)
class SampleModel:
    """One row of the registry.

    Attributes:
        name: Name on the command line; also the name of the Keras model.
        build: Builds the model with the given Keras module, under the current policy.
        trainable: Whether the digits fit its input, so that it can be trained on them.
        summary: First line of the builder's docstring.
    """

    name: str
    build: Callable[..., Any]
    trainable: bool
    summary: str


_REGISTRY: dict[str, SampleModel] = {}


def sample_model(trainable: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enters a builder into the registry under the name of its function.

    Args:
        trainable: Whether it takes images of shape (28, 28, 1) and tells 10 classes apart.
    """

    def register(builder: Callable[..., Any]) -> Callable[..., Any]:
        summary = (builder.__doc__ or "").partition("\n")[0]
        name = builder.__name__
        _REGISTRY[name] = SampleModel(name, builder, trainable, summary)
        return builder

    return register


def names(trainable_only: bool = False) -> tuple[str, ...]:
    """Returns the names of the models in order of registration."""
    return tuple(row.name for row in _REGISTRY.values() if row.trainable or not trainable_only)


def find(name: str) -> SampleModel:
    """Returns the row of a model.

    Raises:
        UsageError: There is no model of that name.
    """
    if name not in _REGISTRY:
        raise UsageError(f"no sample model is called {name!r}; choose from {', '.join(names())}")
    return _REGISTRY[name]


@contextmanager
def policy_scope(keras: Any, policy: str) -> Iterator[None]:
    """Sets the global dtype policy of one Keras module, and the old one again at the end.

    The global policy is used rather than ``dtype=`` per layer, since ``compile`` wraps the
    optimizer for loss scaling only if the *model* carries the policy.

    Args:
        keras: Keras 3 or ``tf_keras``.
        policy: Name of a dtype policy.
    """
    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy(policy)
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(before)


def build(name: str, keras: Any, policy: str = "float32", *, seed: int = 0, **options: Any) -> Any:
    """Builds a sample model with seeded random weights.

    Args:
        name: Name of the model, see ``names()``.
        keras: Module to build with: Keras 3 or ``tf_keras``.
        policy: One of ``POLICIES``.
        seed: Seed of the initial weights, at least 0. It seeds the generators of Python, numpy
            and TensorFlow, as ``keras.utils.set_random_seed`` does.
        **options: Keyword arguments of the model's builder, such as ``batch_size``.

    Returns:
        The model, not compiled. The global policy is what it was before the call.

    Raises:
        UsageError: The name or the policy is unknown.
    """
    row = find(name)
    if policy not in POLICIES:
        raise UsageError(f"no dtype policy is called {policy!r}; choose from {', '.join(POLICIES)}")
    keras.utils.set_random_seed(seed)
    with policy_scope(keras, policy):
        return row.build(keras, **options)


@sample_model()
def mlp(keras: Any, *, batch_size: int | None = None, hidden: int = 128) -> Any:
    """Multilayer perceptron: one hidden layer.

    Args:
        keras: Module to build with.
        batch_size: Fixed batch size, or None for any.
        hidden: Units of the hidden layer.

    Returns:
        A model (batch, 28, 28, 1) → (batch, 10).
    """
    layers = keras.layers
    images = _images(keras, batch_size)
    x = layers.Flatten(name="flatten")(images)
    x = layers.Dense(hidden, activation="relu", name="hidden")(x)
    return _classifier(keras, "mlp", images, x)


@sample_model()
def cnn(keras: Any, *, batch_size: int | None = None, filters: int = 32, hidden: int = 128) -> Any:
    """Convolutional network: one convolution, pooling and one hidden layer.

    Args:
        keras: Module to build with.
        batch_size: Fixed batch size, or None for any.
        filters: Channels of the convolution.
        hidden: Units of the hidden layer.

    Returns:
        A model (batch, 28, 28, 1) → (batch, 10).
    """
    layers = keras.layers
    images = _images(keras, batch_size)
    x = layers.Conv2D(filters, 3, activation="relu", name="convolution")(images)
    x = layers.MaxPooling2D(2, name="pooling")(x)
    x = layers.Flatten(name="flatten")(x)
    x = layers.Dense(hidden, activation="relu", name="hidden")(x)
    return _classifier(keras, "cnn", images, x)


@sample_model()
def transformer(
    keras: Any,
    *,
    batch_size: int | None = None,
    blocks: int = 2,
    heads: int = 4,
    key_dim: int = 16,
    width: int = 64,
) -> Any:
    """Transformer encoder: the rows of the image are the tokens.

    The position embedding is the bias of the projection: a bias along the axes of time *and*
    features is one learned vector per position, and needs no custom layer.

    Args:
        keras: Module to build with.
        batch_size: Fixed batch size, or None for any.
        blocks: Number of encoder blocks.
        heads: Attention heads of each block.
        key_dim: Width of a head.
        width: Width of a token.

    Returns:
        A model (batch, 28, 28, 1) → (batch, 10).
    """
    layers = keras.layers
    images = _images(keras, batch_size)
    rows = layers.Reshape((_SIDE, _SIDE), name="rows")(images)
    x = layers.EinsumDense(
        "btf,fd->btd",
        output_shape=(_SIDE, width),
        bias_axes="td",
        bias_initializer=keras.initializers.RandomNormal(stddev=0.02),
        name="projection_and_position",
    )(rows)
    for block in range(blocks):
        attention = layers.MultiHeadAttention(heads, key_dim, name=f"attention_{block}")
        x = layers.Add(name=f"attention_sum_{block}")([x, attention(x, x)])
        x = layers.LayerNormalization(name=f"attention_norm_{block}")(x)
        y = layers.Dense(2 * width, activation="gelu", name=f"expand_{block}")(x)
        y = layers.Dense(width, name=f"contract_{block}")(y)
        x = layers.Add(name=f"dense_sum_{block}")([x, y])
        x = layers.LayerNormalization(name=f"dense_norm_{block}")(x)
    x = layers.GlobalAveragePooling1D(name="pooling")(x)
    return _classifier(keras, "transformer", images, x)


@sample_model()
def lstm(keras: Any, *, batch_size: int | None = None, units: int = 64) -> Any:
    """Recurrent network: the rows of the image are the time steps of an LSTM.

    Args:
        keras: Module to build with.
        batch_size: Fixed batch size, or None for any.
        units: Units of the LSTM.

    Returns:
        A model (batch, 28, 28, 1) → (batch, 10).
    """
    layers = keras.layers
    images = _images(keras, batch_size)
    rows = layers.Reshape((_SIDE, _SIDE), name="rows")(images)
    x = layers.LSTM(units, name="recurrent")(rows)
    return _classifier(keras, "lstm", images, x)


@sample_model(trainable=False)
def resnet50(
    keras: Any, *, batch_size: int | None = None, side: int = 224, classes: int = 1000
) -> Any:
    """ResNet50 of ``keras.applications`` with random weights: a model of real size.

    The batch normalizations hold the statistics of eight smooth random images. With the initial
    mean 0 and variance 1 the output would hardly depend on the input, and a wrongly folded
    normalization would go unnoticed.

    Args:
        keras: Module to build with.
        batch_size: Fixed batch size, or None for any.
        side: Height and width of the images in pixels, at least 32.
        classes: Number of classes.

    Returns:
        A model (batch, side, side, 3) → (batch, classes).
    """
    images = keras.Input((side, side, 3), batch_size=batch_size, name=INPUT_NAME)
    # Without its top, which would call the head "predictions".
    backbone = keras.applications.ResNet50(
        weights=None, include_top=False, pooling="avg", input_tensor=images
    )
    model = _classifier(keras, "resnet50", images, backbone.output, classes)
    _adopt_statistics(keras, model, _smooth_noise(batch_size or 8, side))
    return model


def _images(keras: Any, batch_size: int | None) -> Any:
    """Returns the symbolic input, float32 (batch, 28, 28, 1) with values in [0, 1]."""
    return keras.Input((_SIDE, _SIDE, 1), batch_size=batch_size, name=INPUT_NAME)


def _classifier(
    keras: Any, name: str, images: Any, features: Any, classes: int = NUM_CLASSES
) -> Any:
    """Adds the softmax head in the compute dtype and returns the model."""
    head = keras.layers.Dense(classes, activation="softmax", name=OUTPUT_NAME)
    return keras.Model(images, head(features), name=name)


def _smooth_noise(count: int, side: int) -> FloatArray:
    """Returns float32 (count, side, side, 3) in [0, 1] with large spots, always the same ones."""
    noise = np.random.default_rng(0).random((count * 3, 8, 8))
    channels_first = resize_bilinear(noise, side).reshape(count, 3, side, side)
    return np.moveaxis(channels_first, 1, -1).astype(np.float32)


def _adopt_statistics(keras: Any, model: Any, images: FloatArray) -> None:
    """Sets moving mean and variance of each batch normalization to those of the given images."""
    normalizations = [x for x in model.layers if isinstance(x, keras.layers.BatchNormalization)]
    momenta = [layer.momentum for layer in normalizations]
    for layer in normalizations:
        layer.momentum = 0.0
    model(images, training=True)
    for layer, momentum in zip(normalizations, momenta, strict=True):
        layer.momentum = momentum
