"""What float16 TFLite costs: derived from the finished float32 file, and by a second conversion.

Run ``python benchmarks/float16.py [--runs N]``. Converts a ResNet50 (as untrained as Keras makes
it) once to float32, then, side by side and one after the other, takes the times of our pass over
its bytes and of TensorFlow's converter with float16 quantization. Shows the medians, their ratio,
how many of the stored float16 numbers differ (none should), and how many weights float16 flushes to
zero by chance. Gated is nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))
os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0")


def timed(function: Callable[[], bytes]) -> tuple[float, bytes]:
    """Wall time in seconds, and what came out."""
    start = time.perf_counter()
    content = function()
    return time.perf_counter() - start, content


def halves(content: bytes) -> list[tuple[tuple[int, ...], bytes]]:
    """Sizes and bits of the float16 constants of a file, in an order of their own."""
    from mpexport.tf.tflite_float16 import load

    model = load(content)
    found = [
        (tuple(t.shape), bytes(model.buffers[t.buffer].data))
        for g in model.subgraphs
        for t in g.tensors
        if t.type == 1
    ]
    return sorted(found)


def main() -> int:
    """Measures and prints one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs

    import keras
    import tensorflow as tf
    from rich.console import Console
    from rich.table import Table

    from mpexport.tf.tflite_float16 import store_float16
    from mpexport.tf.weights import examine

    keras.utils.set_random_seed(0)
    model = keras.applications.ResNet50(weights=None)
    flushed = [examine(w.path, w.numpy()) for w in model.weights]
    told = [d for d in flushed if d is not None]
    with tempfile.TemporaryDirectory() as folder:
        model.export(folder, verbose=False)

        def convert(half: bool) -> bytes:
            converter: Any = tf.lite.TFLiteConverter.from_saved_model(folder)
            if half:
                converter.optimizations = [tf.lite.Optimize.DEFAULT]
                converter.target_spec.supported_types = [tf.float16]
            content: bytes = converter.convert()
            return content

        float32 = convert(False)
        ours, theirs = [], []
        for _ in range(runs):
            seconds, derived = timed(lambda: bytes(store_float16(float32)))
            ours.append(seconds)
            seconds, again = timed(lambda: convert(True))
            theirs.append(seconds)
    median, other = statistics.median(ours), statistics.median(theirs)
    a, b = halves(derived), halves(again)
    table = Table("ResNet50 to float16 TFLite", "seconds (median)", "ratio", "bytes")
    table.add_row("derived from float32", f"{median:.3f}", "1", f"{len(derived):,}")
    table.add_row("converted again", f"{other:.2f}", f"{other / median:.0f}", f"{len(again):,}")
    console = Console()
    console.print(table)
    console.print(f"float16 constants: {len(a)}; same bits as TensorFlow's: {a == b}")
    console.print(
        f"weights flushed to 0: {sum(d.flushed for d in told)} in {len(told)} variables, "
        f"{sum(d.lost for d in told)} of them refused"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
