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
    with _initialized_in_float32():
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
    with _no_default_signature():
        archive.write_out(str(directory), verbose=False)


@contextlib.contextmanager
def _initialized_in_float32() -> Iterator[None]:
    """Runs the initializers of 16-bit weights in float32.

    Loading builds each layer before its weights are read, and some initializers need ops that
    TensorFlow lacks in 16 bits: the orthogonal one, of recurrent layers, a QR decomposition.
    """
    kept = Variable._initialize_with_initializer

    def initialize(variable: Any, initializer: Any) -> None:
        if dtypes.is_16_bit_float(str(variable.dtype)):

            def widely(shape: Any, dtype: Any = None) -> Any:
                return keras.ops.cast(initializer(shape, dtype="float32"), dtype)

            kept(variable, widely)
        else:
            kept(variable, initializer)

    Variable._initialize_with_initializer = initialize
    try:
        yield
    finally:
        Variable._initialize_with_initializer = kept


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


@contextlib.contextmanager
def _no_default_signature() -> Iterator[None]:
    """Keeps saving from tracing the model once more, with ``training`` open.

    TensorFlow saves whatever functions it finds as attributes, and finds the default signature of
    each Keras model, which the archive's own takes the place of.
    """
    kept = TFLayer._default_save_signature
    TFLayer._default_save_signature = None
    try:
        yield
    finally:
        TFLayer._default_save_signature = kept
