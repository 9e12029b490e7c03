"""What a TFLite file holds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from mpexport import dtypes
from mpexport.inspection import counted, shown
from mpexport.signature import Signature, TensorSpec
from mpexport.tflite_file.reader import REDUCED_PRECISION, Subgraph, TfliteFile, open_tflite
from mpexport.tflite_file.requirements import minimum_runtime


def read(path: Path) -> dict[str, Any]:
    """The fields of a `FileReport` that depend on the format."""
    with open_tflite(path) as file:
        ops = [op.op for graph in file.subgraphs for op in graph.operators]
        metadata = {name: shown(name, value) for name, value in sorted(file.metadata.items())}
        return {
            "precision": _precision(file),
            "signatures": _signatures(file),
            "ops": counted(Counter((op.name, op.version) for op in ops)),
            "weight_bytes": _weight_bytes(file),
            "requirements": {
                "schema_version": file.schema_version,
                "min_runtime_version": minimum_runtime((op.code, op.version) for op in ops),
            },
            "reduced_precision": metadata.pop(REDUCED_PRECISION, ""),
            "metadata": metadata,
        }


def _constants(file: TfliteFile) -> dict[int, str]:
    """Buffer → element type, of the tensors that have content."""
    found = {}
    for graph in file.subgraphs:
        for tensor in graph.tensors:
            if file.buffer_bytes(tensor.buffer):
                found[tensor.buffer] = tensor.dtype
    return found


def _weight_bytes(file: TfliteFile) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for index, dtype in _constants(file).items():
        sizes[dtype] += file.buffer_bytes(index)
    return dict(sorted(sizes.items()))


def _precision(file: TfliteFile) -> str:
    stores_half = False
    for graph in file.subgraphs:
        widened = graph.widened()
        for i, tensor in enumerate(graph.tensors):
            if tensor.is_quantized:
                return "quantized"
            if dtypes.is_16_bit_float(tensor.dtype):
                if i not in widened or not file.buffer_bytes(tensor.buffer):
                    return tensor.dtype
                stores_half = True
    return "float16-weights" if stores_half else "float32"


def _signatures(file: TfliteFile) -> tuple[Signature, ...]:
    found = [
        Signature(key, _specs(graph, inputs), _specs(graph, outputs))
        for key, graph, inputs, outputs in file.signatures()
    ]
    if not found and file.subgraphs:  # of a writer that names tensors only
        graph = file.subgraphs[0]
        sides = ({graph.tensors[i].name: i for i in ids} for ids in (graph.inputs, graph.outputs))
        found = [Signature("", *(_specs(graph, side) for side in sides))]
    return tuple(found)


def _specs(graph: Subgraph, side: dict[str, int]) -> tuple[TensorSpec, ...]:
    tensors = {name: graph.tensors[i] for name, i in sorted(side.items())}
    return tuple(TensorSpec(name, t.shape, t.dtype) for name, t in tensors.items())
