"""From a model to numbers of its TFLite file, in one process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from tensorflow.lite.python import schema_py_generated as schema

from mpexport.tf import reference
from mpexport.tf.normalized import NormalizedModel
from mpexport.tf.tflite_float16 import store_float16
from mpexport.tf.to_tflite import Converted, convert_signature
from tests.tf.support import normalized

# The product's bound for float32 files: |c - r| <= TOLERANCE * (|r| + max|r|).
TOLERANCE = 1e-5


def half_model(
    path: Path, function: Callable[[Any], Any], shape: tuple[int | None, ...], dtype: Any = None
) -> NormalizedModel:
    """A function of one input ``x``, computed in half, as loaded from its SavedModel."""
    module = tf.Module()

    def call(x: Any) -> dict[str, Any]:
        return {"y": function(tf.cast(x, dtype or tf.float16))}

    spec = tf.TensorSpec(list(shape), tf.float32, name="x")
    module.call = tf.function(call, input_signature=[spec], autograph=False)
    tf.saved_model.save(module, str(path), signatures=module.call)
    return normalized(path)


def exported(model: Any, path: Path) -> NormalizedModel:
    """A Keras model, exported and loaded."""
    model.export(str(path), verbose=False)
    return normalized(path)


def converted(model: NormalizedModel, **options: Any) -> Converted:
    made = convert_signature(model, model.source.choose(), options.get("shapes", {}))
    return (
        replace(made, content=bytes(store_float16(made.content))) if options.get("half") else made
    )


def builtins(content: bytes) -> Counter[str]:
    """The ops of a file by name; a custom op by its own."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    names = {v: k for k, v in vars(schema.BuiltinOperator).items() if not k.startswith("_")}
    codes = [
        names[max(c.builtinCode, c.deprecatedBuiltinCode)] if not c.customCode else c.customCode
        for c in model.operatorCodes
    ]
    return Counter(codes[op.opcodeIndex] for g in model.subgraphs for op in g.operators)


def run_file(content: bytes, inputs: dict[str, Any]) -> dict[str, Any]:
    runner = Interpreter(model_content=content).get_signature_runner()
    return {k: v.copy() for k, v in runner(**inputs).items()}


def expected_of(model: NormalizedModel, inputs: dict[str, Any]) -> dict[str, Any]:
    """The float64 reference."""
    key = model.source.choose()
    names = [s.name for s in model.program.entries[key].inputs]
    return reference.run(reference.make_reference(model, key).function, names, inputs)


def assert_close(expected: dict[str, Any], found: dict[str, Any]) -> None:
    assert sorted(expected) == sorted(found)
    for name, wanted in expected.items():
        r, c = np.asarray(wanted, np.float64), np.asarray(found[name], np.float64)
        assert r.shape == c.shape, name
        assert np.ptp(r) > 0 or r.size == 1, f"{name} is constant: no evidence"
        limit = TOLERANCE * (np.abs(r) + np.abs(r).max())
        worst = float((np.abs(c - r) / limit).max())
        assert worst <= 1, (name, worst)


def assert_agrees(model: NormalizedModel, content: bytes, *batches: dict[str, Any]) -> None:
    for inputs in batches:
        assert_close(expected_of(model, inputs), run_file(content, inputs))
