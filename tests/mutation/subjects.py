"""The models whose files are mutated: trained sample models, and some of the conformance suite."""

from __future__ import annotations

from dataclasses import dataclass

FLOAT32 = ("tflite", "onnx")
ALL = (*FLOAT32, "tflite-float16", "onnx-float16")


@dataclass(frozen=True)
class Subject:
    """One model under one policy.

    Attributes:
        model: Name of a sample model, or of a conformance case.
        policy: What it is trained, or built, with.
        targets: What it is exported to.
        module: Of the conformance case; empty for a sample model, which is trained on digits.
        fast: Whether the part that ``make test`` runs takes it.
    """

    model: str
    policy: str = "mixed_float16"
    targets: tuple[str, ...] = ALL
    module: str = ""
    fast: bool = False

    @property
    def name(self) -> str:
        """Unique, and good for a folder."""
        short = self.policy.removeprefix("mixed_")
        return f"{self.model.replace('/', '-')}.{short}"

    @property
    def is_trained(self) -> bool:
        """Whether its weights come out of a training."""
        return not self.module


def _cases(
    module: str, *names: str, policy: str = "mixed_float16", fast: bool = False
) -> list[Subject]:
    place = f"tests.conformance.cases.{module}"
    return [Subject(name, policy, FLOAT32, place, fast) for name in names]


SUBJECTS = (
    Subject("mlp"),
    Subject("cnn"),
    Subject("transformer"),
    Subject("lstm"),
    Subject("mlp", "mixed_bfloat16", FLOAT32),
    Subject("cnn", "mixed_bfloat16", FLOAT32),
    Subject("transformer", "mixed_bfloat16", FLOAT32),
    *_cases("common", "common/MultiHeadAttention", "common/BatchNormalization"),
    *_cases("layers_conv", "layers/Conv2D-grouped", "layers/SeparableConv2D"),
    *_cases("layers_conv", "layers/Conv2D-strided", "layers/AveragePooling2D-same"),
    *_cases("layers_rnn", "layers/GRU-state", "layers/Bidirectional-apart"),
    *_cases("layers_rnn", "layers/LSTM-state", fast=True),
    *_cases("layers", "layers/Subtract", "layers/LayerNormalization"),
    *_cases("layers_rnn", "layers/LSTM-state", policy="mixed_bfloat16"),
)
