"""Child: ``python saved_model.py SAVED_MODEL INPUTS.npz OUTPUT.npz``: runs all its signatures.

``INPUTS.npz`` holds ``KEY/NAME`` and so does ``OUTPUT.npz``. Prints JSON: the signatures with
dtypes and shapes, and each node with a 16-bit output and its op. Knows nothing of mpexport.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph
from tensorflow.python.saved_model.loader_impl import parse_saved_model


def described(specs: Any) -> dict[str, Any]:
    """Name → [dtype, shape]."""
    return {name: [s.dtype.name, s.shape.as_list()] for name, s in specs.items()}


def halves(directory: str) -> list[list[str]]:
    """``[function/node, op]`` for each node with a 16-bit output, in all functions of the file."""
    found = []
    graph = parse_saved_model(directory).meta_graphs[0].graph_def
    with tf.Graph().as_default() as whole:
        tf.graph_util.import_graph_def(graph, name="")
        groups = [("", whole)]
        for f in graph.library.function:
            groups.append((f.signature.name, function_def_to_graph(f)))
    for name, group in groups:
        for op in group.get_operations():
            if any(t.dtype in (tf.float16, tf.bfloat16) for t in op.outputs):
                found.append([f"{name}/{op.name}", op.type])
    return found


def main(directory: str, inputs: Path, output: Path) -> dict[str, Any]:
    """Runs and describes."""
    model = tf.saved_model.load(directory)
    given = dict(np.load(inputs))
    results = {}
    for key, function in model.signatures.items():
        feeds = {n.partition("/")[2]: v for n, v in given.items() if n.startswith(f"{key}/")}
        outputs = function(**{n: tf.constant(v) for n, v in feeds.items()})
        results.update({f"{key}/{n}": v.numpy() for n, v in outputs.items()})
    np.savez(output, **results)
    signatures = {
        key: {
            "inputs": described(f.structured_input_signature[1]),
            "outputs": described(f.structured_outputs),
        }
        for key, f in model.signatures.items()
    }
    return {"signatures": signatures, "halves": halves(directory)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))))
