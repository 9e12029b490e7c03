"""Keras 3 files → a temporary SavedModel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
from keras.src.backend import Variable
from keras.src.backend.tensorflow.layer import TFLayer
from keras.src.export.export_utils import get_input_signature

from mpexport import dtypes
from mpexport.errors import ConversionError
from mpexport.sources import SourceOptions
from mpexport.tf import concrete


def export_keras3(options: SourceOptions, directory: Path) -> None:
    """Loads a ``.keras`` or ``.h5`` file with Keras 3 and exports it for inference.

    Args:
        options: The source; custom classes are registered already.
        directory: Where to write the SavedModel.
    """
    if options.allow_code:
        keras.config.enable_unsafe_deserialization()
    with _replaced(Variable, "_initialize_with_initializer", _initialize_in_float32):
        model = keras.saving.load_model(
            options.path, compile=False, safe_mode=not options.allow_code
        )
    if not isinstance(model, keras.Model):
        raise ConversionError(f"{options.path}: holds a {type(model).__name__}, not a model")
    export_model(model, directory)


def export_model(model: keras.Model, directory: Path) -> None:
    """Exports a Keras 3 model in memory for inference."""
    if not model.built:
        raise ConversionError(
            f"model {model.name!r} was never built, so its input shapes are unknown",
            hint="call it once on data, or give it an Input, before saving",
        )

    def serve(*args: Any) -> Any:
        # `Model.export` leaves `training` open: layers that augment images then go on doing it,
        # since they call that their default.
        return _flat(model(*args, training=False))

    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serve", serve, _input_signature(model))
    # TensorFlow saves whatever functions it finds as attributes, and finds the default signature of
    # each Keras model: it would trace the model once more, with `training` open.
    with _replaced(TFLayer, "_default_save_signature", None):
        archive.write_out(str(directory), verbose=False)


@contextlib.contextmanager
def _replaced(owner: type, name: str, value: Any) -> Iterator[None]:
    """Puts something else in the place of a class's attribute."""
    kept = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)


_initialize = Variable._initialize_with_initializer


def _initialize_in_float32(variable: Any, initializer: Any) -> None:
    """Keras' own, but for 16-bit weights the initializer runs in float32.

    Loading builds each layer before its weights are read, and some initializers need ops that
    TensorFlow lacks in 16 bits: the orthogonal one, of recurrent layers, a QR decomposition.
    """

    def widely(shape: Any, dtype: Any = None) -> Any:
        return keras.ops.cast(initializer(shape, dtype="float32"), dtype)

    is_half = dtypes.is_16_bit_float(str(variable.dtype))
    _initialize(variable, widely if is_half else initializer)


def _flat(outputs: Any) -> Any:
    """Outputs in outputs, which no signature can have, one after the other; else as they are."""
    values = outputs.values() if isinstance(outputs, dict) else outputs
    if isinstance(outputs, (dict, list, tuple)) and any(
        isinstance(v, (dict, list, tuple)) for v in values
    ):
        return concrete.named_outputs(outputs)
    return outputs


def _input_signature(model: keras.Model) -> Any:
    """The model's inputs with an open batch, but for layers that keep state for a fixed one."""
    signature = get_input_signature(model)
    if not any(getattr(layer, "stateful", False) for layer in model._flatten_layers()):
        return signature
    fixed = [
        keras.InputSpec(dtype=spec.dtype, shape=tensor.shape, name=spec.name)
        for spec, tensor in zip(keras.tree.flatten(signature), keras.tree.flatten(model.inputs))
    ]
    return keras.tree.pack_sequence_as(signature, fixed)
