"""Sample models × policies × kinds of source: verified exports that agree with float32 twins.

The twin is the same architecture rebuilt under float32 by Keras, with the same weights. Neither the
process that runs it nor the one that runs the files imports anything of mpexport.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e.kit import RTOL, within

pytestmark = pytest.mark.tf

POLICIES = ("mixed_float16", "mixed_bfloat16", "float32")
CASES = [
    *[
        ("keras", name, policy, kind)
        for name in ("mlp", "cnn", "transformer", "lstm")
        for policy in POLICIES
        for kind in ("file", "savedmodel")
    ],
    *[
        ("tf_keras", name, "mixed_float16", kind)
        for name in ("cnn", "lstm")
        for kind in ("file", "savedmodel")
    ],
]
WITH_FLOAT16 = {
    ("keras", "cnn", "mixed_float16", "file"),
    ("keras", "transformer", "mixed_bfloat16", "savedmodel"),
    ("keras", "lstm", "mixed_float16", "savedmodel"),
    ("tf_keras", "cnn", "mixed_float16", "file"),
}


def formats_of(case: tuple[str, ...]) -> tuple[str, ...]:
    extra = ("tflite-float16",) if case in WITH_FLOAT16 else ()
    return ("tflite", "onnx", *extra)


@pytest.fixture(scope="module")
def all_exports(sources: Any, exports: Any) -> Any:
    """All exports of this module under way, so that each waits for few others."""
    for case in CASES:
        exports.prefetch(sources.path(*case), formats_of(case))
    return exports


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_export_is_verified_and_agrees_with_the_float32_twin(
    case: tuple[str, ...], sources: Any, all_exports: Any, look_into: Any
) -> None:
    generation, name, policy, _ = case
    source = sources.path(*case)
    result = all_exports(source, formats_of(case))

    assert [f.artifact.format for f in result.files] == list(formats_of(case))
    for file in result.files:
        assert Path(file.artifact.path).is_file()
        for report in file.parity:
            assert report.passed
            assert [row.output for row in report.rows] == [OUTPUTS.get(case, "probabilities")]
            if file.conversion.precision == "float32":
                # By itself: not because the trained model is as far off.
                assert [row.cause for row in report.rows] == ["ok"], report.to_json()
                assert all(row.tolerance.rtol == RTOL for row in report.rows)
        assert len(file.parity) == 1
    assert not [note for note in result.notes if "fixed to 1" in note]

    expected = sources.twin_outputs(generation, name, policy)
    assert np.ptp(expected, axis=0).max() > 1e-3, "rows alike would be no evidence"
    paths = [Path(f.artifact.path) for f in result.files]
    found = look_into(source.parent / "inputs.npz", paths)
    for path, seen in zip(paths, found, strict=True):
        (output,) = seen.outputs.values()
        assert output.dtype == np.float32
        assert output.shape == expected.shape
        if not path.stem.endswith("float16"):
            assert within(output, expected), (path.name, np.abs(output - expected).max())
    if case in WITH_FLOAT16:
        plain, half = found[0], found[2]
        # Below 1024 elements TensorFlow leaves a weight as it is; the graph weighs a few kilobytes.
        assert half.size < 0.65 * plain.size
        assert half.ops["DEQUANTIZE"] > 0
        assert {k: v for k, v in half.ops.items() if k != "DEQUANTIZE"} == plain.ops
        (output,) = half.outputs.values()
        # 16 weights of relative error 2^-11 in a row, as in mpexport's own bound.
        np.testing.assert_allclose(output, expected, rtol=2**-9, atol=2**-9 * expected.max())


@pytest.mark.parametrize("policy", POLICIES)
def test_rounded_literals_are_what_tells_the_twins_apart(policy: str, sources: Any) -> None:
    """The bound above notices a literal of GELU that is off by 1e-4."""
    rounded = sources.twin_outputs("keras", "transformer", policy)
    exact = sources.twin_outputs("keras", "transformer", policy, "exact")
    assert within(rounded, exact) == (policy == "float32")
    for name in ("mlp", "cnn", "lstm"):
        single = sources.twin_outputs("keras", name, policy)
        assert np.array_equal(single, sources.twin_outputs("keras", name, policy, "exact"))


# Keras 3 calls the outputs of an exported model output_0, and so on.
OUTPUTS = {case: "output_0" for case in CASES if case[0] == "keras"}
