"""Samples that a program gives."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from mpexport.errors import InconclusiveError, InputError, UsageError
from mpexport.parity.cases import from_data
from mpexport.parity.streams import load_function, of_files, rebatch
from mpexport.signature import Signature, TensorSpec

ROWS = np.arange(20.0).reshape(10, 2)


def stream_of(*batches):
    return lambda: iter(batches)


def joined(cases, name="x"):
    return np.concatenate([case[name] for case in cases])


@pytest.mark.parametrize("cuts", [[], [1], [3, 4], [9], [2, 4, 6, 8]])
def test_batches_of_any_size_become_cases_of_one_size(cuts):
    parts = [{"x": part} for part in np.split(ROWS, cuts)]
    cases = list(rebatch(stream_of(*parts), None, 4))
    assert [len(case["x"]) for case in cases] == [4, 4, 2]
    np.testing.assert_array_equal(joined(cases), ROWS)


def test_an_array_is_the_only_input():
    np.testing.assert_array_equal(joined(rebatch(stream_of(ROWS), "x", 3)), ROWS)
    with pytest.raises(UsageError, match="several inputs"):
        list(rebatch(stream_of(ROWS), None, 3))


@pytest.mark.parametrize(
    ("batches", "kind", "message"),
    [
        ([], InconclusiveError, "gave none"),
        ([{"x": ROWS[:0]}], InconclusiveError, "gave none"),
        ([{"x": ROWS, "y": ROWS[:3]}], UsageError, "leading axis of every array"),
        ([{"x": 1.0}], UsageError, "leading axis"),
        ([{"x": ROWS[:1]}, {"y": ROWS[:1]}], UsageError, "other inputs than before"),
        ([{"x": ROWS[:1]}, {"x": ROWS[:1, :1]}], UsageError, "different shapes"),
    ],
)
def test_what_does_not_fit_is_named(batches, kind, message):
    with pytest.raises(kind, match=message):
        list(rebatch(stream_of(*batches), None, 4))


def test_a_fixed_batch_takes_no_remainder():
    assert len(list(rebatch(stream_of(ROWS), "x", 5, exact=True))) == 2
    with pytest.raises(UsageError, match="10 samples are no multiple of the fixed batch 4"):
        list(rebatch(stream_of(ROWS), "x", 4, exact=True))


def test_memory_does_not_grow_with_the_stream():
    alive = 0

    class Batch(np.ndarray):
        def __del__(self):
            nonlocal alive
            alive -= 1

    def stream():
        nonlocal alive
        for _ in range(100):
            alive += 1
            assert alive < 6
            yield {"x": np.zeros((4, 2)).view(Batch)}

    assert sum(1 for _ in rebatch(stream, None, 8)) == 50


def test_errors_of_the_function_are_one_line_and_its_prints_leave_stdout_alone(capsys):
    def stream():
        print("loading")
        yield {"x": ROWS}
        raise RuntimeError("disk\nis gone")

    with pytest.raises(InputError, match=r"fails: RuntimeError: disk$"):
        list(rebatch(stream, None, 10))
    assert capsys.readouterr() == ("", "loading\n")


def test_data_of_a_function_is_held_against_the_signature():
    signature = Signature("serve", (TensorSpec("x", (None, 2), "float16"),), ())
    (case,) = from_data(stream_of(ROWS / 3), signature)
    np.testing.assert_array_equal(case["x"], (ROWS / 3).astype(np.float16))
    with pytest.raises(UsageError, match="no input 'y'"):
        list(from_data(stream_of({"x": ROWS, "y": ROWS}), signature))
    with pytest.raises(UsageError, match=r"float16\[\?, 2\]; got"):
        list(from_data(stream_of(np.zeros((3, 5))), signature))


def test_files_become_samples_in_the_order_of_their_names(tmp_path):
    for name in ("b/2.txt", "a/1.txt", "c.txt", ".hidden"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    stream = of_files(tmp_path, lambda path: np.full(3, len(Path(path).read_text())))
    assert [batch.tolist() for batch in stream()] == [[[7] * 3], [[7] * 3], [[5] * 3]]
    named = of_files(tmp_path, lambda path: {"x": np.zeros(2), "y": np.ones(())})
    assert {n: a.shape for n, a in next(iter(named())).items()} == {"x": (1, 2), "y": (1,)}
    with pytest.raises(InputError, match=r"1\.txt: preprocessing fails: ZeroDivisionError"):
        list(of_files(tmp_path, lambda path: 1 / 0)())
    with pytest.raises(InputError, match="no such folder"):
        of_files(tmp_path / "none", str)


def test_functions_are_found_beside_the_user(tmp_path, monkeypatch):
    (tmp_path / "my_samples.py").write_text("print('hello')\ndef give(): return [1]\nvalue = 3\n")
    (tmp_path / "my_broken.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    try:
        assert load_function("--inputs", "my_samples:give")() == [1]
        for text, kind, message in [
            ("my_samples:take", UsageError, "no function 'take'"),
            ("my_samples:value", UsageError, "no function 'value'"),
            ("my_absent:f", UsageError, "No module named"),
            ("my_broken:f", InputError, "importing it fails: ZeroDivisionError"),
            ("my_samples", UsageError, "no function"),
        ]:
            with pytest.raises(kind, match=message):
                load_function("--inputs", text)
    finally:
        sys.modules.pop("my_samples", None)
    assert str(tmp_path) not in sys.path
