"""Keras 2 files, through tf-keras → a temporary SavedModel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from mpexport.optional import require
from mpexport.sources import SourceOptions


def export_keras2(options: SourceOptions, directory: Path) -> None:
    """Loads a ``.h5`` or ``.keras`` file with tf-keras and exports it for inference.

    Args:
        options: The source; custom classes are registered already.
        directory: Where to write the SavedModel.
    """
    tf_keras = require("tf_keras", "tensorflow")
    model = tf_keras.models.load_model(
        options.path, compile=False, safe_mode=not options.allow_code
    )
    export_model(model, directory)


def export_model(model: Any, directory: Path) -> None:
    """Exports a tf-keras model in memory for inference, with the names of its layers.

    ``model.save`` would trace every layer and the training step too.
    """
    inputs = getattr(model, "inputs", None)
    if not inputs or not getattr(model, "output_names", None):
        model.save(str(directory), save_format="tf", include_optimizer=False)
        return
    specs = [
        tf.TensorSpec(t.shape, t.dtype, name=name) for t, name in zip(inputs, model.input_names)
    ]

    def serve(*args: Any) -> dict[str, Any]:
        given = dict(zip(model.input_names, args)) if isinstance(model.input, dict) else list(args)
        outputs = tf.nest.flatten(model(given if len(inputs) > 1 else args[0], training=False))
        return dict(zip(model.output_names, outputs))

    concrete = tf.function(serve, autograph=False).get_concrete_function(*specs)
    holder = tf.Module()
    # The state of a layer's own random numbers is none of the model's variables.
    holder.model_variables = [*model.variables, *concrete.variables]
    holder.tables = [
        child
        for child in tf.train.TrackableView(model).descendants()
        if hasattr(child, "resource_handle") and not isinstance(child, tf.Variable)
    ]
    tf.saved_model.save(holder, str(directory), signatures={"serving_default": concrete})
