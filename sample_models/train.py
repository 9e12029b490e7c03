"""Trains a sample model on real digits and writes it in every form that mpexport reads.

Run from the checkout::

    python -m sample_models.train cnn --policy mixed_float16 --optimizer adam -o out

Keras 3 trains in a child process; a second one rebuilds the model with ``tf_keras``, since a
process can hold one generation only.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from sample_models import builders, children
from sample_models.errors import OutputError, SampleModelError, UsageError
from sample_models.optimizers import OPTIMIZERS
from sample_models.results import TrainingResult, comparison_table, comparison_text, describe


def train(
    name: str,
    policy: str = "mixed_float16",
    optimizer: str = "adam",
    epochs: int = 8,
    output_dir: Path | str | None = None,
    seed: int = 0,
    batch_size: int = 64,
) -> TrainingResult:
    """Trains a sample model and writes its files.

    Written are ``NAME.keras``, ``NAME_savedmodel/`` (both Keras 3), ``NAME_tf_keras.h5``,
    ``NAME_tf_keras_savedmodel/``, ``test_data.npz`` and ``training.json``. They replace older
    ones together at the end, so a training that fails leaves the folder as it was.

    Args:
        name: A trainable model, see ``builders.names(trainable_only=True)``.
        policy: One of ``builders.POLICIES``.
        optimizer: One of ``OPTIMIZERS``.
        epochs: Number of passes over the training images, at least 1.
        output_dir: Folder for the files, made if missing; None to measure only.
        seed: Seed, in [0, 2**32).
        batch_size: Images per step, at least 1.

    Returns:
        The measured figures.

    Raises:
        UsageError: An argument has no valid value.
        OutputError: The folder cannot be written to.
        WorkerError: A child process failed.
    """
    _check_arguments(name, policy, optimizer, epochs, seed, batch_size)
    job = {
        "name": name,
        "policy": policy,
        "optimizer": optimizer,
        "epochs": epochs,
        "seed": seed,
        "batch_size": batch_size,
    }
    if output_dir is None:
        return _result(job, children.run("fit_worker", {**job, "folder": None}), None)
    folder = Path(output_dir).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".training-") as staging:
            report = children.run("fit_worker", {**job, "folder": staging})
            children.run("tf_keras_worker", {**job, "folder": staging}, legacy_keras=True)
            result = _result(job, report, folder)
            Path(staging, "training.json").write_text(result.to_json(), encoding="utf-8")
            _publish(name, Path(staging), folder)
    except OSError as error:
        raise OutputError(f"cannot write to {folder}: {error.strerror or error}") from error
    return result


def compare(
    name: str,
    policy: str = "mixed_float16",
    optimizer: str = "adam",
    epochs: int = 8,
    output_dir: Path | str | None = None,
    seed: int = 0,
    batch_size: int = 64,
) -> tuple[TrainingResult, TrainingResult]:
    """Trains the same model under float32 and under a mixed policy.

    Each has a process of its own, one after the other. Files are written of the mixed model only.

    Args:
        name: See ``train``, as for all arguments.
        policy: A mixed policy.
        optimizer: See ``train``.
        epochs: See ``train``.
        output_dir: See ``train``.
        seed: See ``train``.
        batch_size: See ``train``.

    Returns:
        The results under float32 and under the mixed policy.

    Raises:
        UsageError: An argument has no valid value, or the policy is float32 itself.
        OutputError: The folder cannot be written to.
        WorkerError: A child process failed.
    """
    if policy == "float32":
        raise UsageError("float32 is what the policy is compared with; choose a mixed policy")
    # The mixed model first: if the folder cannot be written to, that shows before the other one.
    mixed = train(name, policy, optimizer, epochs, output_dir, seed, batch_size)
    return train(name, "float32", optimizer, epochs, None, seed, batch_size), mixed


def _check_arguments(
    name: str, policy: str, optimizer: str, epochs: int, seed: int, batch_size: int
) -> None:
    """Raises UsageError before any child process is started."""
    trainable = builders.names(trainable_only=True)
    if name not in trainable:
        problem = "cannot be trained on digits" if name in builders.names() else "is unknown"
        raise UsageError(f"model {name!r} {problem}; choose from {', '.join(trainable)}")
    if policy not in builders.POLICIES:
        raise UsageError(f"no policy {policy!r}; choose from {', '.join(builders.POLICIES)}")
    if optimizer not in OPTIMIZERS:
        raise UsageError(f"no optimizer {optimizer!r}; choose from {', '.join(OPTIMIZERS)}")
    if epochs < 1 or batch_size < 1:
        raise UsageError(f"epochs and batch size must be at least 1; got {epochs}, {batch_size}")
    if not 0 <= seed < 2**32:
        raise UsageError(f"the seed must be in [0, 2**32); got {seed}")


def _result(job: dict[str, Any], report: children.Report, folder: Path | None) -> TrainingResult:
    """Joins the arguments of a training and the report of its child process."""
    seconds = tuple(report.pop("epoch_seconds"))
    return TrainingResult(**job, **report, epoch_seconds=seconds, output_dir=folder)


def _publish(name: str, staging: Path, folder: Path) -> None:
    """Moves the finished files to their place."""
    files = [f"{name}.keras", f"{name}_savedmodel", f"{name}_tf_keras_savedmodel"]
    for file in [*files, f"{name}_tf_keras.h5", "test_data.npz", "training.json"]:
        target = folder / file
        if target.is_dir():
            shutil.rmtree(target)
        (staging / file).replace(target)


class _Parser(argparse.ArgumentParser):
    """Parser whose errors take one line, as all errors of this program do."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _parser() -> _Parser:
    """Returns the parser of the command line."""
    parser = _Parser(
        prog="python -m sample_models.train",
        description="Train a small model on handwritten digits and write it as mpexport reads it.",
    )
    parser.add_argument("name", metavar="NAME", help=", ".join(builders.names(trainable_only=True)))
    parser.add_argument("--policy", choices=builders.POLICIES, default="mixed_float16")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adam")
    parser.add_argument("--epochs", type=int, default=8, help="passes over the data (default 8)")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument("--batch-size", type=int, default=64, help="images per step (default 64)")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="folder for the files")
    parser.add_argument(
        "--compare", action="store_true", help="train under float32 too and print a table"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: Words after the program's name; those of the process if None.

    Returns:
        Exit code: 0, or that of the error, whose message goes to stderr.
    """
    try:
        options = vars(_parser().parse_args(arguments))
        options["output_dir"] = options.pop("output")
        if options.pop("compare"):
            single, mixed = compare(**options)
            print(comparison_table(single, mixed), comparison_text(single, mixed), sep="\n\n")
        else:
            mixed = train(**options)
            print(describe(mixed))
        print(f"files in {mixed.output_dir}")
    except SampleModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
