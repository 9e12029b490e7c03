"""What the user keeps in float32: ``op:TYPE`` and ``layer:PATTERN``."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from mpexport.errors import UsageError


def parse_keep(texts: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """``op:A,layer:b/*`` → op types, and patterns of layers.

    Raises:
        UsageError: A part has another form.
    """
    ops: list[str] = []
    layers: list[str] = []
    for part in (p.strip() for text in texts for p in text.split(",")):
        kind, colon, value = part.partition(":")
        if not colon or not value or kind not in ("op", "layer"):
            raise UsageError(
                f"--keep-float32 {part}: expected op:TYPE or layer:PATTERN",
                hint="for example op:Softmax,layer:encoder/*",
            )
        (ops if kind == "op" else layers).append(value)
    return ops, layers


def matches(pattern: str, label: str) -> bool:
    """Whether a pattern names a node or a scope around it, from any scope on.

    ``encoder`` and ``encoder/*`` fit ``model/encoder/dense/MatMul``.
    """
    for tail in suffixes(label):
        parts = tail.split("/")
        if any(fnmatchcase("/".join(parts[:n]), pattern) for n in range(1, len(parts) + 1)):
            return True
    return False


def suffixes(label: str) -> list[str]:
    """``a/b/c`` → ``a/b/c``, ``b/c``, ``c``."""
    parts = label.split("/")
    return ["/".join(parts[i:]) for i in range(len(parts))]


def original_name(label: str) -> str:
    """The name that TensorFlow's node had: tf2onnx adds numbers to what it adds to a node."""
    return re.sub(r"__\d+$", "", label)


def without_numbers(label: str) -> str:
    """``model_1/dense_2_1/MatMul`` → ``model/dense_2/MatMul``: less what tells traces apart."""
    parts = label.split("/")
    return "/".join(
        head if number.isdigit() and head else part
        for part in parts
        for head, _, number in [part.rpartition("_")]
    )
