"""Sources of every kind and age, in memory and on disk, and the normalized form itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpexport
from mpexport.errors import UnsafeModelError
from tests.e2e.kit import run_child

pytestmark = pytest.mark.tf


@pytest.fixture(scope="module")
def special(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of ``children/special.py``."""
    folder = tmp_path_factory.mktemp("special")
    with ThreadPoolExecutor(2) as pool:
        for job in [
            pool.submit(run_child, "special.py", "keras", folder),
            pool.submit(run_child, "special.py", "tf_keras", folder, TF_USE_LEGACY_KERAS="1"),
        ]:
            job.result()
    return folder


def passes_by_itself(result: Any) -> bool:
    reports = [report for file in result.files for report in file.parity]
    return bool(reports) and all(row.cause == "ok" for r in reports for row in r.rows)


# --- in memory ------------------------------------------------------------------------------------


KINDS = ["keras", "tf_keras", "module", "concrete"]


@pytest.fixture(scope="module")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[str]]]:
    """What the child printed for each kind, two of them at a time."""
    with ThreadPoolExecutor(2) as pool:
        yield {
            kind: pool.submit(
                run_child,
                "in_memory.py",
                kind,
                tmp_path_factory.mktemp(kind),
                TF_USE_LEGACY_KERAS=str(int(kind == "tf_keras")),
            )
            for kind in KINDS
        }


@pytest.mark.parametrize("kind", KINDS)
def test_model_in_memory(kind: str, in_memory: dict[str, Future[str]]) -> None:
    answer = json.loads(in_memory[kind].result().splitlines()[-1])
    assert answer["verified"] == [["ok"]]
    assert answer["is_16_bit"]
    assert any("features" in signature for signature in answer["signatures"])
    assert answer["compared"] == ["PASS", "FAIL"]
    # assert_parity names the file that fails, and only that one.
    assert "wrong.tflite" in answer["failure"]
    assert "good.tflite" not in answer["failure"]


# --- on disk --------------------------------------------------------------------------------------


def test_loss_scale_optimizer_is_not_needed(special: Path, tmp_path: Path) -> None:
    assert passes_by_itself(mpexport.convert(special / "scaled.keras", "onnx", tmp_path / "o.onnx"))


def test_saved_under_a_mirrored_strategy(special: Path, tmp_path: Path) -> None:
    result = mpexport.export(special / "mirrored", tmp_path / "o", ("tflite", "onnx"))
    assert passes_by_itself(result)


def test_policy_of_the_experimental_api(special: Path, tmp_path: Path) -> None:
    source = special / "policy_v1.h5"
    report = mpexport.check(source)
    dense = {p.layer: (p.policy, p.compute_dtype, p.origin) for p in report.policies}
    found = [v for k, v in dense.items() if k.rpartition("/")[2] in ("hidden", "scores")]
    assert found == [("mixed_float16", "float16", "PolicyV1")] * 2
    assert passes_by_itself(mpexport.convert(source, "tflite", tmp_path / "o.tflite"))


def test_custom_class_needs_its_module(
    special: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The module is found in the current directory, as with `python -m`.
    monkeypatch.chdir(special)
    target = tmp_path / "o.tflite"
    with pytest.raises(UnsafeModelError, match="Twice") as caught:
        mpexport.convert("custom.keras", "tflite", target)
    assert "--import" in caught.value.hint
    assert not target.exists()
    result = mpexport.convert("custom.keras", "tflite", target, imports=["my_pkg.layers"])
    assert passes_by_itself(result)


def test_float32_source_is_exported_as_it_is(sources: Any, exports: Any) -> None:
    result = exports(sources.path("keras", "mlp", "float32", "file"))
    assert [note for note in result.notes if "as it is" in note] == [
        "nothing is in 16 bits: the model is exported as it is"
    ]
    mixed = exports(sources.path("keras", "mlp", "mixed_float16", "file"))
    assert not [note for note in mixed.notes if "as it is" in note]
    assert passes_by_itself(result)


# --- the normalized SavedModel --------------------------------------------------------------------

RANDOM = np.random.default_rng(5)
INPUTS = {
    "encode/words": RANDOM.random((2, 5, 6), dtype=np.float32),
    "decode_all/codes": RANDOM.random((3, 4)).astype(np.float16),
    "decode_all/scale": np.float32(1.5),
}
# What saving a signature wraps around it.
CALL_NESTING = {"StatefulPartitionedCall", "PartitionedCall", "Identity", "NoOp", "Placeholder"}


def run_saved_model(
    path: Path, scratch: Path, **changed: np.ndarray
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What the child says, and the outputs."""
    np.savez(scratch / "inputs.npz", **{**INPUTS, **changed})
    output = scratch / "outputs.npz"
    answer = json.loads(run_child("saved_model.py", path, scratch / "inputs.npz", output))
    with np.load(output) as stored:
        return answer, dict(stored)


WIDE = {"decode_all/codes": INPUTS["decode_all/codes"].astype(np.float32)}


@pytest.fixture(scope="module")
def normalized(special: Path) -> tuple[Path, Any]:
    target = special / "normalized"
    return target, mpexport.normalize(special / "signatures", target)


def test_normalizing_keeps_all_signatures(
    normalized: tuple[Path, Any], special: Path, tmp_path: Path
) -> None:
    path, result = normalized
    assert passes_by_itself(result)
    source, _ = run_saved_model(special / "signatures", tmp_path)
    answer, outputs = run_saved_model(path, tmp_path, **WIDE)
    widened = json.loads(json.dumps(source["signatures"]).replace("float16", "float32"))
    assert answer["signatures"] == widened
    assert answer["signatures"]["encode"]["inputs"]["words"] == ["float32", [None, None, 6]]
    assert answer["signatures"]["decode_all"]["outputs"]["words"] == ["float32", [None, 6]]
    assert answer["halves"] == []
    kernel = np.random.default_rng(0).random((6, 4)).astype(np.float32)
    codes = np.tanh(INPUTS["encode/words"].astype(np.float64) @ kernel)
    np.testing.assert_allclose(outputs["encode/codes"], codes, rtol=1e-6)
    words = WIDE["decode_all/codes"].astype(np.float64) @ kernel.T * 1.5
    np.testing.assert_allclose(outputs["decode_all/words"], words, rtol=1e-6)


def test_normalizing_again_changes_nothing(normalized: tuple[Path, Any], tmp_path: Path) -> None:
    path, first = normalized
    second = mpexport.normalize(path, tmp_path / "again")
    assert passes_by_itself(second)
    assert "nothing is in 16 bits: the model is exported as it is" in second.notes
    assert not [note for note in first.notes if "as it is" in note]
    before, after = (r.files[0].contract.ops for r in (first, second))
    changed = {op for op in {*before, *after} if before.get(op, 0) != after.get(op, 0)}
    assert changed <= CALL_NESTING
    answer_1, outputs_1 = run_saved_model(path, tmp_path, **WIDE)
    answer_2, outputs_2 = run_saved_model(tmp_path / "again", tmp_path, **WIDE)
    assert answer_1["signatures"] == answer_2["signatures"]
    assert set(outputs_1) == set(outputs_2)
    for name, array in outputs_1.items():
        assert array.tobytes() == outputs_2[name].tobytes(), name


def test_kept_half_outputs_are_cast_at_the_boundary_only(special: Path, tmp_path: Path) -> None:
    target = tmp_path / "kept"
    result = mpexport.normalize(special / "signatures", target, io_dtype="keep")
    assert all(report.passed for report in result.files[0].parity)
    source, _ = run_saved_model(special / "signatures", tmp_path)
    answer, outputs = run_saved_model(target, tmp_path)
    assert answer["signatures"] == source["signatures"]
    assert outputs["encode/codes"].dtype == np.float16
    # A call hands them on; only the Cast computes.
    assert {op for _, op in answer["halves"]} <= {*CALL_NESTING, "Cast"}
    casts = [node for node, op in answer["halves"] if op == "Cast"]
    assert len(casts) == 3, "one per half output"
