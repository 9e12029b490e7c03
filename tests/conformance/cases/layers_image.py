"""Images in ``keras.layers``: resizing, cropping, and augmentation as it is at inference.

Most augmentations do nothing at inference, and that is what must come out; those that change the
image then too (contrast, equalization, crops) are here the same way. What they get lies in 0 … 1.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.case import Build, Case, integers, normal, uniform
from tests.conformance.cases._between import after, fast, row, special

_IMAGE = (8, 9, 3)
_UNIT = {"value_range": (0, 1)}


def _image(name: str, *args: Any, shape: tuple[int, ...] = _IMAGE, **kwargs: Any) -> Case:
    return row(name, shape, *args, before="sigmoid", **kwargs)


def _boxes(b: Build) -> Any:
    k = b.keras.layers
    image = b.keras.Input(_IMAGE, name="image")
    boxes = b.keras.Input((3, 4), name="boxes")
    labels = b.keras.Input((3,), name="labels")
    given = {
        "images": k.Conv2D(3, 3)(image),
        "bounding_boxes": {"boxes": k.Dense(4)(boxes), "labels": labels},
    }
    found = k.MaxNumBoundingBoxes(5, fill_value=-1, bounding_box_format="xyxy")(given)
    outputs = {
        "images": after(b, found["images"]),
        "boxes": after(b, found["bounding_boxes"]["boxes"]),
        "labels": found["bounding_boxes"]["labels"],
    }
    return b.keras.Model([image, boxes, labels], outputs)


def _pixels(b: Build) -> Any:
    """The start of many image models: bytes, resized and rescaled."""
    k = b.keras.layers
    x = b.keras.Input((None, None, 3), dtype="uint8", name="x")
    y = k.Rescaling(1 / 127.5, offset=-1.0)(k.Resizing(8, 8)(x))
    return b.keras.Model(x, after(b, k.Conv2D(4, 3)(y)))


def _equalized(b: Build) -> Any:
    """In a Pipeline: alone Keras can't place it, whose symbolic output is its input."""
    k = b.keras.layers
    x = b.keras.Input(_IMAGE, name="x")
    y = k.Conv2D(3, 3, activation="sigmoid")(x)
    return b.keras.Model(x, after(b, k.Pipeline([k.Equalization(**_UNIT)])(y)))


_RESIZING = [
    *(
        row(f"Resizing-{how}{suffix}", _IMAGE, *size, interpolation=how)
        for how in ("nearest", "bilinear", "bicubic", "area", "lanczos3", "lanczos5")
        for suffix, size in (("", (13, 15)), ("-down", (5, 4)))
    ),
    row("Resizing-antialias", _IMAGE, 5, 4, antialias=True),
    row("Resizing-cropped", _IMAGE, 6, 4, crop_to_aspect_ratio=True),
    row("Resizing-padded", _IMAGE, 6, 12, pad_to_aspect_ratio=True, fill_value=0.5),
    row("Resizing-first", (3, 8, 9), 5, 4, data_format="channels_first"),
    row("Resizing-open", (None, None, 3), 5, 4, feed=_IMAGE),
    special(
        row("Rescaling-pixels", _IMAGE, 1.0), build=_pixels,
        feeds={"x": integers(0, 256, 11, 9, 3, dtype="uint8")},
    ),
]  # fmt: skip

_ALWAYS = [
    row("CenterCrop", _IMAGE, 5, 6),
    row("CenterCrop-larger", _IMAGE, 12, 6),
    _image("AutoContrast", **_UNIT),
    _image("ContrastLimitedAdaptiveHistogramEqualization", tile_grid_size=(2, 2), **_UNIT),
    special(_image("Equalization"), build=_equalized),
    row("Rescaling", _IMAGE, 1 / 255, offset=0.1),
    row("Rescaling-channels", _IMAGE, [0.5, 1.5, 2.0], offset=[0.1, 0.2, -0.3]),
    _image("Solarization", 0.1, 0.5, **_UNIT),
    special(
        row("MaxNumBoundingBoxes", _IMAGE, 5), build=_boxes,
        feeds={
            "image": normal(*_IMAGE), "boxes": uniform(0, 8, 3, 4),
            "labels": uniform(0, 5, 3),
        },
        refused=dict.fromkeys(("onnx", "onnx-float16"), "has an input and an output of one name"),
    ),
]  # fmt: skip

_AUGMENTATION = [
    _image("AugMix", **_UNIT),
    _image("CutMix"),
    _image("MixUp"),
    _image("RandAugment", **_UNIT),
    _image("RandomBrightness", 0.2, **_UNIT),
    _image("RandomColorDegeneration", 0.5, **_UNIT),
    _image("RandomColorJitter", brightness_factor=0.2, contrast_factor=0.2, **_UNIT),
    _image("RandomContrast", 0.2, **_UNIT),
    _image("RandomCrop", 5, 6),
    _image("RandomCrop-resized", 5, 4, shape=(8, 10, 3)),
    _image("RandomElasticTransform", **_UNIT),
    _image("RandomErasing", **_UNIT),
    _image("RandomFlip"),
    _image("RandomGaussianBlur", **_UNIT),
    _image("RandomGrayscale", 0.5),
    _image("RandomHue", 0.2, **_UNIT),
    _image("RandomInvert", **_UNIT),
    _image("RandomPerspective"),
    _image("RandomPosterization", 4, **_UNIT),
    _image("RandomRotation", 0.2),
    _image("RandomSaturation", 0.5, **_UNIT),
    _image("RandomSharpness", 0.5, **_UNIT),
    # Keras can't load the .keras file it writes for this one.
    special(_image("RandomShear", 0.2, 0.2), source="savedmodel"),
    _image("RandomTranslation", 0.2, 0.2),
    _image("RandomZoom", 0.2),
    _image(
        "Pipeline",
        lambda k: [k.Resizing(6, 6), k.RandomFlip(), k.Rescaling(2.0, offset=-1.0)],
    ),
]

_FAST = {"layers/Resizing-bilinear"}

CASES = [fast(c) if c.name in _FAST else c for c in _RESIZING + _ALWAYS + _AUGMENTATION]
