"""Result of a training, and its presentation as text and JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

_MIB = 2**20
_ENOUGH_EPOCHS = 4
"""Fewer epochs after the first have no quartiles worth the name."""


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """What a training gave and what it took.

    Attributes:
        name: Name of the sample model.
        policy: Dtype policy of its layers.
        optimizer: Name of the optimizer.
        epochs: Number of passes over the training images.
        seed: Seed of the weights, of the split and of the order of the images.
        batch_size: Images per step.
        device: ``CPU`` or ``GPU``.
        test_accuracy: Fraction in [0, 1] of the test images that were told right.
        epoch_seconds: Wall time of each epoch; the first includes tracing.
        baseline_memory_bytes: Resident memory before the first epoch.
        peak_memory_bytes: Largest resident memory up to the end of the last epoch.
        versions: Version of Python and of each package that took part.
        output_dir: Folder with the files, or None if none were written.
    """

    name: str
    policy: str
    optimizer: str
    epochs: int
    seed: int
    batch_size: int
    device: str
    test_accuracy: float
    epoch_seconds: tuple[float, ...]
    baseline_memory_bytes: int
    peak_memory_bytes: int
    versions: dict[str, str]
    output_dir: Path | None

    @property
    def steady_epoch_seconds(self) -> tuple[float, ...]:
        """Wall time of the epochs after the first, or that of the only one."""
        return self.epoch_seconds[1:] or self.epoch_seconds

    @property
    def training_memory_bytes(self) -> int:
        """Memory that the training added to that of the loaded libraries and data."""
        return self.peak_memory_bytes - self.baseline_memory_bytes

    def to_json(self) -> str:
        """Returns the text of ``training.json``; without the folder, which may be moved."""
        fields = {key: value for key, value in asdict(self).items() if key != "output_dir"}
        return json.dumps(fields, indent=2) + "\n"


def describe(result: TrainingResult) -> str:
    """Returns the figures of one training as lines of text."""
    seconds = " ".join(f"{value:.2f}" for value in result.epoch_seconds)
    peak, added = result.peak_memory_bytes / _MIB, result.training_memory_bytes / _MIB
    return "\n".join(
        [
            f"{result.name}, {result.policy}, {result.optimizer}, on {result.device}",
            f"test accuracy    {result.test_accuracy:.4f}",
            f"epochs           {seconds} s",
            f"peak memory      {peak:.0f} MiB, of which training {added:.0f} MiB",
        ]
    )


def comparison_table(single: TrainingResult, mixed: TrainingResult) -> str:
    """Returns the figures of two trainings as a table with one column each.

    Args:
        single: Result under float32.
        mixed: Result under a mixed policy.
    """
    rows = [("", single.policy, mixed.policy)]
    figures: tuple[tuple[str, Callable[[TrainingResult], str]], ...] = (
        ("test accuracy", lambda r: f"{r.test_accuracy:.4f}"),
        ("first epoch, s", lambda r: f"{r.epoch_seconds[0]:.2f}"),
        (
            "further epochs, s (median)",
            lambda r: f"{statistics.median(r.steady_epoch_seconds):.2f}",
        ),
        ("peak memory, MiB", lambda r: f"{r.peak_memory_bytes / _MIB:.0f}"),
        ("of which training, MiB", lambda r: f"{r.training_memory_bytes / _MIB:.0f}"),
    )
    rows += [(label, figure(single), figure(mixed)) for label, figure in figures]
    return "\n".join(f"{label:<28}{left:>12}{right:>16}" for label, left, right in rows)


def comparison_text(single: TrainingResult, mixed: TrainingResult) -> str:
    """Says in words what was measured, whichever way it went.

    Args:
        single: Result under float32.
        mixed: Result under a mixed policy.
    """
    ratio = statistics.median(mixed.steady_epoch_seconds) / statistics.median(
        single.steady_epoch_seconds
    )
    memory = round((mixed.training_memory_bytes - single.training_memory_bytes) / _MIB)
    points = 100 * (mixed.test_accuracy - single.test_accuracy)
    return (
        f"On this {mixed.device}, an epoch of {mixed.name} took {ratio:.2f} times as long with "
        f"{mixed.policy} as with float32 ({_speed_verdict(single, mixed)}); the memory of the "
        f"training differed by {memory:+d} MiB and the test accuracy by {points:+.2f} points."
    )


def _speed_verdict(single: TrainingResult, mixed: TrainingResult) -> str:
    """Tells a difference in speed from noise by the middle halves of the epoch times."""
    if min(len(single.steady_epoch_seconds), len(mixed.steady_epoch_seconds)) < _ENOUGH_EPOCHS:
        return "too few epochs to tell from noise"
    single_low, _, single_high = statistics.quantiles(single.steady_epoch_seconds, n=4)
    mixed_low, _, mixed_high = statistics.quantiles(mixed.steady_epoch_seconds, n=4)
    if mixed_low > single_high:
        return "slower"
    return "faster" if mixed_high < single_low else "not told from noise"
