"""Every architecture of ``keras.applications``, with random weights, small images, ten logits.

The smallest of each family under all policies and by the bare tools too; its larger members, which
have more of the same blocks, under ``mixed_float16`` when they are asked for.

Random weights would make most of these nets forget their input, so the twin's are brought to where
training leaves them (the suite gives the other models its weights): batch statistics are those of
a few images, scales of residual branches aren't close to zero, and nets without normalization keep
the size of what they compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.conformance.case import MIXED, Build, Case, Feed, uniform

ABSENT: dict[str, str] = {}

# Smallest side that the family takes, whether it rescales pixels itself, members by size.
_FAMILIES: list[tuple[int, bool, tuple[str, ...]]] = [
    (32, True, tuple(f"ConvNeXt{size}" for size in ("Tiny", "Small", "Base", "Large", "XLarge"))),
    (32, False, ("DenseNet121", "DenseNet169", "DenseNet201")),
    (32, True, tuple(f"EfficientNetB{i}" for i in range(8))),
    (32, True, tuple(f"EfficientNetV2{size}" for size in ("B0", "B1", "B2", "B3", "S", "M", "L"))),
    (75, False, ("InceptionV3",)),
    (75, False, ("InceptionResNetV2",)),
    (32, False, ("MobileNet",)),
    (32, False, ("MobileNetV2",)),
    (32, True, ("MobileNetV3Small", "MobileNetV3Large")),
    (32, False, ("NASNetMobile", "NASNetLarge")),
    (32, False, ("ResNet50", "ResNet101", "ResNet152")),
    (32, False, ("ResNet50V2", "ResNet101V2", "ResNet152V2")),
    (32, False, ("VGG16", "VGG19")),
    (71, False, ("Xception",)),
]

# Name → side, whether the model gets pixels, further arguments.
_VARIANTS: dict[str, tuple[int, bool, dict[str, Any]]] = {
    "EfficientNetB0-open": (40, True, {"input_shape": (None, None, 3)}),
    "MobileNet-narrow": (64, False, {"alpha": 0.25}),
    "MobileNetV2-narrow": (64, False, {"alpha": 0.35}),
    "MobileNetV3Small-minimalistic": (64, True, {"minimalistic": True, "alpha": 0.75}),
    "ResNet50-average": (64, False, {"include_top": False, "pooling": "avg"}),
    "ResNet50V2-max": (64, False, {"include_top": False, "pooling": "max"}),
    "DenseNet121-softmax": (32, False, {"classifier_activation": "softmax"}),
    "VGG16-features": (48, False, {"include_top": False}),
}


def _feed(side: int, pixels: bool) -> Feed:
    return uniform(0, 255, side, side, 3) if pixels else uniform(-1, 1, side, side, 3)


def _case(
    name: str,
    side: int,
    pixels: bool,
    options: Mapping[str, Any] | None = None,
    *,
    deep: bool = False,
) -> Case:
    feed = _feed(side, pixels)

    def build(b: Build) -> Any:
        arguments: dict[str, Any] = {
            "weights": None, "classes": 10, "classifier_activation": None,
            "input_shape": (side, side, 3), **(options or {}),
        }  # fmt: skip
        if not arguments.get("include_top", True):
            del arguments["classes"], arguments["classifier_activation"]
        x = b.keras.Input(arguments.pop("input_shape"), name="x")
        make = getattr(b.keras.applications, name.partition("-")[0])
        model = make(input_tensor=x, **arguments)
        _standardize(b.keras, model)
        if b.policy == "float32":
            _as_if_trained(b, model, feed(b.rng, 8))
        return model

    return Case(
        f"applications/{name}",
        build,
        policies=MIXED[:1] if deep else MIXED,
        feeds={"x": feed},
        bare=not deep,
        deep=deep,
    )


def _standardize(keras: Any, model: Any) -> None:
    """Statistics for the layers that would have theirs from a file of weights."""
    for layer in model.layers:
        if isinstance(layer, keras.layers.Normalization) and layer.input_mean is None:
            layer.adapt_mean.assign(np.reshape([0.48, 0.45, 0.41], layer.adapt_mean.shape))
            layer.adapt_variance.assign(np.reshape([0.05, 0.06, 0.07], layer.adapt_mean.shape))
            layer.finalize_state()


def _as_if_trained(b: Build, model: Any, images: Any) -> None:
    layers = b.keras.layers
    normalized = [x for x in model.layers if isinstance(x, layers.BatchNormalization)]
    for layer in model.layers:
        if type(layer).__name__ == "LayerScale":
            layer.gamma.assign(b.rng.uniform(0.1, 0.3, layer.gamma.shape))
        elif isinstance(layer, layers.Conv2D) and model.name.startswith("vgg"):
            layer.kernel.assign(layer.kernel * np.sqrt(2))  # what each relu takes away
    if normalized:
        momenta = [layer.momentum for layer in normalized]
        for layer in normalized:
            layer.momentum = 0.0
        model(images, training=True)
        for layer, momentum in zip(normalized, momenta, strict=True):
            layer.momentum = momentum


CASES = [
    *(
        _case(name, side, pixels, deep=name != members[0])
        for side, pixels, members in _FAMILIES
        for name in members
    ),
    *(_case(name, side, pixels, options) for name, (side, pixels, options) in _VARIANTS.items()),
]
