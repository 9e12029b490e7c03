"""The dtype policy of every layer, read from configs as data.

The policy of an outer model says nothing about what is inside it: nested models and wrappers carry
their own, so every layer is visited.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from mpexport.precision import LayerPolicy

_WRAPPED = ("layer", "forward_layer", "backward_layer", "cell", "cells", "rnn_layer")


def _policy_name(dtype: Any) -> tuple[str, str]:
    """``(name, origin)`` of a serialized dtype policy in any of its historical forms."""
    if isinstance(dtype, str):
        return dtype, "dtype"
    if isinstance(dtype, dict):
        config = dtype.get("config") or {}
        return str(config.get("name", "")), str(dtype.get("class_name", ""))
    return "", ""


def _split(policy: str) -> tuple[str, str]:
    """Compute and variable dtype of a policy name."""
    if policy.startswith("mixed_"):
        return policy.removeprefix("mixed_"), "float32"
    return policy, policy


def _walk(item: Any, path: str) -> Iterator[LayerPolicy]:
    if isinstance(item, list):
        for x in item:
            yield from _walk(x, path)
        return
    if not isinstance(item, dict):
        return
    config = item.get("config")
    if isinstance(config, dict) and "class_name" in item:
        name = str(config.get("name", ""))
        here = f"{path}/{name}" if path and name else path or name
        if "dtype" in config and item["class_name"] not in ("InputLayer", "DTypePolicyMap"):
            policy, origin = _policy_name(config["dtype"])
            if policy:
                compute, variable = _split(policy)
                yield LayerPolicy(here, str(item["class_name"]), policy, compute, variable, origin)
        for key in ("layers", *_WRAPPED):
            yield from _walk(config.get(key), here)


def config_policies(config: Any) -> list[LayerPolicy]:
    """Policies of all layers in a Keras model config, nested models and wrappers included."""
    return list(_walk(config, ""))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _strings(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Length-delimited fields of a protobuf message: ``(field number, bytes)``."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            _, at = _varint(data, at)
        elif wire == 2:
            size, at = _varint(data, at)
            yield key >> 3, data[at : at + size]
            at += size
        else:
            raise DecodeError(f"unexpected wire type {wire}")


def saved_model_policies(directory: Path) -> list[LayerPolicy]:
    """Policies that Keras 2 left beside a SavedModel (``keras_metadata.pb``); else none.

    The file is a list of nodes (field 1); a node has its path in field 3, its identifier in field
    4 and its JSON metadata in field 5.
    """
    file = directory / "keras_metadata.pb"
    if not file.exists():
        return []
    found: dict[str, LayerPolicy] = {}
    try:
        for number, node in _strings(file.read_bytes()):
            if number != 1:
                continue
            fields = dict(_strings(node))
            if fields.get(4, b"") not in (b"_tf_keras_layer", b"_tf_keras_rnn_layer"):
                continue
            metadata = json.loads(fields.get(5, b"{}"))
            policy, origin = _policy_name(metadata.get("dtype"))
            if policy:
                compute, variable = _split(policy)
                path = fields.get(3, b"").decode().removeprefix("root.")
                kind = str(metadata.get("class_name", ""))
                name = str(metadata.get("name") or path)
                if kind != "InputLayer":
                    found.setdefault(
                        name, LayerPolicy(name, kind, policy, compute, variable, origin)
                    )
    except (ValueError, IndexError, DecodeError):
        # The file is Keras' own notebook, not part of the model: unreadable means unknown.
        return []
    return list(found.values())
