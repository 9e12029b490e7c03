"""The whole way once: train in mixed precision, export to every format, prove and time the files.

Run from the checkout::

    python -m sample_models.demo -o demo

The only module here that uses mpexport. ``demo/model`` holds what `sample_models.train` writes and
is used again while its ``training.json`` fits; ``demo/images.npz`` the test images; and
``demo/release`` the exported files with their manifest.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

import mpexport
from mpexport.errors import MpExportError
from mpexport.parity.cases import InputOptions
from mpexport.results import ExportedFile, RunOptions
from sample_models.errors import OutputError, SampleModelError
from sample_models.train import train

MODEL = "cnn"
JOB: dict[str, Any] = {
    "name": MODEL,
    "policy": "mixed_float16",
    "optimizer": "adam",
    "epochs": 8,
    "seed": 0,
    "batch_size": 64,
}


def run(folder: Path, *, fresh: bool, screen: Console, progress: Console) -> None:
    """Trains, exports, measures and prints the table.

    Args:
        folder: Where everything goes; made if missing.
        fresh: Whether to train again although a fitting model is there.
        screen: Takes the table.
        progress: Takes one line that says what is being done, if it is a terminal.

    Raises:
        SampleModelError: The training failed.
        MpExportError: The export failed, or a file does not compute what the model computes.
    """
    with progress.status("training", spinner="line") as status:
        options = RunOptions(progress=lambda text: status.update(_short(text, progress.width)))
        model = folder / "model"
        accuracy = _trained_already(model)
        if accuracy is None or fresh:
            accuracy = train(output_dir=model, **JOB).test_accuracy
        images = _write_images(model, folder)
        result = mpexport.export(
            model / f"{MODEL}_savedmodel",
            folder / "release",
            inputs=InputOptions(data=str(images)),
            run=options,
        )
        latencies = [mpexport.measure(file.artifact.path, run=options) for file in result.files]
    samples = max(report.num_samples for file in result.files for report in file.parity)
    table = Table(
        title=f"{MODEL}, trained under {JOB['policy']}, exported, run on {samples} test images",
        caption="error: largest difference of a probability to the same model in float64\n"
        "latency: one image, one thread",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("\nformat", no_wrap=True)
    for header in (
        "file\nsize",
        "file's\nerror",
        "trained\nmodel's error",
        "top-1 as\nin float64",
        "median\nlatency",
    ):
        table.add_column(header, justify="right")
    for file, latency in zip(result.files, latencies, strict=True):
        table.add_row(*_row(file), f"{latency.summary.median_ms:.3f} ms")
    screen.print(table)
    screen.print(
        f"The trained model tells {accuracy:.1%} of them right. "
        f"Files and manifest: {folder / 'release'}",
        soft_wrap=True,
    )


def _trained_already(model: Path) -> float | None:
    """Accuracy of the model in a folder; None unless it is what a training now would give."""
    if not (model / f"{MODEL}_savedmodel").is_dir() or not (model / "test_data.npz").is_file():
        return None
    try:
        stored = json.loads((model / "training.json").read_text(encoding="utf-8"))
        versions = {
            package: importlib.metadata.version(package)
            for package in stored["versions"]
            if package != "python"
        }
        fits = stored.items() >= JOB.items() and stored["versions"].items() >= versions.items()
        return float(stored["test_accuracy"]) if fits else None
    except (OSError, ValueError, KeyError, TypeError, importlib.metadata.PackageNotFoundError):
        return None


def _write_images(model: Path, folder: Path) -> Path:
    """Writes the test images by the name of the model's input, without the labels."""
    path = folder / "images.npz"
    try:
        with np.load(model / "test_data.npz") as stored:
            np.savez_compressed(path, images=stored["images"])
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def _row(file: ExportedFile) -> list[str]:
    """Format, size, error, noise floor and agreement of a file, over all its outputs."""
    outputs = [output for report in file.parity for output in report.rows]
    return [
        file.artifact.format,
        _size(file.artifact.size_bytes),
        _largest([output.max_abs for output in outputs]),
        _largest([output.noise_floor for output in outputs]),
        f"{sum(o.top1_agree for o in outputs)}/{sum(o.top1_rows for o in outputs)}",
    ]


def _largest(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{max(known):.1e}" if known else "-"


def _size(size_bytes: int) -> str:
    if size_bytes < 2**20:
        return f"{size_bytes / 2**10:.1f} KiB"
    return f"{size_bytes / 2**20:.2f} MiB"


def _short(text: str, width: int) -> str:
    """A step of the work on one line, whatever the length of the paths in it."""
    space = max(width - 4, 1)
    return text if len(text) <= space else f"{text[: space - 1]}…"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: Words after the program's name; those of the process if None.

    Returns:
        Exit code: 0, or that of the error, whose message goes to stderr.
    """
    parser = argparse.ArgumentParser(
        prog="python -m sample_models.demo",
        description="Train a small CNN in mixed precision, export it to every format, and print "
        "how large, how exact and how fast each file is.",
    )
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="folder for the files")
    parser.add_argument(
        "--fresh", action="store_true", help="train again although a model is there"
    )
    options = parser.parse_args(arguments)
    progress = Console(stderr=True, markup=False, highlight=False)
    screen = Console(markup=False, highlight=False)
    try:
        run(Path(options.output), fresh=options.fresh, screen=screen, progress=progress)
    except MpExportError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        print(f"error: {error.message}{hint}", file=sys.stderr)
        return error.exit_code
    except SampleModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
