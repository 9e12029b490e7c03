"""Float32 twins: the same architecture and weights as a mixed model, rebuilt by Keras itself.

A twin is the independent witness against ``mpexport``: it comes from the configuration of the
layers, never from their graph, and shares no code with the product. It may differ from a promoted
graph where Keras looks at the policy (constants that a mixed trace has already rounded, or the
clipping after a resize in half precision).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sample_models import builders
from sample_models.errors import TwinError

_HALF_TYPES = frozenset({"float16", "bfloat16"})
_TO_FLOAT32 = _HALF_TYPES | {"mixed_float16", "mixed_bfloat16"}
_POLICY_CLASSES = frozenset({"DTypePolicy", "FloatDTypePolicy", "Policy", "PolicyV1"})
_DTYPE_KEYS = ("dtype", "policy", "args")
"""Ends of the keys under which a string may name a dtype: ``args`` are those of a traced call."""

NamedWeight = tuple[str, npt.NDArray[Any]]


def float32_twin(model: Any, keras: Any) -> Any:
    """Rebuilds a model under float32 and copies its weights.

    Given:  layers with any 16-bit policy, at any depth (nested models, wrappers, cells).
    Result: the same layers with policy ``float32``; weights as float32.

    1. Only 16-bit names are replaced: an integer input or a layer in float64 stays what it is.
    2. Explicit casts to a 16-bit type become casts to float32.
    3. The model given is not changed; the twin is not compiled.

    Args:
        model: Keras model with a complete ``get_config``.
        keras: Module that the model was built with.

    Returns:
        A Keras model of the same generation with the same names and shapes.

    Raises:
        TwinError: The model has quantized layers, a layer insists on a 16-bit type, or the
            weights of the two don't match.
    """
    config = dict(keras.saving.serialize_keras_object(model))
    config.pop("compile_config", None)
    with builders.policy_scope(keras, "float32"):
        # The model is in memory already, so its Lambda layers are as trusted as the caller.
        twin = keras.saving.deserialize_keras_object(
            _promoted(config), custom_objects=_custom_classes(model, keras), safe_mode=False
        )
    assign_weights(twin, named_weights(model))
    _restore_adapted_state(model, twin, keras)
    _require_float32(twin)
    return twin


def load_twin(path: Path | str, keras: Any, **load_options: Any) -> Any:
    """Loads a model file and returns its float32 twin.

    Args:
        path: A ``.keras`` or ``.h5`` file.
        keras: Module of the generation that wrote the file.
        **load_options: Passed on to ``keras.models.load_model``, such as ``custom_objects``.

    Returns:
        The twin, see ``float32_twin``.
    """
    return float32_twin(keras.models.load_model(str(path), compile=False, **load_options), keras)


def build_twin_pair(
    name: str, keras: Any, policy: str, seed: int = 0, **options: Any
) -> tuple[Any, Any]:
    """Builds a sample model twice, under a policy and under float32, with the same weights.

    Both come from the builder, so not even the replacement of policies is relied upon here.

    Args:
        name: Name of the sample model.
        keras: Keras 3 or ``tf_keras``.
        policy: Policy of the first model, one of ``builders.POLICIES``.
        seed: Seed of the weights.
        **options: Keyword arguments of the builder.

    Returns:
        The model under the policy, and the model under float32.
    """
    mixed = builders.build(name, keras, policy, seed=seed, **options)
    single = builders.build(name, keras, "float32", seed=seed, **options)
    assign_weights(single, named_weights(mixed))
    return mixed, single


def named_weights(model: Any) -> list[NamedWeight]:
    """Returns the weights of a model in order, those in a 16-bit type widened to float32.

    Args:
        model: Keras model of either generation.

    Returns:
        For each weight its own name (such as ``kernel``, without the path) and its value.
    """
    weights = []
    for variable in _variables(model):
        value = np.asarray(variable.numpy())
        if value.dtype.name in _HALF_TYPES:
            value = value.astype(np.float32)
        weights.append((_own_name(variable), value))
    return weights


def assign_weights(model: Any, weights: Sequence[NamedWeight]) -> None:
    """Assigns weights that were taken in order from a model of the same architecture.

    Order, shapes and names must all agree: the projections of an attention layer have equal
    shapes, so that shapes alone would let them change places.

    Args:
        model: Keras model of either generation.
        weights: Result of ``named_weights``.

    Raises:
        TwinError: Count, name or shape differ; nothing has been assigned then.
    """
    variables = _variables(model)
    if len(variables) != len(weights):
        raise TwinError(
            f"{model.name} has {len(variables)} weights, but {len(weights)} were given; "
            "a layer that is built on first call must be built before"
        )
    for index, (variable, (name, value)) in enumerate(zip(variables, weights, strict=True)):
        expected = (_own_name(variable), tuple(variable.shape))
        if expected != (name, value.shape):
            raise TwinError(
                f"weight {index} of {model.name} is {expected[0]} {expected[1]}, "
                f"but {name} {value.shape} was given"
            )
    for variable, (_, value) in zip(variables, weights, strict=True):
        variable.assign(value)


def _variables(model: Any) -> list[Any]:
    """Returns the weights that are variables: Keras 2 also lists the tables of lookup layers."""
    return [weight for weight in model.weights if hasattr(weight, "numpy")]


def _own_name(variable: Any) -> str:
    """Returns the last part of a variable's name: Keras 3 ``a/kernel``, TensorFlow ``a/b:0``."""
    path: str = getattr(variable, "path", variable.name)
    return path.rpartition("/")[2].partition(":")[0]


def _promoted(value: Any, key: str = "") -> Any:
    """Returns a configuration with each 16-bit policy or dtype replaced by float32.

    Args:
        value: Part of a serialized Keras object.
        key: Nearest dictionary key above it.
    """
    if isinstance(value, Mapping):
        kind = str(value.get("class_name"))
        if kind in _POLICY_CLASSES:
            name = value["config"]["name"]
            return {**value, "config": {"name": "float32" if name in _TO_FLOAT32 else name}}
        if kind.endswith("DTypePolicy"):
            raise TwinError(f"a model with quantized layers ({kind}) has no float32 twin")
        return {k: _promoted(v, k) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_promoted(item, key) for item in value)
    if isinstance(value, str) and value in _TO_FLOAT32 and key.endswith(_DTYPE_KEYS):
        return "float32"
    return value


def _custom_classes(model: Any, keras: Any) -> dict[str, type]:
    """Returns the classes of all layers under both names by which Keras may look them up."""
    classes: dict[str, type] = {}
    for layer in model._flatten_layers():
        kind = type(layer)
        if kind.__module__.partition(".")[0] not in {"keras", "tf_keras"}:
            classes[kind.__name__] = kind
            classes[keras.saving.get_registered_name(kind)] = kind
    return classes


def _require_float32(twin: Any) -> None:
    """Raises TwinError if a layer computes or keeps variables in a 16-bit type."""
    for layer in twin._flatten_layers():
        if _HALF_TYPES & {str(layer.compute_dtype), str(layer.variable_dtype)}:
            raise TwinError(f"layer {layer.name} insists on {layer.compute_dtype}")


def _restore_adapted_state(model: Any, twin: Any, keras: Any) -> None:
    """Restores what ``adapt`` has learned and neither configuration nor weights carry over."""
    for layer, other in zip(model._flatten_layers(), twin._flatten_layers(), strict=True):
        if isinstance(other, keras.layers.Normalization):
            # It computes with constants that it derives from its weights only when told to.
            other.finalize_state()
        elif hasattr(layer, "get_vocabulary"):
            vocabulary = layer.get_vocabulary()
            if vocabulary != other.get_vocabulary():
                other.set_vocabulary(vocabulary)
