"""Backbones and tasks of keras-hub, small and with random weights; nothing is downloaded.

keras-hub is optional (dependency group ``hub``): without it there are no cases. Its layers are
custom ones for Keras, so the models go through SavedModels.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.conformance.case import Build, Case, Feed, integers, normal, uniform

_LENGTH, _VOCABULARY, _SIDE = 7, 300, 64
_TEXT = {"vocabulary_size": _VOCABULARY, "num_layers": 2, "hidden_dim": 16, "intermediate_dim": 32}
_HEADS = {"num_heads": 4}
_GROUPED = {"num_query_heads": 4, "num_key_value_heads": 2}

_RESNET = {
    "input_conv_filters": [8],
    "input_conv_kernel_sizes": [7],
    "stackwise_num_filters": [64, 12, 16, 24],
    "stackwise_num_blocks": [1, 1, 1, 1],
    "stackwise_num_strides": [1, 2, 2, 2],
    "block_type": "bottleneck_block",
    "image_shape": (_SIDE, _SIDE, 3),
}
_VIT = {
    "image_shape": (32, 32, 3), "patch_size": 8, "num_layers": 2, "num_heads": 4,
    "hidden_dim": 16, "mlp_dim": 32,
}  # fmt: skip
_MIT = {
    "num_layers": 4, "layerwise_depths": [1, 1, 1, 1], "hidden_dims": [4, 8, 12, 16],
    "layerwise_num_heads": [1, 2, 3, 4], "layerwise_sr_ratios": [8, 4, 2, 1],
    "layerwise_patch_sizes": [7, 3, 3, 3], "layerwise_strides": [4, 2, 2, 2],
    "max_drop_path_rate": 0.1, "image_shape": (_SIDE, _SIDE, 3),
}  # fmt: skip


def _padding(rng: Any, batch: int) -> Any:
    lengths = rng.integers(2, _LENGTH + 1, batch)
    return (np.arange(_LENGTH) < lengths[:, None]).astype("int32")


_TOKENS = integers(0, _VOCABULARY, _LENGTH)
_DECODER = {"token_ids": _TOKENS, "padding_mask": _padding}
_ENCODER = {**_DECODER, "segment_ids": integers(0, 2, _LENGTH)}
_SEQ2SEQ = {
    f"{side}_{name}": feed
    for side in ("encoder", "decoder")
    for name, feed in _DECODER.items()
}  # fmt: skip


_SQUEEZE = "a Squeeze of all axes of size 1 behind a convolution of unknown shape"


def _deeplab(models: Any) -> Any:
    backbone = models.DeepLabV3Backbone(
        image_encoder=models.ResNetBackbone(**_RESNET),
        projection_filters=8,
        low_level_feature_key="P2",
        spatial_pyramid_pooling_key="P5",
        upsampling_size=8,
        dilation_rates=[1, 2, 3],
        image_shape=(_SIDE, _SIDE, 3),
    )
    return models.DeepLabV3ImageSegmenter(backbone, num_classes=3)


def _segformer(models: Any) -> Any:
    keras = importlib.import_module("keras")
    encoder = models.MiTBackbone(**_MIT)
    backbone = models.SegFormerBackbone(image_encoder=encoder, projection_filters=8)
    # It leaves its input to be named by a count, which is another one in 16 bits.
    images = keras.Input((_SIDE, _SIDE, 3), name="images")
    return keras.Model(images, models.SegFormerImageSegmenter(backbone, num_classes=3)(images))


def _sam(models: Any) -> Any:
    layers = importlib.import_module("keras_hub").layers
    config = importlib.import_module("keras").config
    policy = config.dtype_policy()
    # Half coordinates times a matrix that it casts to float32: TensorFlow refuses to trace that.
    config.set_dtype_policy("float32")
    prompt_encoder = layers.SAMPromptEncoder(
        hidden_size=8, image_embedding_size=(4, 4), input_image_size=(_SIDE, _SIDE),
        mask_in_channels=16,
    )  # fmt: skip
    config.set_dtype_policy(policy)
    return models.SAMBackbone(
        image_encoder=models.ViTDetBackbone(
            hidden_size=16, num_layers=2, intermediate_dim=32, num_heads=4,
            global_attention_layer_indices=[1], patch_size=16, num_output_channels=8,
            window_size=2, image_shape=(_SIDE, _SIDE, 3),
        ),
        prompt_encoder=prompt_encoder,
        mask_decoder=layers.SAMMaskDecoder(
            num_layers=2, hidden_size=8, intermediate_dim=32, num_heads=4, embedding_dim=8,
            num_multimask_outputs=3, iou_head_depth=3, iou_head_hidden_dim=8,
        ),
    )  # fmt: skip


_PROMPT = {
    "images": normal(_SIDE, _SIDE, 3),
    "points": uniform(0, _SIDE, 2, 2),
    "labels": lambda rng, batch: rng.integers(0, 2, (batch, 2)).astype("float32"),
    "boxes": uniform(0, _SIDE, 1, 2, 2),
    "masks": normal(1, 16, 16, 1),
}


def _case(
    name: str,
    make: Callable[[Any], Any],
    feeds: Mapping[str, Feed] | None = None,
    refused: Mapping[str, str] | None = None,
) -> Case:
    def build(b: Build) -> Any:
        return make(importlib.import_module("keras_hub").models)

    return Case(f"hub/{name}", build, feeds=feeds or {}, source="savedmodel", refused=refused or {})


_CASES = [
    _case("BERT", lambda m: m.BertBackbone(**_TEXT, **_HEADS), _ENCODER),
    _case(
        "BERT-classifier",
        lambda m: m.BertTextClassifier(m.BertBackbone(**_TEXT, **_HEADS), num_classes=3),
        _ENCODER,
    ),
    _case("ALBERT", lambda m: m.AlbertBackbone(**_TEXT, **_HEADS, embedding_dim=8), _ENCODER),
    _case("DistilBERT", lambda m: m.DistilBertBackbone(**_TEXT, **_HEADS), _DECODER),
    _case("RoBERTa", lambda m: m.RobertaBackbone(**_TEXT, **_HEADS), _DECODER),
    _case("GPT-2", lambda m: m.GPT2Backbone(**_TEXT, **_HEADS), _DECODER),
    _case("GPT-2-language", lambda m: m.GPT2CausalLM(m.GPT2Backbone(**_TEXT, **_HEADS)), _DECODER),
    _case("Llama", lambda m: m.LlamaBackbone(**_TEXT, **_GROUPED), _DECODER),
    _case("Gemma", lambda m: m.GemmaBackbone(**_TEXT, **_GROUPED, head_dim=4), _DECODER),
    _case("T5", lambda m: m.T5Backbone(**_TEXT, **_HEADS), _SEQ2SEQ),
    _case(
        "Whisper",
        lambda m: m.WhisperBackbone(
            **_TEXT, **_HEADS, num_mels=8,
            max_encoder_sequence_length=16, max_decoder_sequence_length=_LENGTH,
        ),
        {
            "encoder_features": normal(16, 8),
            **{name: feed for name, feed in _SEQ2SEQ.items() if name.startswith("decoder")},
        },
    ),
    _case("ViT", lambda m: m.ViTBackbone(**_VIT)),
    _case("ResNet", lambda m: m.ResNetBackbone(**_RESNET)),
    _case("DeepLabV3", _deeplab),
    _case("SegFormer", _segformer),
    _case("SAM", _sam, _PROMPT, dict.fromkeys(("onnx", "onnx-float16"), _SQUEEZE)),
]  # fmt: skip

CASES = _CASES if importlib.util.find_spec("keras_hub") else []
