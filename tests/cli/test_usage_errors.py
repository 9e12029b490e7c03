"""A wrong call: one line, exit code 2, and what was probably meant."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

CASES = [
    (["tflit", "m"], 'Did you mean "tflite"?'),
    (["tflite", "m", "--wieghts", "float16"], "Did you mean --weights?"),
    (["tflite"], "MODEL"),
    (["--quiet", "tflite", "m"], "options come after a command: mpexport COMMAND --quiet"),
    (["export", "m"], "--output"),
    (["tflite", "m", "other"], "unexpected argument 'other'"),
    (["tflite", "m", "--weights", "flot16"], "did you mean 'float16'?"),
    (["tflite", "m", "--weights", "int4"], "choose from: float16, float32"),
    (["tflite", "m", "--batch", "two"], "--batch"),
    (["tflite", "m", "--float16", "--weights", "float32"], "contradict"),
    (["tflite", "m", "--timeout", "0"], "--timeout 0"),
    (["tflite", "m", "--timeout", "nan"], "--timeout nan"),
    (["tflite", "m", "--seed", "-1"], "--seed"),
    (["onnx", "m", "--opset"], "--opset"),
    (["onnx", "m", "--opset", "x\ny"], "--opset"),
    (["parity", "m"], "CANDIDATES"),
    (["parity", "m", "f", "--threads", "0"], "--threads"),
    (["bench"], "FILES"),
    (["bench", "f", "--num-runs", "0"], "--num-runs"),
    (["check", "m", "--no-json"], "--no-json"),
]


@pytest.mark.parametrize(("words", "part"), CASES, ids=[" ".join(c[0]) for c in CASES])
def test_one_line(cli: Callable[..., Any], library: Any, words: list[str], part: str) -> None:
    ended = cli(*words)
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.count("\n") == 1
    assert ended.err.startswith("mpexport: error: ")
    assert part in ended.err
    assert library.calls == []


@pytest.mark.parametrize(("words", "part"), CASES[:3], ids=[" ".join(c[0]) for c in CASES[:3]])
def test_json(cli: Callable[..., Any], library: Any, words: list[str], part: str) -> None:
    ended = cli(*words, "--json")
    document = json.loads(ended.out)
    assert ended.code == document["error"]["exit_code"] == 2
    assert document["command"] == words[0]
    assert document["status"] == "error"
    assert document["error"]["code"] == "usage"
    assert part in document["error"]["message"]


def test_json_from_the_environment(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPEXPORT_JSON", "1")
    assert json.loads(cli("tflite").out)["error"]["code"] == "usage"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["export", "m", "-o", "d", "--formats", "onnx,tflit"], "did you mean 'tflite'?"),
        (["tflite", "m", "--input-range", "ids"], "NAME:LO..HI"),
        (["bench", "f", "--input-range", "a:0..1", "--input-range", "a:0..2"], "already"),
        (["parity", "m", "f", "--rtol", "nan"], "rtol"),
        (["parity", "m", "f", "--atol=-1"], "atol"),
    ],
)
def test_values_that_the_library_knows(
    cli: Callable[..., Any], library: Any, words: list[str], part: str
) -> None:
    ended = cli(*words)
    assert ended.code == 2
    assert part in ended.err
    assert library.calls == []


def test_missing_data_file(cli: Callable[..., Any], library: Any) -> None:
    ended = cli("tflite", "m", "--inputs", "/none/data.npz")
    assert ended.code == 3
    assert ended.err == "mpexport: error: /none/data.npz: no such file or directory\n"
    assert library.calls == []
