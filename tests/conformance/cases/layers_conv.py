"""Convolutions and pooling of ``keras.layers``: ranks, strides, dilation, groups, odd sizes.

TensorFlow has no kernel on a CPU, in any type, for an ordinary or transposed convolution with its
channels first nor for a dilated transposed one, so that nothing could be compared: no rows. 3D
pooling lacks only its float16 kernels there; the twins run.
"""

from __future__ import annotations

from tests.conformance.cases._between import fast, row, special

_FIRST = {"data_format": "channels_first"}

_CONVOLUTION = [
    row("Conv1D", (9, 4), 5, 3),
    row("Conv1D-causal", (9, 4), 5, 3, padding="causal", dilation_rate=2),
    row("Conv1D-strided", (9, 4), 5, 3, strides=2, padding="same"),
    row("Conv1D-grouped", (9, 4), 6, 3, groups=2),
    row("Conv1D-open", (None, 4), 5, 3, padding="same", feed=(9, 4)),
    fast(row("Conv2D", (7, 8, 3), 4, 3, activation="relu")),
    row("Conv2D-strided", (9, 7, 3), 4, (3, 2), strides=(2, 3), padding="same"),
    row("Conv2D-strided-valid", (9, 7, 3), 4, (3, 2), strides=(2, 3), use_bias=False),
    fast(row("Conv2D-dilated", (9, 7, 3), 4, 3, dilation_rate=2)),
    row("Conv2D-dilated-same", (9, 7, 3), 4, 3, dilation_rate=(3, 2), padding="same"),
    fast(row("Conv2D-grouped", (7, 7, 4), 6, 3, groups=2)),
    row("Conv2D-grouped-strided", (9, 7, 6), 6, 3, groups=3, strides=2, padding="same"),
    row("Conv2D-grouped-dilated", (9, 9, 4), 4, 3, groups=2, dilation_rate=2),
    row("Conv2D-grouped-each", (7, 7, 4), 8, 3, groups=4),
    row("Conv2D-pointwise", (5, 5, 4), 6, 1),
    row("Conv2D-open", (None, None, 3), 4, 3, strides=2, padding="same", feed=(9, 7, 3)),
    # As with Dense: Keras stores the merged kernel rounded to half.
    special(row("Conv2D-lora", (7, 7, 3), 4, 3, lora_rank=2), source="savedmodel"),
    row("Conv3D", (5, 6, 7, 2), 3, 3),
    row("Conv3D-strided", (5, 6, 7, 2), 3, (3, 2, 1), strides=2, padding="same"),
    row("Conv3D-dilated", (7, 7, 7, 2), 3, 3, dilation_rate=2),
    row("Conv3D-grouped", (5, 5, 5, 4), 4, 3, groups=2),
    row("Conv1DTranspose", (5, 4), 3, 3, strides=2),
    row("Conv1DTranspose-same", (5, 4), 3, 4, strides=3, padding="same"),
    fast(row("Conv2DTranspose", (5, 4, 3), 4, 3, strides=2, padding="same")),
    row("Conv2DTranspose-valid", (5, 4, 3), 4, (2, 3), strides=(1, 2)),
    row("Conv2DTranspose-padded", (5, 4, 3), 4, 3, strides=2, output_padding=1),
    row("Conv2DTranspose-open", (None, None, 3), 4, 3, strides=2, feed=(5, 4, 3)),
    row("Conv3DTranspose", (3, 4, 3, 2), 3, 3, strides=2, padding="same"),
    row("Conv3DTranspose-valid", (3, 4, 3, 2), 3, 2),
    row("DepthwiseConv1D", (9, 4), 3),
    row("DepthwiseConv1D-strided", (9, 4), 3, strides=2, padding="same", depth_multiplier=2),
    row("DepthwiseConv1D-dilated", (9, 4), 3, dilation_rate=2),
    fast(row("DepthwiseConv2D", (7, 8, 3), 3, padding="same")),
    row("DepthwiseConv2D-strided", (9, 9, 3), 3, strides=2, depth_multiplier=2),
    row("DepthwiseConv2D-dilated", (9, 7, 3), 3, dilation_rate=2, padding="same"),
    row("DepthwiseConv2D-first", (3, 7, 8), 3, **_FIRST),
    row("SeparableConv1D", (9, 4), 5, 3, padding="same", depth_multiplier=2),
    row("SeparableConv1D-dilated", (9, 4), 5, 3, dilation_rate=2),
    row("SeparableConv2D", (7, 8, 3), 5, 3, depth_multiplier=2),
    row("SeparableConv2D-strided", (9, 9, 3), 5, 3, strides=2, padding="same"),
    row("SeparableConv2D-dilated", (9, 7, 3), 5, 3, dilation_rate=2, padding="same"),
    row("SeparableConv2D-first", (3, 7, 8), 5, 3, **_FIRST),
]

_SIZES = {1: (9, 4), 2: (9, 7, 3), 3: (7, 6, 5, 2)}

_POOLING = [
    case
    for kind in ("Average", "Max")
    for rank, shape in _SIZES.items()
    for case in (
        row(f"{kind}Pooling{rank}D", shape, 2),
        row(f"{kind}Pooling{rank}D-same", shape, 3, strides=2, padding="same"),
        row(f"{kind}Pooling{rank}D-overlapping", shape, 3, strides=1),
        row(f"{kind}Pooling{rank}D-first", shape, 2, **_FIRST),
        row(f"Global{kind}Pooling{rank}D", shape),
        row(f"Global{kind}Pooling{rank}D-kept", shape, keepdims=True),
        row(f"Global{kind}Pooling{rank}D-first", shape, **_FIRST),
        # Sizes that divide and sizes that don't take different ways.
        row(f"Adaptive{kind}Pooling{rank}D", shape, 3),
        row(f"Adaptive{kind}Pooling{rank}D-uneven", shape, 4),
    )
]

CASES = [
    *_CONVOLUTION,
    *(fast(c) if c.name in ("layers/MaxPooling2D", "layers/AveragePooling2D-same") else c
      for c in _POOLING),
    row("AveragePooling2D-open", (None, None, 3), 2, padding="same", feed=(9, 7, 3)),
    row("GlobalAveragePooling1D-masked", (6, 4), before="ids"),
]  # fmt: skip
