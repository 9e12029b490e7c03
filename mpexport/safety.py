"""Whether loading a Keras config would run code of its author: told from data, before any loader.

Everything in a config that names something importable must be on the allow-list: the public homes
of Keras' own layers, activations, initializers and so on. Anything else is refused with the name
of the layer, unless the user allows it or registers it by importing its module.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mpexport.errors import UnsafeModelError

_ROOTS = ("keras", "keras.src", "tf_keras", "tf_keras.src")
_HOMES = (
    "activations",
    "constraints",
    "dtype_policies",
    "initializers",
    "layers",
    "mixed_precision",
    "models",
    "ops",
    "quantizers",
    "random.seed_generator",
    "regularizers",
)
_ALLOWED = frozenset(f"{root}.{home}" for root in _ROOTS for home in _HOMES) | frozenset(_ROOTS)
# Layers of Keras that run code or files named in their config.
_UNSAFE_CLASSES = frozenset({"Lambda", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer"})
# Parts of a config that are not read when a model is loaded for inference.
_UNREAD = frozenset({"compile_config", "training_config", "build_config"})


@dataclass(frozen=True)
class UnsafeItem:
    """Something in a config that would run the author's code, or needs a class we don't know."""

    layer: str
    what: str
    custom_class: str = ""


def _allowed_module(module: str) -> bool:
    if module in ("builtins", "tensorflow"):  # tf.TensorShape, dtypes
        return True
    return any(module == home or module.startswith(home + ".") for home in _ALLOWED - set(_ROOTS)) or (
        module in _ROOTS
    )


def scan_config(config: Any) -> Iterator[UnsafeItem]:
    """All items of a Keras config that need the user's consent.

    Args:
        config: The parsed JSON of a model, Keras 2 or 3.
    """
    todo: list[tuple[Any, str]] = [(config, "model")]
    while todo:
        item, layer = todo.pop()
        if isinstance(item, list):
            todo.extend((x, layer) for x in item)
        if not isinstance(item, dict):
            continue
        inner = item.get("config")
        class_name = item.get("class_name")
        if isinstance(class_name, str):
            if isinstance(inner, dict) and isinstance(inner.get("name"), str):
                layer = inner["name"]
            yield from _judge(item, class_name, layer)
        todo.extend((v, layer) for k, v in item.items() if k not in _UNREAD)


def _judge(item: dict[str, Any], class_name: str, layer: str) -> Iterator[UnsafeItem]:
    module = item.get("module")
    registered = item.get("registered_name")
    if class_name in _UNSAFE_CLASSES:
        yield UnsafeItem(layer, f"a {class_name} layer, which runs what its author put in the file")
    elif class_name == "__lambda__":
        yield UnsafeItem(layer, "a Python lambda")
    elif ">" in class_name:
        yield UnsafeItem(layer, f"the custom class {class_name}", class_name)
    elif registered and ">" in str(registered):
        yield UnsafeItem(layer, f"the custom class {registered}", str(registered))
    elif isinstance(module, str) and not _allowed_module(module):
        name = f"{module}.{class_name}"
        if class_name == "function":
            name = f"{module}.{item.get('config')}"
        yield UnsafeItem(layer, f"the custom class {name}", str(registered or class_name))
    elif module is None and "module" in item and registered and class_name != registered:
        yield UnsafeItem(layer, f"the custom class {registered}", str(registered))


def refuse_unsafe(path: str, items: list[UnsafeItem], known: frozenset[str]) -> None:
    """Raises for the first item that is not registered by the user.

    Args:
        path: The source, for the message.
        items: What `scan_config` found.
        known: Registered names of the custom classes the user's imports provide.

    Raises:
        UnsafeModelError: Exit code 4; nothing of the model has run.
    """
    for item in items:
        if item.custom_class:
            if item.custom_class in known or item.custom_class.partition(">")[2] in known:
                continue
            raise UnsafeModelError(
                f"{path}: layer {item.layer!r} needs {item.what}",
                hint="name the module that registers it: --import my_package.layers",
                where=item.layer,
            )
        raise UnsafeModelError(
            f"{path}: layer {item.layer!r} is {item.what}",
            hint="replace it by a layer; --allow-code runs it, if you trust who wrote the file",
            where=item.layer,
        )
