"""A mixed model's files are those of the same model in float32: same ops, same size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpexport
from tests.e2e.kit import difference, run_child, same_size, within

pytestmark = pytest.mark.tf

PAIRS = [
    ("keras", "mlp", "savedmodel"),
    ("keras", "cnn", "savedmodel"),
    ("tf_keras", "lstm", "savedmodel"),
    ("tf_keras", "lstm", "file"),
]
# Op counts (mixed minus float32) that come from Keras' own branches on the policy, by model and
# format. A half resize would add a Minimum and a Maximum; none of these models has one.
KERAS_BRANCHES: dict[tuple[str, str], dict[str, int]] = {}
LSTM = "UNIDIRECTIONAL_SEQUENCE_LSTM"


def casts(ops: dict[str, int]) -> int:
    return ops.get("CAST", 0) + ops.get("Cast", 0)


@pytest.mark.parametrize(("generation", "name", "kind"), PAIRS)
def test_same_ops_and_size_as_the_float32_export(
    generation: str, name: str, kind: str, sources: Any, exports: Any, look_into: Any
) -> None:
    paths = [sources.path(generation, name, p, kind) for p in ("mixed_float16", "float32")]
    for path in paths:
        exports.prefetch(path, ("tflite", "onnx"))
    inputs = paths[0].parent / "inputs.npz"
    files = [Path(f.artifact.path) for path in paths for f in exports(path).files]
    seen = look_into(inputs, files)
    for i, suffix in enumerate((".tflite", ".onnx")):
        mixed, single = seen[i], seen[i + 2]
        assert files[i].suffix == suffix
        expected = KERAS_BRANCHES.get((name, suffix), {})
        assert difference(mixed.ops, single.ops) == expected, (mixed.ops, single.ops)
        assert same_size(mixed.size, single.size), (mixed.size, single.size)
        assert casts(mixed.ops) <= casts(single.ops)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_same_file_as_the_bare_converter_makes_of_the_twin(
    name: str, sources: Any, exports: Any, look_into: Any, bare: dict[str, Path]
) -> None:
    source = sources.path("keras", name, "mixed_float16", "savedmodel")
    ours = Path(exports(source).files[0].artifact.path)
    mixed, single = look_into(source.parent / "inputs.npz", [ours, bare[name]])
    assert difference(mixed.ops, single.ops) == {}
    assert same_size(mixed.size, single.size), (mixed.size, single.size)


@pytest.mark.parametrize("kind", ["savedmodel", "file"])
def test_fused_lstm_stays_fused(
    kind: str, sources: Any, look_into: Any, bare: dict[str, Path], tmp_path: Path
) -> None:
    """The bare converter fuses the LSTM of tf-keras when its batch is static, and so must we.

    With a dynamic batch it converts none, see the test below.
    """
    folder = sources.tf_keras
    ours = []
    for policy in ("mixed_float16", "float32"):
        source = folder / f"lstm_batch_1-{policy}{'' if kind == 'savedmodel' else '.h5'}"
        ours.append(tmp_path / f"{policy}.tflite")
        result = mpexport.convert(source, "tflite", ours[-1])
        assert [row.cause for p in result.files[0].parity for row in p.rows] == ["ok"]
        assert not [note for note in result.notes if "fixed to 1" in note]
        # Its kernel goes on from the last call's state, which nobody who ships the file expects.
        assert [note for note in result.notes if "reset_all_variables" in note]
    seen = look_into(folder / "inputs.npz", [*ours, bare["lstm"]])
    mixed, own_single, single = seen
    assert single.ops[LSTM] == 1
    assert mixed.ops == own_single.ops == single.ops
    assert same_size(mixed.size, single.size), (mixed.size, single.size)
    expected = sources.twin_outputs("tf_keras", "lstm", "mixed_float16")
    for file in seen:
        (output,) = file.outputs.values()
        assert within(output, expected), np.abs(output - expected).max()


def test_bare_converter_has_no_dynamic_lstm(sources: Any, tmp_path: Path) -> None:
    """Why the dynamic LSTM is compared with our own export: there is no other file."""
    source = sources.path("tf_keras", "lstm", "float32", "savedmodel")
    with pytest.raises(AssertionError, match="tensor list ops"):
        run_child("bare.py", source, tmp_path / "o.tflite")


@pytest.fixture(scope="module")
def bare(sources: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files of TFLiteConverter from float32 SavedModels, by model."""
    folder = tmp_path_factory.mktemp("bare")
    made = {
        "mlp": sources.path("keras", "mlp", "float32", "savedmodel"),
        "cnn": sources.path("keras", "cnn", "float32", "savedmodel"),
        "lstm": sources.tf_keras / "lstm_batch_1-float32",
    }
    files = {name: folder / f"{name}.tflite" for name in made}
    run_child("bare.py", *[p for name in made for p in (made[name], files[name])])
    return files
