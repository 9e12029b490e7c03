"""A process that builds cases and knows nothing of the product: models, twins, bare tools, checks.

``python -m tests.conformance.builder`` reads one JSON job per line and answers each with one line.
It serves one generation of Keras: ``TF_USE_LEGACY_KERAS`` is set by whoever starts it.

A case's folder holds, after ``build``:

* ``twin/``: the SavedModel of the float32 twin, and ``twin/weights-POLICY`` where that policy has
  16-bit variables, so that both hold the same values;
* ``inputs-N.npz`` and, per policy, ``expected-POLICY-N.npz``: what the twin computes;
* ``POLICY/``: ``model.keras``, ``model.h5`` or ``model`` (a SavedModel), the thing to be exported.
"""

from __future__ import annotations

import contextlib
import importlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from sample_models.twin import assign_weights, named_weights
from tests.conformance import bare, plain
from tests.conformance.case import Build, Case, Saved
from tests.conformance.numbers import difference, is_evidence, spread
from tests.conformance.serving import one_line, serve

_HALF = {
    "mixed_float16": "float16",
    "float16": "float16",
    "mixed_bfloat16": "bfloat16",
    "bfloat16": "bfloat16",
    "float32": "float32",
}
_SEED = 0


def find_case(module: str, name: str) -> Case:
    """The case of that name."""
    return next(c for c in importlib.import_module(module).CASES if c.name == name)


def _keras(case: Case) -> Any:
    if not case.keras:
        return None
    keras = importlib.import_module(case.keras)
    keras.backend.clear_session()  # names are counted from 0 again: twins have the same
    keras.utils.set_random_seed(_SEED)
    return keras


def _build(case: Case, policy: str) -> tuple[Any, Any]:
    keras = _keras(case)
    if keras is not None:
        keras.mixed_precision.set_global_policy(policy)
    try:
        build = Build(policy, _HALF[policy], keras, np.random.default_rng(_SEED))
        return case.build(build), keras
    finally:
        if keras is not None:
            keras.mixed_precision.set_global_policy("float32")


def _draw_weights(model: Any) -> None:
    """Replaces what is all but zeros or ones, which would hide that a weight gets lost."""
    rng = np.random.default_rng(_SEED + 1)
    for variable in model.weights:
        value = np.asarray(variable.numpy()) if hasattr(variable, "numpy") else np.zeros(0)
        if value.dtype.kind != "f" or not value.size:
            continue
        base = np.round(value.flat[0])
        # A vision transformer begins with biases of 1e-6.
        if base in (0, 1) and np.abs(value - base).max() < 1e-4:
            # Statistics and scales stay positive.
            drawn = base + 0.1 * rng.uniform(-1, 1, value.shape)
            variable.assign(drawn.astype(value.dtype))


def _save(model: Any, keras: Any, path: Path, kind: str) -> Path:
    """Saves a model the way a case asks for; returns where it is."""
    if isinstance(model, Saved):
        import tensorflow as tf

        tf.saved_model.save(model.module, str(path / "model"), signatures=model.signatures)
        return path / "model"
    if kind == "savedmodel":
        if keras.__name__ == "keras":
            _export_for_inference(model, keras, path / "model")
        else:
            model.save(str(path / "model"))
        return path / "model"
    place = path / f"model.{kind}"
    model.save(str(place))
    return place


def _export_for_inference(model: Any, keras: Any, path: Path) -> None:
    """``Model.export`` with ``training`` closed: by its default some layers go on augmenting."""
    from unittest import mock

    from keras.src.backend.tensorflow.layer import TFLayer
    from keras.src.export.export_utils import get_input_signature

    archive = keras.export.ExportArchive()
    archive.track(model)
    signature = get_input_signature(model)
    if any(getattr(layer, "stateful", False) for layer in model.layers):
        (x,) = model.inputs  # whose batch the states are made for
        signature = [keras.InputSpec(shape=x.shape, dtype=x.dtype, name=x.name)]

    def serve(*given: Any) -> Any:
        outputs = model(*given, training=False)
        nested = isinstance(outputs, list) and any(isinstance(v, list) for v in outputs)
        return keras.tree.flatten(outputs) if nested else outputs

    archive.add_endpoint("serve", serve, signature)
    # Saving would trace it once more, with ``training`` open, which not every layer survives.
    with mock.patch.object(TFLayer, "_default_save_signature", None):
        archive.write_out(str(path), verbose=False)


@contextlib.contextmanager
def _rounded_literals(half: str):
    """Python numbers that are traced meanwhile become what they are in a 16-bit trace."""
    import tensorflow as tf
    from tensorflow.python.framework import constant_op

    dtype = tf.as_dtype(half).as_numpy_dtype
    original = constant_op._constant_impl

    def rounded(value: Any, dtype_: Any, *args: Any, **kwargs: Any) -> Any:
        if dtype_ in (None, tf.float32):
            # Outside a trace an array is a weight.
            kinds = (
                float if tf.executing_eagerly() else float | list | tuple | np.generic | np.ndarray
            )
            array = np.asarray(value) if isinstance(value, kinds) else np.zeros(0, int)
            if array.dtype.kind == "f":
                # What 16 bits cannot hold, such as -1e9, Keras writes otherwise in a 16-bit trace.
                held = array.astype(np.float32).astype(dtype).astype(np.float32)
                value = np.where(np.isinf(held), array, held).astype(np.float32)
        return original(value, dtype_, *args, **kwargs)

    constant_op._constant_impl = rounded
    try:
        with np.errstate(over="ignore"):
            yield
    finally:
        constant_op._constant_impl = original


def _inputs(case: Case, twin: Path) -> list[dict[str, Any]]:
    specs = plain.saved_model_inputs(twin, case.signature)
    cases = []
    for batch in case.batches:
        # One generator per input, so that the order of names means nothing.
        arrays = {}
        for name in sorted(specs):
            rng = np.random.default_rng([_SEED, batch, *name.encode()])
            if name in case.feeds:
                arrays[name] = case.feeds[name](rng, batch)
            elif specs[name].dtype.is_floating and specs[name].shape.rank:
                shape = [
                    batch if i == 0 and n is None else n for i, n in enumerate(specs[name].shape)
                ]
                if None in shape:
                    raise ValueError(f"{case.name}: input {name} has shape {shape}: give a feed")
                arrays[name] = rng.standard_normal(shape).astype(np.float32)
            else:
                raise ValueError(f"{case.name}: input {name} is {specs[name]}: give a feed")
        cases.append(arrays)
    return cases


def build(module: str, name: str, folder: str, policies: list[str]) -> dict[str, Any]:
    """Builds twin and models, and runs the bare tools on them."""
    case, place = find_case(module, name), Path(folder)
    shutil.rmtree(place, ignore_errors=True)
    twin, keras = _build(case, "float32")
    if keras is not None:
        _draw_weights(twin)
    drawn = named_weights(twin) if keras is not None else []
    saved = _save(twin, keras, _folder(place / "twin"), "savedmodel")
    inputs = _inputs(case, saved)
    for i, arrays in enumerate(inputs):
        np.savez(place / f"inputs-{i}.npz", **arrays)
    expected = plain.run_saved_model(saved, case.signature, inputs)
    answer: dict[str, Any] = {
        "evidence": is_evidence(expected),
        "bare_float32": {},
        "policies": {},
    }
    if case.bare:
        answer["bare_float32"] = bare.convert_and_run(
            saved, case.signature, inputs, expected, place
        )
    for policy in policies:
        mixed, keras = _build(case, policy)
        right, rows = expected, {}
        twin_path = saved
        if keras is not None:
            assign_weights(mixed, drawn)
            held = named_weights(mixed)
            if any(not np.array_equal(a, b) for (_, a), (_, b) in zip(drawn, held, strict=True)):
                assign_weights(twin, held)
                twin_path = _save(twin, keras, _folder(place / f"twin-{policy}"), "savedmodel")
                right = plain.run_saved_model(twin_path, case.signature, inputs)
        kind = case.source or ("keras" if policy == "mixed_float16" else "savedmodel")
        kind = "savedmodel" if isinstance(mixed, Saved) else kind
        source = _save(mixed, keras, _folder(place / policy), kind)
        as_saved = source
        if kind != "savedmodel":
            as_saved = _save(mixed, keras, _folder(place / policy / "bare"), "savedmodel")
        allowed = dict.fromkeys(right[0], 0.0)
        if case.literals:
            with _rounded_literals(_HALF[policy]):
                other = _build(case, "float32")[0]
                if keras is not None:
                    assign_weights(other, named_weights(twin))
                path = _save(other, keras, _folder(place / f"literals-{policy}"), "savedmodel")
            with contextlib.suppress(Exception):  # rounding an epsilon to 0 may end in an error
                rounded = plain.run_saved_model(path, case.signature, inputs)
                # Twice: some literals may cancel each other's effect.
                allowed = {k: 2 * v for k, v in spread(right, rounded).items()}
            shutil.rmtree(path)
        half_weights = plain.run_saved_model(twin_path, case.signature, inputs, half_weights=True)
        for i, arrays in enumerate(right):
            np.savez(place / f"expected-{policy}-{i}.npz", **arrays)
        rows["allowed"] = allowed
        rows["allowed_float16"] = {
            k: allowed[k] + 2 * v for k, v in spread(right, half_weights).items()
        }
        rows["trained"] = plain.trained_error(as_saved, case.signature, inputs, right)
        # The other 16-bit type fares no better, and costs as much.
        if case.bare and policy == policies[0]:
            rows["bare"] = bare.convert_and_run(as_saved, case.signature, inputs, right, place)
        rows["source"] = str(source)
        rows["twin"] = str(twin_path)
        answer["policies"][policy] = rows
    if keras is not None:
        keras.backend.clear_session()
    return answer


def _folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def check(
    folder: str,
    policy: str,
    signature: str,
    files: dict[str, str],
    allowed: dict[str, Any],
    half: dict[str, Any],
) -> dict[str, Any]:
    """Runs exported files and compares them with the twin's outputs."""
    place = Path(folder)
    answer = {}
    for target, path in files.items():
        extra = half if target.endswith("float16") else allowed
        worst, problem = 0.0, ""
        i = 0
        while (stored := place / f"expected-{policy}-{i}.npz").exists():
            inputs = dict(np.load(place / f"inputs-{i}.npz", allow_pickle=False))
            expected = dict(np.load(stored, allow_pickle=False))
            try:
                found = plain.run_file(Path(path), signature, inputs)
            except Exception as e:
                problem = f"does not run at batch {i}: {one_line(e)}"
                break
            ratio, why = difference(expected, found, extra)
            if why or ratio > worst:
                worst, problem = ratio, why or problem
            i += 1
        ok = not problem and worst <= 1
        answer[target] = {
            "agrees": ok,
            "ratio": worst if np.isfinite(worst) else "inf",
            "problem": problem,
        }
    return answer


JOBS = {"build": build, "check": check}


if __name__ == "__main__":
    serve(JOBS)
