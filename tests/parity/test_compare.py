"""Verdicts: what passes, what fails and with what cause, and what is no evidence."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from mpexport.errors import UsageError
from mpexport.findings import Verdict
from mpexport.parity import row
from mpexport.parity.compare import Comparison, compare_cases, compare_outputs
from mpexport.parity.report import verdict_of
from mpexport.parity.tolerance import Tolerance, default_for

F32 = default_for("float32")
REFERENCE = np.array([[1.0, -2.0, 3.0], [0.5, 0.25, -4.0]])  # max|r| = 4
NAN, INF = math.nan, math.inf


def compare(reference, candidate, tolerance=F32, **kwargs):
    asides = {n: {"y": v} if n in ("trained", "floor") else v for n, v in kwargs.items()}
    (only,) = compare_outputs({"y": reference}, {"y": candidate}, tolerance, **asides)
    return only


def moved(index, value):
    out = REFERENCE.copy()
    out[index] = value
    return out


def test_equal_passes():
    result = compare(REFERENCE, REFERENCE.astype(np.float32))
    assert (result.verdict, result.cause) == (Verdict.PASS, row.OK)
    assert (result.count, result.mismatched, result.max_abs, result.ulp) == (6, 0, 0, 0)
    assert result.snr_db == INF
    assert (result.top1_rows, result.top1_agree) == (2, 2)


def test_numbers_of_a_failure():
    result = compare(REFERENCE, moved((1, 0), 0.6))
    assert (result.verdict, result.cause) == (Verdict.FAIL, row.CONVERSION)
    assert (result.count, result.mismatched) == (6, 1)
    assert result.max_abs == result.required_atol == pytest.approx(0.1)
    assert result.required_rtol == result.max_rel == pytest.approx(0.2)
    assert result.mean_abs == pytest.approx(0.1 / 6)
    assert result.rmse == pytest.approx(math.sqrt(0.01 / 6))
    assert (result.worst_case, result.worst_index) == (0, (1, 0))
    assert (result.worst_reference, result.worst_candidate) == (0.5, 0.6)
    assert "\n" not in result.message


def test_required_tolerances_are_the_smallest_that_pass():
    rng = np.random.default_rng(0)
    candidate = REFERENCE + rng.standard_normal(REFERENCE.shape) * 1e-3
    result = compare(REFERENCE, candidate)
    up = 1 + 1e-12
    for name, needed in (("rtol", result.required_rtol), ("atol", result.required_atol)):
        assert compare(REFERENCE, candidate, Tolerance(**{name: needed * up})).verdict == "PASS"
        assert compare(REFERENCE, candidate, Tolerance(**{name: needed * 0.999})).verdict == "FAIL"


def test_the_scale_is_that_of_all_cases():
    """A small number beside large ones is held to the large ones' noise, in whatever case."""
    big, small = np.array([[100.0, 50.0]]), np.array([[1e-3, 2e-3]])
    off = small + 5e-4
    (result,) = compare_cases([{"y": big}, {"y": small}], [{"y": big}, {"y": off}], F32)
    assert result.verdict == "PASS"
    assert compare(small, off).verdict == "FAIL"


def test_by_name_not_by_position():
    reference = {"b": REFERENCE, "a": -REFERENCE}
    candidate = {"a": -REFERENCE, "b": REFERENCE}
    rows = compare_outputs(reference, candidate, F32)
    assert [r.output for r in rows] == ["b", "a"]
    assert verdict_of(rows) is Verdict.PASS
    rows = compare_outputs(reference, {"a": REFERENCE, "b": -REFERENCE}, F32)
    assert verdict_of(rows) is Verdict.FAIL


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        (REFERENCE.ravel(), r"shape [2, 3] became [6]"),
        (REFERENCE[:1], r"shape [2, 3] became [1, 3]"),
        (REFERENCE[None], r"became [1, 2, 3]"),
        (REFERENCE.astype(int), "element type float64 became int64"),
        (REFERENCE.astype(bool), "became bool"),
        (REFERENCE.astype("S8"), "became string"),
        (REFERENCE[:0], "became [0, 3]"),
    ],
)
def test_other_structure_fails(candidate, message):
    result = compare(REFERENCE, candidate, Tolerance(atol=1e9))
    assert (result.verdict, result.cause) == (Verdict.FAIL, row.CONVERSION)
    assert message in result.message


def test_missing_and_extra_outputs_fail():
    rows = compare_outputs({"a": REFERENCE, "b": REFERENCE}, {"b": REFERENCE, "c": REFERENCE}, F32)
    assert [(r.output, r.verdict.value) for r in rows] == [
        ("a", "FAIL"),
        ("b", "PASS"),
        ("c", "FAIL"),
    ]
    assert compare_outputs({}, {"c": REFERENCE}, F32)[0].verdict is Verdict.FAIL
    (late,) = compare_cases([{"a": REFERENCE}] * 2, [{"a": REFERENCE}, {}], F32)
    assert late.verdict is Verdict.FAIL


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_nonfinite_only_in_the_candidate_fails(bad):
    loose = Tolerance(atol=1e30)
    result = compare(REFERENCE, moved((1, 2), bad), loose, trained=moved((1, 2), bad))
    assert (result.verdict, result.cause) == (Verdict.FAIL, row.CONVERSION)
    assert result.worst_index == (1, 2)
    assert result.worst_reference == -4
    assert result.mismatched == 1
    assert result.candidate_nan + result.candidate_inf == 1
    assert result.noise_floor == 0  # the trained model's NaN or infinity excuses nothing


@pytest.mark.parametrize(
    ("reference", "candidate"), itertools.product([NAN, INF, -INF, 1], repeat=2)
)
def test_nonfinite_combinations(reference, candidate):
    result = compare(moved((0, 0), reference), moved((0, 0), candidate))
    if math.isnan(reference):
        expected = Verdict.INCONCLUSIVE
    else:
        expected = Verdict.PASS if reference == candidate else Verdict.FAIL
    assert result.verdict is expected
    assert result.reference_nan == int(math.isnan(reference))
    assert result.candidate_inf == int(math.isinf(candidate))
    if math.isnan(reference):
        assert result.cause == row.REFERENCE_UNUSABLE


def test_a_wrong_number_beside_a_nan_of_the_reference_still_fails():
    assert compare(moved((0, 0), NAN), moved((1, 1), 9.0)).verdict is Verdict.FAIL


def test_nothing_is_no_evidence():
    empty = np.zeros((0, 3))
    result = compare(empty, empty)
    assert (result.verdict, result.cause) == (Verdict.INCONCLUSIVE, row.NO_EVIDENCE)
    assert result.max_abs is None
    assert compare(empty.astype(int), empty.astype(int)).verdict is Verdict.INCONCLUSIVE
    assert verdict_of([]) is Verdict.INCONCLUSIVE
    assert verdict_of(compare_outputs({}, {}, F32)) is Verdict.INCONCLUSIVE
    assert verdict_of(compare_cases([], [], F32)) is Verdict.INCONCLUSIVE
    infinite = np.full((2, 2), INF)
    assert compare(infinite, infinite).cause == row.NO_EVIDENCE


@pytest.mark.parametrize("value", [0.0, 7.0])
def test_a_constant_reference_is_no_evidence(value):
    constant = np.full((2, 3), value)
    assert compare(constant, constant).cause == row.NO_EVIDENCE
    assert compare(constant, constant).verdict is Verdict.INCONCLUSIVE
    assert compare(constant, constant + 1).verdict is Verdict.FAIL
    assert compare(constant, constant + 1e-3, trained=constant + 2e-3).verdict is not Verdict.PASS
    one = np.full((1, 1), 2.0)  # constant in each case, but not over both
    (result,) = compare_cases([{"y": one}, {"y": 2 * one}], [{"y": one}, {"y": 2 * one}], F32)
    assert result.verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("precision", "share"), [("float32", 0.5), ("float16-weights", 1.0), ("float16", 2.0)]
)
def test_within_trained_noise(precision, share):
    """A float32 file has to be better than the trained model, a float16 file about as good."""
    noise = 1e-2
    trained = REFERENCE + noise
    inside, outside = REFERENCE - 0.99 * share * noise, REFERENCE - 1.01 * share * noise
    result = compare(REFERENCE, inside, trained=trained, precision=precision)
    assert (result.verdict, result.cause) == (Verdict.PASS, row.OK_TRAINED_NOISE)
    assert result.noise_floor == pytest.approx(noise)
    assert result.mismatched == 6
    failed = compare(REFERENCE, outside, trained=trained, precision=precision)
    assert failed.verdict is Verdict.FAIL


def single_run(error, single_error, **options):
    comparison = Comparison(F32, **options)
    # The error in float32 falls on other elements than that of the candidate.
    candidate, single = REFERENCE.copy(), REFERENCE.copy()
    candidate[0, 0] += error
    single[-1, -1] += single_error
    comparison.add(0, {"y": REFERENCE}, {"y": candidate}, single={"y": single})
    return comparison.rows()[0]


def test_within_what_float32_does_to_the_reference():
    result = single_run(3.9e-3, 1e-3)
    assert (result.verdict, result.cause) == (Verdict.PASS, row.OK_FLOAT32)
    assert "the model itself is 0.001 off in float32" in result.message
    assert single_run(4.1e-3, 1e-3).verdict is Verdict.FAIL
    assert single_run(3.9e-3, 1e-3, precision="float16-weights").verdict is Verdict.FAIL
    # A model that float32 can't compute excuses nothing.
    assert single_run(1.0, 1.0).verdict is Verdict.FAIL


def test_a_broken_trained_model_excuses_nothing():
    """Half of max|r| away is overflow, not noise."""
    result = compare(REFERENCE, REFERENCE + 1.0, trained=REFERENCE + 2.0)
    assert result.verdict is Verdict.FAIL
    all_nan = np.full_like(REFERENCE, NAN)
    result = compare(REFERENCE, REFERENCE + 1e-3, trained=all_nan)
    assert (result.verdict, result.noise_floor) == (Verdict.FAIL, None)


def test_within_weight_rounding():
    floor = REFERENCE * (1 + 2.0**-11)
    result = compare(
        REFERENCE, REFERENCE * (1 - 2.0**-11), floor=floor, precision="float16-weights"
    )
    assert (result.verdict, result.cause) == (Verdict.PASS, row.OK_WEIGHT_ROUNDING)
    assert result.rounding_floor == pytest.approx(4 * 2.0**-11)
    result = compare(REFERENCE, REFERENCE * (1 + 2.0**-9), floor=floor, precision="float16-weights")
    assert (result.verdict, result.cause) == (Verdict.FAIL, row.PRECISION)
    result = compare(REFERENCE, REFERENCE * 1.5, floor=floor, precision="float16-weights")
    assert (result.verdict, result.cause) == (Verdict.FAIL, row.CONVERSION)


def test_floors_may_be_reached_in_another_case():
    cases = [{"y": REFERENCE}, {"y": 2 * REFERENCE}]
    off = [{"y": REFERENCE + 1e-3}, {"y": 2 * REFERENCE}]
    trained = [{"y": REFERENCE}, {"y": 2 * REFERENCE + 2e-3}]
    (result,) = compare_cases(cases, off, F32, trained)
    assert result.cause == row.OK_TRAINED_NOISE


def test_precision_or_conversion():
    assert compare(REFERENCE, REFERENCE * (1 + 1e-4)).cause == row.PRECISION
    assert compare(REFERENCE, REFERENCE * (1 + 1e-3)).cause == row.CONVERSION
    half = compare(REFERENCE, REFERENCE * (1 + 1e-3), precision="float16")
    assert (half.verdict, half.cause) == (Verdict.FAIL, row.PRECISION)


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (np.array([1, 2, 2**62]), np.array([1, 2, 2**62 + 1])),
        (np.array([1, 2]), np.array([1, 3], np.int32)),
        (np.array([True, False]), np.array([True, True])),
        (np.array([b"a", b"bc"], object), np.array([b"a", b"bd"], object)),
    ],
)
def test_integers_booleans_and_strings_must_be_equal(reference, candidate):
    loose = Tolerance(atol=1e9)
    result = compare(reference, candidate, loose)
    assert (result.verdict, result.cause, result.mismatched) == (Verdict.FAIL, row.CONVERSION, 1)
    assert result.worst_index == (reference.size - 1,)
    assert compare(reference, reference, loose).verdict is Verdict.PASS


def test_string_encodings_are_alike():
    text = np.array([b"a", b"bc"], object)
    assert compare(text, np.array(["a", "bc"])).verdict is Verdict.PASS
    assert compare(text, np.array([b"a", b"bc"])).verdict is Verdict.PASS


def test_other_float_widths_and_complex():
    assert compare(REFERENCE, REFERENCE.astype(np.float16)).verdict is Verdict.PASS
    wave = REFERENCE + 1j * REFERENCE[::-1]
    assert compare(wave, wave.astype(np.complex64)).verdict is Verdict.PASS
    assert compare(wave, wave.conj()).verdict is Verdict.FAIL
    scalar = compare(np.float64(2.0), np.float32(2.5))
    assert (scalar.verdict, scalar.worst_index) == (Verdict.FAIL, ())


def test_bfloat16_outputs():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert compare(REFERENCE, REFERENCE.astype(ml_dtypes.bfloat16)).verdict is Verdict.PASS


def test_tolerance_per_output():
    reference = {"a": REFERENCE, "b": REFERENCE}
    candidate = {"a": REFERENCE + 0.1, "b": REFERENCE}
    rows = compare_outputs(reference, candidate, {"a": Tolerance(atol=0.2), "": F32})
    assert verdict_of(rows) is Verdict.PASS
    with pytest.raises(UsageError, match="no tolerance for output 'b'"):
        compare_outputs(reference, candidate, {"a": F32})
    with pytest.raises(UsageError, match="names no output: 'c'"):
        compare_outputs(reference, candidate, {"c": F32, "": F32})


def test_calls_that_cannot_be_meant():
    with pytest.raises(UsageError, match="2 reference cases, but 1"):
        compare_cases([{}, {}], [{}], F32)
    with pytest.raises(UsageError, match="trained model has no output 'y'"):
        compare_outputs({"y": REFERENCE}, {"y": REFERENCE}, F32, trained={})
    with pytest.raises(UsageError, match="noise floor of shape"):
        compare(REFERENCE, REFERENCE, trained=REFERENCE[:1])
    with pytest.raises(UsageError):
        compare(REFERENCE, REFERENCE, precision="int4")


def test_any_damage_is_seen():
    """Whatever single element is changed by more than the bound, the verdict is not PASS."""
    rng = np.random.default_rng(5)
    for _ in range(300):
        shape = tuple(rng.integers(1, 5, rng.integers(1, 4)))
        reference = rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 6)
        candidate = reference.astype(np.float32)
        index = tuple(int(rng.integers(size)) for size in shape)
        step = 3e-5 * np.abs(reference).max()
        candidate[index] = rng.choice([candidate[index] + step, NAN, INF, -INF])
        result = compare(reference, candidate)
        assert result.verdict is Verdict.FAIL
        assert result.worst_index == index


def test_an_output_that_depends_on_no_input_needs_no_second_number():
    fixed, off = np.full((2, 3), 0.5), np.full((2, 3), 0.6)
    for constant, candidate, verdict in (
        ((), fixed, Verdict.INCONCLUSIVE),
        (["y"], fixed, Verdict.PASS),
        (["y"], off, Verdict.FAIL),
    ):
        (found,) = compare_cases([{"y": fixed}], [{"y": candidate}], F32, constant=constant)
        assert found.verdict is verdict


def beside_float32(candidate, single, tolerance=F32, **kwargs):
    comparison = Comparison(tolerance)
    names = {"single": {"y": single}, **{n: {"y": v} for n, v in kwargs.items()}}
    comparison.add(0, {"y": REFERENCE}, {"y": candidate}, **names)
    (only,) = comparison.rows()
    return only


@pytest.mark.parametrize("tolerance", [F32, Tolerance(1e-5, 1e-5)])
def test_what_float32_itself_loses_no_file_has(tolerance):
    lost = moved((0, 1), -1.0)  # like scores to which -1e9 was added
    found = beside_float32(lost, lost, tolerance)
    assert (found.verdict, found.cause) == (Verdict.PASS, row.OK_FLOAT32)
    assert found.message.startswith("1 of 6 beyond ")
    assert (found.mismatched, found.max_abs) == (0, 1.0)
    # Each element by itself: what agrees with neither is a fault.
    other = lost.copy()
    other[1, 2] = -3.9
    found = beside_float32(other, lost, tolerance)
    assert (found.verdict, found.cause, found.mismatched) == (Verdict.FAIL, row.CONVERSION, 1)


def test_float32_excuses_no_nan_and_a_nan_of_it_excuses_nothing():
    broken = moved((0, 1), NAN)
    assert beside_float32(broken, broken).verdict is Verdict.FAIL
    assert beside_float32(moved((0, 1), -1.0), broken).verdict is Verdict.FAIL
    assert beside_float32(REFERENCE, broken).cause == row.OK
    with pytest.raises(UsageError, match="shape"):
        beside_float32(REFERENCE, REFERENCE[:1])
    with pytest.raises(UsageError, match="float32"):
        Comparison(F32).add(0, {"y": REFERENCE}, {"y": REFERENCE}, single={"z": REFERENCE})
