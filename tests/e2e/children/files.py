"""Child: what exported files hold and compute, told by nothing but their runtimes.

``python files.py JOB.json`` with ``{"inputs": NPZ, "files": [PATH], "output": FOLDER}`` writes
``FOLDER/INDEX.npz`` with the outputs by name, and prints one JSON list of
``{"ops": {name: count}, "outputs": {name: dtype}}``. Nothing of mpexport is imported here.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np


def tflite_ops(path: Path) -> Counter[str]:
    """Builtin op names of all subgraphs."""
    from ai_edge_litert import schema_py_generated as schema

    names = {v: k for k, v in vars(schema.BuiltinOperator).items() if not k.startswith("_")}
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))
    codes = [max(c.builtinCode, c.deprecatedBuiltinCode) for c in model.operatorCodes]
    return Counter(names[codes[op.opcodeIndex]] for g in model.subgraphs for op in g.operators)


def onnx_ops(path: Path) -> Counter[str]:
    """Op types of the graph and of the bodies of its loops and branches."""
    import onnx

    ops: Counter[str] = Counter()
    graphs = [onnx.load(str(path), load_external_data=False).graph]
    while graphs:
        for node in graphs.pop().node:
            ops[node.op_type] += 1
            graphs += [a.g for a in node.attribute if a.HasField("g")]
    return ops


def run_tflite(path: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    """Outputs of the only signature; a file with a fixed batch of 1 gets row by row."""
    from ai_edge_litert.interpreter import Interpreter

    def runner() -> Any:
        # A new one for each call: a fused LSTM goes on from the state that the last call left.
        interpreter = Interpreter(model_path=str(path), num_threads=1)
        return interpreter.get_signature_runner(*interpreter.get_signature_list())

    details = runner().get_input_details()
    rows = len(next(iter(inputs.values())))
    fixed = all(d["shape_signature"][0] == 1 for d in details.values())
    parts = [slice(i, i + 1) for i in range(rows)] if fixed else [slice(0, rows)]
    outputs = [runner()(**{n: inputs[n][part] for n in details}) for part in parts]
    return {name: np.concatenate([o[name] for o in outputs]) for name in outputs[0]}


def run_onnx(path: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    """Outputs by name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    feeds = {i.name: inputs[i.name] for i in session.get_inputs()}
    return dict(zip(names, session.run(names, feeds), strict=True))


def main(job: dict[str, Any]) -> None:
    """Reads and runs all files."""
    found = []
    with np.load(job["inputs"]) as stored:
        inputs = dict(stored)
    for i, name in enumerate(job["files"]):
        path = Path(name)
        is_tflite = path.suffix == ".tflite"
        outputs = (run_tflite if is_tflite else run_onnx)(path, inputs)
        np.savez(Path(job["output"]) / f"{i}.npz", **outputs)
        ops = (tflite_ops if is_tflite else onnx_ops)(path)
        found.append({"ops": ops, "outputs": {n: a.dtype.name for n, a in outputs.items()}})
    assert not {"mpexport", "tensorflow"} & {m.split(".")[0] for m in sys.modules}
    print(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
