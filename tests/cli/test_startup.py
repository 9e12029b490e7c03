"""Help and version come at once: nothing that a command needs is imported for them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from mpexport import __version__

HEAVY = ("ai_edge_litert", "h5py", "keras", "numpy", "onnx", "onnxruntime", "tensorflow")
LOADED = """
import sys
from mpexport.cli.main import main
code = main(sys.argv[1:])
sys.stderr.write(" ".join(sorted({m.partition(".")[0] for m in sys.modules})))
sys.exit(code)
"""


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("--version",),
        ("check", "--help"),
        ("tflite", "--help"),
        ("export", "--help"),
        ("parity", "--help"),
        ("report", "--help"),
        ("bench", "--help"),
        ("tflit",),
    ],
)
def test_imports_nothing_heavy(process: Callable[..., Any], words: tuple[str, ...]) -> None:
    ended = process(*words, command=[sys.executable, "-c", LOADED])
    loaded = set(ended.err.split())
    assert "mpexport" in loaded
    assert not loaded & set(HEAVY)


def test_version(cli: Callable[..., Any]) -> None:
    for words in (["--version"], ["tflite", "--version"]):
        assert cli(*words).out == f"mpexport {__version__}\n"


def test_help_lists_commands(cli: Callable[..., Any]) -> None:
    ended = cli("--help")
    assert ended.code == 0
    for name in (
        "check",
        "savedmodel (normalize)",
        "tflite",
        "onnx",
        "export",
        "parity",
        "report",
        "bench",
    ):
        assert f" {name} " in ended.out
    assert cli().out == ended.out


def test_module_and_script_are_the_same(process: Callable[..., Any]) -> None:
    ended = process("--version")
    assert (ended.code, ended.out) == (0, f"mpexport {__version__}\n")


def test_without_the_parser(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cyclopts", None)
    ended = cli("--help")
    assert ended.code == 11
    assert "cyclopts is not installed: the command line needs Python 3.11" in ended.err
