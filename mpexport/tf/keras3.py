"""Keras 3 files → a temporary SavedModel."""

from __future__ import annotations

from pathlib import Path

import keras

from mpexport.errors import ConversionError
from mpexport.sources import SourceOptions


def export_keras3(options: SourceOptions, directory: Path) -> None:
    """Loads a ``.keras`` or ``.h5`` file with Keras 3 and exports it for inference.

    Args:
        options: The source; custom classes are registered already.
        directory: Where to write the SavedModel.
    """
    if options.allow_code:
        keras.config.enable_unsafe_deserialization()
    model = keras.saving.load_model(options.path, compile=False, safe_mode=not options.allow_code)
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
    model.export(str(directory), format="tf_saved_model", verbose=False)
