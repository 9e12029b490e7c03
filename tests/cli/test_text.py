"""What people read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mpexport.findings import Severity, Verdict
from mpexport.render import layout, text
from mpexport.render.layout import Facts, Table


def test_one_format(cli: Callable[..., Any], library: Any) -> None:
    assert cli("tflite", "m").out == (
        "/out/m.tflite\n"
        "  size           1.23 MB\n"
        "  max error      1.5e-07 in output logits\n"
        "  reference      m.keras (serve, float64)\n"
        "  trained model  0.00014 off the same reference\n"
        "  verdict        PASS: within rtol 1e-05\n"
        "  run in         litert 2.3.0, 4 samples\n"
        "  note           the batch is fixed to 1\n"
    )


def test_one_format_unverified(cli: Callable[..., Any], library: Any, make: Any) -> None:
    library.answers["convert"] = make.export("/out/m.tflite", verified=False)
    assert "  verdict  not verified\n" in cli("tflite", "m", "--no-verify").out


def test_the_worst_output_is_shown(cli: Callable[..., Any], library: Any, make: Any) -> None:
    rows = [
        make.row(output="a", max_abs=9.0),
        make.row(output="b", max_abs=1.0, verdict=Verdict.FAIL, cause="conversion"),
        make.row(
            output="c", max_abs=2.0, verdict=Verdict.FAIL, cause="precision", noise_floor=None
        ),
    ]
    result = make.export("/out/m.tflite")
    file = replace(result.files[0], parity=(make.parity("f", *rows),))
    library.answers["convert"] = replace(result, files=(file,))
    shown = cli("tflite", "m").out
    assert "max error      2 in output c\n" in shown
    assert "FAIL (precision)" in shown
    assert "the trained model did not run" in shown


def test_details(cli: Callable[..., Any], library: Any) -> None:
    shown = cli("tflite", "m", "-v").out
    assert "promote_compute_dtype  node-retyped     26\n" in shown
    assert "40 values, 0 beyond rtol 1e-05, atol 1e-05·max|r|, mean 2e-08" in shown
    assert "worst at case 0, [0, 3]: 0.25000015 for 0.25" in shown


def test_release(cli: Callable[..., Any], library: Any) -> None:
    lines = cli("export", "m", "-o", "d").out.splitlines()
    assert lines[0] == "/out"
    assert lines[1].split() == [
        "format",
        "size",
        "max",
        "error",
        "noise",
        "floor",
        "top-1",
        "verdict",
    ]
    assert [line.split()[0] for line in lines[2:6]] == [
        "savedmodel",
        "tflite",
        "tflite-float16",
        "onnx",
    ]
    assert lines[2].split() == ["savedmodel", "1.23", "MB", "1.5e-07", "0.00014", "4/4", "PASS"]
    assert all(len(line) <= 80 for line in lines)


def test_check(cli: Callable[..., Any], library: Any, make: Any) -> None:
    library.answers["check"] = make.precision(Severity.WARNING, Severity.ERROR)
    shown = cli("check", "m").out
    for line in (
        "  output   logits: float16[?, 10]",
        "float32    2          6  2.78 MB",
        "weight   float32  float16      2",
        "mixed_float16  float16      float32         2",
        "1 layer inside other layers:",
        "  mixed_float16  model/encoder/inner (Dense, DTypePolicy)",
        "7 literals rounded to 16 bits when the model was traced:",
        "and 2 more; --verbose lists them",
        "error half-head: Softmax in float16",
        "  hint  use float32",
        "1 error, 1 warning",
    ):
        assert line in shown
    assert "f/mul6" not in shown
    assert "f/mul6" in cli("check", "m", "--verbose").out


def test_check_of_a_model_that_is_fine(cli: Callable[..., Any], library: Any) -> None:
    assert cli("check", "m").out.endswith("\nno findings\n")


def test_parity(cli: Callable[..., Any], library: Any, make: Any) -> None:
    row = make.row(verdict=Verdict.FAIL, cause="conversion", message="2 of 40 beyond rtol 0")
    noisy = make.row(output="aux", cause="ok (within trained noise)", reference_nan=2)
    library.answers["compare"] = [make.parity("a.tflite", row, noisy), make.parity("b.onnx")]
    shown = cli("parity", "m", "f").out
    columns = "output  max error  noise floor  rtol needed  atol needed  top-1  verdict\n"
    assert shown.count(columns) == 2
    assert "FAIL (conversion)" in shown
    assert "PASS (trained noise)" in shown
    assert "2 of 40 beyond rtol 0" in shown
    assert "NaN 2 in the reference, 0 in the file" in shown
    assert shown.endswith("FAIL: 1 of 2 files passed\n")


def test_bench(cli: Callable[..., Any], library: Any, make: Any) -> None:
    library.answers["measure"] = make.latency(
        p90_ms=None, p90_reason="12 samples", median_ms=1234.5
    )
    shown = cli("bench", "f").out
    lines = shown.splitlines()
    assert lines[0].split("  ")[0] == "file"
    assert lines[1].split() == ["m.tflite", "0.500", "2.050", "1,234", "-", "80", "1"]
    assert "no p90   m.tflite: 12 samples" in shown
    assert "machine  A CPU, 2 usable cores, governor unknown, load 0.50" in shown
    assert "spread   m.tflite: min 0.116" in cli("bench", "f", "-v").out


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_700, "1 MB"), (2_450_000_000, "2.45 GB")],
)
def test_size(size_bytes: int, shown: str) -> None:
    assert text.size(size_bytes) == shown


LONG = "a_name_" * 20
BLOCKS = [
    "title",
    Facts(LONG, [("name", "value " * 40), ("path", LONG)]),
    Table(("file", ">number", "verdict"), [(LONG, "1.5e-07", "PASS"), ("b", "2", "FAIL (why)")]),
]


def test_pipe_is_plain_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = layout.to_text(BLOCKS, is_terminal=False)
    assert "\x1b" not in shown
    assert "…" not in shown
    assert shown.count(LONG) == 3
    assert len(shown.splitlines()) == 7
    assert all(line == line.rstrip() for line in shown.splitlines())


def test_terminal_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    shown = layout.to_text(BLOCKS, is_terminal=True)
    assert "…" not in shown
    assert "\x1b[3" not in shown, "no color asked for"
    plain = shown.replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert all(len(line) <= 80 for line in plain.splitlines())
    joined = "".join(plain.split())
    assert joined.count("a_name_" * 8) >= 3
    assert "1.5e-07" in plain
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b[32mPASS" in layout.to_text(BLOCKS, is_terminal=True)


def test_cells_cannot_command_the_terminal() -> None:
    shown = layout.to_text(["[red]\x1b[2Jx\ny[/red]"], is_terminal=True)
    assert shown == "[red]\\x1b[2Jx y[/red]\n"
