"""What the user writes is what the library gets."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from mpexport.cli import export_commands

from mpexport import formats
from mpexport.formats import FormatSpec
from mpexport.parity.tolerance import Tolerance, default_for


def test_model_options(cli: Callable[..., Any], library: Any) -> None:
    words = ("--signature", "s", "--tag", "t", "--allow-code", "--import", "a.b", "--import", "c")
    for command in (
        ["check", "m"],
        ["tflite", "m"],
        ["export", "m", "-o", "d"],
        ["parity", "m", "f"],
    ):
        assert cli(*command, *words).code == 0
        assert library.calls[-1][1][0] == "m"
        given = {k: library.last[k] for k in ("signature", "tag", "allow_code", "imports")}
        assert given == {
            "signature": "s",
            "tag": "t",
            "allow_code": True,
            "imports": ("a.b", "c"),
        }


def test_export_options(cli: Callable[..., Any], library: Any, tmp_path: Path) -> None:
    data = tmp_path / "data.npz"
    data.touch()
    cli(
        *("tflite", "m", "-o", "x.tflite", "--no-verify", "--overwrite", "--timeout", "60"),
        *("--inputs", str(data), "--input-range", "ids:0..9", "--input-range=a:b:-1..1.5"),
        *("--seed", "7", "--debug"),
    )
    verb, args, given = library.calls[-1]
    assert (verb, args) == ("convert", ("m", "tflite", "x.tflite"))
    assert (given["verify"], given["overwrite"]) == (False, True)
    assert (given["run"].timeout_s, given["run"].debug) == (60.0, True)
    assert given["inputs"].data == str(data)
    assert given["inputs"].ranges == {"ids": (0, 9), "a:b": (-1, 1.5)}
    assert given["inputs"].seed == 7


def test_defaults_are_the_library_s(cli: Callable[..., Any], library: Any) -> None:
    """Options of a format that were not given are not passed on."""
    cli("tflite", "m")
    shared = set(inspect.signature(library.real["convert"]).parameters)
    assert not set(library.last) - shared
    assert library.last["verify"] is True
    default = inspect.signature(library.real["export"]).parameters["formats_wanted"].default
    assert ",".join(default) == export_commands.DEFAULT_FORMATS
    from mpexport.cli.options import DEFAULT_TIMEOUT_S

    from mpexport.worker import parent

    assert DEFAULT_TIMEOUT_S == parent.DEFAULT_TIMEOUT_S
    signature = inspect.signature(library.real["measure"])
    cli("bench", "f")
    for name in ("num_threads", "warmup_runs", "num_runs", "min_secs", "max_secs", "batch"):
        assert library.last[name] == signature.parameters[name].default


def test_export_command(cli: Callable[..., Any], library: Any) -> None:
    cli("export", "m", "--output", "d", "--formats", "onnx, tflite-float16,")
    assert library.calls[-1][1] == ("m", "d", ["onnx", "tflite-float16"])


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["--weights", "float16"], {"weights": "float16"}),
        (["--weights", "fp16"], {"weights": "float16"}),
        (["--weights", "Half"], {"weights": "float16"}),
        (["--float16"], {"weights": "float16"}),
        (["--float16", "--weights=fp16"], {"weights": "float16"}),
        (["--weights", "float32"], {"weights": "float32"}),
        (["--batch", "4"], {"batch": 4}),
        (
            ["--input-shape", "a:[1,28,28]", "--input_shape", "b:[?]"],
            {"input_shape": ("a:[1,28,28]", "b:[?]")},
        ),
    ],
)
def test_tflite_options(
    cli: Callable[..., Any], library: Any, words: list[str], options: dict[str, Any]
) -> None:
    assert cli("tflite", "m", *words).code == 0
    fields = ("weights", "batch", "input_shape")
    assert {k: v for k, v in library.last.items() if k in fields} == options


def test_other_formats(cli: Callable[..., Any], library: Any) -> None:
    cli("onnx", "m", "--opset", "15")
    assert library.calls[-1][1] == ("m", "onnx", None)
    assert library.last["opset"] == 15
    for name in ("savedmodel", "normalize"):
        cli(name, "m", "-o", "d", "--io-dtype", "keep")
        assert library.calls[-1][1] == ("m", "savedmodel", "d")
        assert library.last["io_dtype"] == "keep"


def test_parity_options(cli: Callable[..., Any], library: Any) -> None:
    cli("parity", "m", "f", "g", "--threads", "2")
    assert library.calls[-1][1] == ("m", ("f", "g"))
    assert library.last["num_threads"] == 2
    usual = default_for("float32")
    assert library.last["gate"].tolerances() == usual
    cli("parity", "m", "f", "--rtol", "0.01")
    assert library.last["gate"].tolerances() == Tolerance(0.01, 0.0, usual.atol_scale)
    cli("parity", "m", "f", "--atol", "1e-3", "--rtol", "logits:0.1", "--batch", "5")
    common = Tolerance(usual.rtol, 1e-3, 0.0)
    assert library.last["gate"].tolerances() == {"": common, "logits": replace(common, rtol=0.1)}
    assert library.last["inputs"].batch == 5


def test_bench_options(cli: Callable[..., Any], library: Any) -> None:
    cli(
        *("bench", "f", "g", "--num_threads=4", "--num-runs", "10", "--warmup-runs", "0"),
        *("--min-secs", "0.5", "--max-secs", "2", "--batch", "8"),
    )
    assert [call[1] for call in library.calls] == [("f",), ("g",)]
    given = {k: v for k, v in library.last.items() if k not in ("inputs", "run")}
    assert given == {
        "batch": 8,
        "num_threads": 4,
        "num_runs": 10,
        "warmup_runs": 0,
        "min_secs": 0.5,
        "max_secs": 2.0,
    }


def test_environment(
    cli: Callable[..., Any], library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "WEIGHTS": "fp16",
        "INPUT_SHAPE": "a:[1] b:[2]",
        "INPUT_RANGE": "a:0..1",
        "IMPORT": "x y",
        "VERIFY": "false",
        "QUIET": "1",
        "SEED": "3",
        "UNKNOWN": "?",
    }.items():
        monkeypatch.setenv(f"MPEXPORT_{name}", value)
    assert cli("tflite", "m", "--seed", "4") == type(cli("--version"))(0, "", "")
    assert library.last["weights"] == "float16"
    assert library.last["input_shape"] == ("a:[1]", "b:[2]")
    assert library.last["inputs"].ranges == {"a": (0, 1)}
    assert library.last["imports"] == ("x", "y")
    assert library.last["verify"] is False
    assert library.last["inputs"].seed == 4, "the command line wins"
    monkeypatch.setenv("MPEXPORT_SEED", "x")
    ended = cli("tflite", "m")
    assert ended.code == 2
    assert "MPEXPORT_SEED" in ended.err


@dataclass(frozen=True)
class BrickOptions:
    """Options of a format that is made up."""

    color: str = field(
        default="red", metadata={"help": "Color of bricks.", "choices": ("red", "blue")}
    )
    layers: int = field(default=2, metadata={"help": "How many.", "metavar": "COUNT"})
    hollow: bool = field(default=False, metadata={"help": "Save clay."})


@pytest.fixture
def _brick(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = FormatSpec(
        name="brick",
        title="pile of bricks",
        suffix=".brick",
        is_directory=False,
        options=BrickOptions,
        sniff=lambda path: False,
        modules=(),
        extra="brick",
        convert=lambda *a: None,  # type: ignore[arg-type, return-value]
        check=lambda *a: None,  # type: ignore[arg-type, return-value]
        variants={"brick-sky-high": {"color": "blue", "layers": 99}},
    )
    known = {**formats.all_formats(), "brick": spec}
    monkeypatch.setattr(formats, "all_formats", lambda: known)


@pytest.mark.usefixtures("_brick")
def test_a_new_format_has_a_command(cli: Callable[..., Any], library: Any) -> None:
    shown = cli("brick", "--help").out
    for part in ("pile of bricks", "--color red|blue", "--layers COUNT", "Save clay.", "--hollow"):
        assert part in shown
    assert "Short for --color blue --layers 99." in shown
    cli("brick", "m", "--layers", "5", "--hollow")
    assert library.calls[-1][1] == ("m", "brick", None)
    assert (library.last["layers"], library.last["hollow"]) == (5, True)
    assert "color" not in library.last
    cli("brick", "m", "--sky-high")
    assert (library.last["color"], library.last["layers"]) == ("blue", 99)
    assert cli("brick", "m", "--sky-high", "--layers", "2").code == 2
    assert cli("brick", "m", "--color", "green").code == 2
    assert cli("export", "m", "-o", "d", "--formats", "brick-sky-high").code == 0
