"""A runtime as a user names it."""

from __future__ import annotations

import sys

import pytest

from mpexport.errors import InputError, UsageError
from mpexport.runtime_choice import parse_choice


def test_name_settings_and_python():
    choice = parse_choice(f"tflite-runtime:xnnpack=off,python={sys.executable}")
    assert (choice.name, choice.settings) == ("tflite_runtime", {"xnnpack": "off"})
    assert choice.python == sys.executable
    assert choice.formats == ("tflite",)
    assert str(choice) == "tflite_runtime:xnnpack=off"


def test_a_name_alone():
    choice = parse_choice("onnxruntime")
    assert (choice.settings, choice.python, str(choice)) == ({}, None, "onnxruntime")


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("onnx", UsageError, "no runtime 'onnx'"),
        ("litert:fast", UsageError, "'fast' is no setting"),
        ("litert:xnnpack=on,xnnpack=off", UsageError, "is no setting"),
        ("litert:optimization=all", UsageError, "litert has no setting 'optimization'"),
        ("onnxruntime:optimization=most", UsageError, "one of all, extended, basic, disable"),
        ("litert:python=/no/such/python", InputError, "no such program"),
    ],
)
def test_what_is_wrong_is_named(text, kind, message):
    with pytest.raises(kind, match=message):
        parse_choice(text)
