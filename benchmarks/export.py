"""What an export costs beside the bare converters: wall time and peak memory, whole processes.

Run ``python benchmarks/export.py [cnn] [resnet50] [--runs N]``. Per model and run, one after the
other: ``mpexport tflite`` and ``mpexport onnx`` on the SavedModel of a mixed model, unverified, and
``TFLiteConverter`` and ``tf2onnx.convert`` on the SavedModel of its float32 twin. Fails when a
ratio of medians is over its target; of a model as small as ``cnn`` the ratios are shown only.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

CHECKOUT = Path(__file__).resolve().parents[1]
HERE = CHECKOUT / "benchmarks"
sys.path.insert(0, str(CHECKOUT))

from benchmarks._measure import INTERVAL_S, Measured, run  # noqa: E402

# As in mpexport's own workers, so that all four compute alike.
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(CHECKOUT),
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "KERAS_BACKEND": "tensorflow",
}
# Model → whether its ratios are held to the targets. Most of what a small one costs, on either
# side, is importing TensorFlow.
MODELS = {"cnn": False, "resnet50": True}
OPSET = "18"


@dataclass(frozen=True)
class Contest:
    """Ours against theirs.

    Attributes:
        format: What both write.
        ours: Arguments of Python; ``{mixed}``, ``{float32}`` and ``{out}`` are filled in.
        theirs: Likewise.
        most_time: Target for the ratio of wall times.
        most_memory: Target for the ratio of peaks.
    """

    format: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    most_time: float
    most_memory: float


MPEXPORT = ("-m", "mpexport.cli")
CONTESTS = (
    Contest(
        "tflite",
        (*MPEXPORT, "tflite", "{mixed}", "-o", "{out}.tflite", "--no-verify"),
        (str(HERE / "_bare_tflite.py"), "{float32}", "{out}.tflite"),
        1.15,
        1.15,
    ),
    Contest(
        "onnx",
        (*MPEXPORT, "onnx", "{mixed}", "-o", "{out}.onnx", "--opset", OPSET, "--no-verify"),
        (
            *("-m", "tf2onnx.convert", "--saved-model", "{float32}"),
            *("--opset", OPSET, "--output", "{out}.onnx"),
        ),
        0.8,
        0.4,
    ),
)


def build(model: str, folder: Path) -> dict[str, str]:
    """Makes both SavedModels of a model; returns their paths by name."""
    folder.mkdir()
    command = [sys.executable, str(HERE / "_sources.py"), model, str(folder)]
    subprocess.run(command, check=True, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    return {name: str(folder / name) for name in ("mixed", "float32")}


def attempt(arguments: tuple[str, ...], places: dict[str, str]) -> Measured:
    """Runs one command into a fresh folder."""
    with tempfile.TemporaryDirectory() as scratch:
        filled = [a.format(**places, out=str(Path(scratch) / "model")) for a in arguments]
        measured = run([sys.executable, *filled], cwd=CHECKOUT, env=ENVIRONMENT)
        if measured.returncode != 0 or not any(Path(scratch).iterdir()):
            raise SystemExit(f"{' '.join(filled)} failed:\n{measured.stderr[-2000:]}")
    return measured


def contest(model: str, runs: int, table: Table, console: Console) -> bool:
    """Runs all contests of one model; returns whether every target is met."""
    results: dict[tuple[str, str], list[Measured]] = {}
    with tempfile.TemporaryDirectory() as folder:
        with console.status(f"{model}: building"):
            places = build(model, Path(folder) / model)
        for i in range(runs):
            for c in CONTESTS:
                # Turn about, so that neither side always comes second.
                sides = [("mpexport", c.ours), ("bare", c.theirs)]
                for side, arguments in sides if i % 2 == 0 else reversed(sides):
                    with console.status(f"{model}: {c.format} by {side}, run {i + 1} of {runs}"):
                        results.setdefault((c.format, side), []).append(attempt(arguments, places))
    met = True
    for c in CONTESTS:
        sides = [results[c.format, side] for side in ("mpexport", "bare")]
        times = [statistics.median(m.wall_s for m in side) for side in sides]
        peaks = [statistics.median(m.peak_bytes for m in side) / 2**30 for side in sides]
        time_ratio, memory_ratio = times[0] / times[1], peaks[0] / peaks[1]
        if MODELS[model]:
            met = met and time_ratio <= c.most_time and memory_ratio <= c.most_memory
        table.add_row(
            model,
            c.format,
            *[f"{t:.1f}" for t in times],
            judged(time_ratio, c.most_time),
            *[f"{p:.2f}" for p in peaks],
            judged(memory_ratio, c.most_memory),
        )
    return met


def judged(ratio: float, most: float) -> str:
    """A ratio with its target."""
    style, sign = ("green", "≤") if ratio <= most else ("red", ">")
    return f"[{style}]{ratio:.2f} {sign} {most:g}[/]"


def main() -> int:
    """Runs the contests and prints one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}; default: all")
    parser.add_argument("--runs", type=int, default=3, help="runs per command (3)")
    options = parser.parse_args()
    models = options.models or list(MODELS)
    if not set(models) <= set(MODELS) or options.runs < 1:
        parser.error(f"models are {', '.join(MODELS)}, and runs at least 1")
    # Not narrower than the table, so that a log keeps its columns.
    console = Console() if sys.stdout.isatty() else Console(width=110)
    table = Table(
        title=f"Export beside the bare converter: medians of {options.runs} interleaved runs",
        caption="whole process trees; memory: summed resident set, sampled every "
        f"{INTERVAL_S * 1000:g} ms; ratio: mpexport / bare, with its target",
    )
    for name in ("model", "format"):
        table.add_column(name)
    for name in ("time, s\nmpexport", "\nbare", "\nratio"):
        table.add_column(name, justify="right")
    for name in ("peak, GiB\nmpexport", "\nbare", "\nratio"):
        table.add_column(name, justify="right")
    met = [contest(model, options.runs, table, console) for model in models]
    console.print(table)
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
