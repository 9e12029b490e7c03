"""Load a source of any kind into one form: a restored SavedModel with named signatures.

Keras files are loaded by the generation of Keras that wrote them and exported to a temporary
SavedModel first, so that everything behind this module sees one kind of source.
"""

from __future__ import annotations

import importlib
import json
import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from mpexport.errors import ConversionError, InputError, MpExportError, UnsafeModelError, UsageError
from mpexport.plugins import did_you_mean
from mpexport.precision import LayerPolicy
from mpexport.safety import refuse_unsafe, scan_config
from mpexport.sources import SourceOptions, sniff
from mpexport.tf import concrete
from mpexport.tf.host_ops import refuse_on_load
from mpexport.tf.partial import load_paths, needed_paths
from mpexport.tf.policy import config_policies, saved_model_policies

_log = logging.getLogger("mpexport")


@dataclass
class LoadedModel:
    """A source, restored.

    Attributes:
        options: How it was asked for.
        model: The restored object; keeps variables and tables alive.
        signatures: Signature key → ConcreteFunction; all of them.
        chosen: Key of the signature that formats with a single signature use; None when the user
            has to choose.
        directory: The SavedModel the object was restored from.
        tags: Tag set of its MetaGraph.
        policies: dtype policies of the layers, where the source has them.
    """

    options: SourceOptions
    model: Any
    signatures: dict[str, Any]
    chosen: str | None
    directory: str
    tags: list[str]
    policies: list[LayerPolicy] = field(default_factory=list)

    @property
    def is_endpoint(self) -> bool:
        """Whether the signature was made of an endpoint; the file itself has none of that name."""
        return not set(self.signatures) <= set(self.model.signatures)

    def distinct(self) -> list[str]:
        """One key for each different function; `chosen` stands for its group."""
        keys = sorted(self.signatures, key=lambda k: (k != self.chosen, k))
        return list({concrete.identity(self.signatures[k]): k for k in reversed(keys)}.values())

    def choose(self) -> str:
        """The one signature to use.

        Raises:
            UsageError: There are several and none was named.
        """
        if self.chosen is None:
            names = ", ".join(sorted(self.signatures))
            raise UsageError(
                f"{self.options.path}: has several signatures: {names}",
                hint="choose one: --signature NAME",
                where=self.options.path,
            )
        return self.chosen


def first_line(error: BaseException) -> str:
    """The first non-empty line of an exception's text, at most 200 characters."""
    for line in str(error).splitlines():
        if line.strip():
            return line.strip()[:200]
    return type(error).__name__


def load(options: SourceOptions, scratch: Path) -> LoadedModel:
    """Loads a source.

    Args:
        options: What to load.
        scratch: A directory for the temporary SavedModel of a Keras file.

    Raises:
        InputError: Missing or damaged.
        UnsafeModelError: It would run its author's code.
        UsageError: The signature or tag isn't there, or has to be chosen.
        ConversionError: Keras cannot export it.
    """
    kind = sniff(options.path)
    imported = _import_modules(options)
    if kind.name == "savedmodel":
        return _load_saved_model(options, options.path, saved_model_policies(Path(options.path)))
    if kind.name == "h5":
        config, legacy = _h5_config(options)
    else:
        config, legacy = kind.config, kind.is_legacy_keras
    if not options.allow_code:
        generation = "tf_keras" if legacy else "keras"
        known = _registered(generation) if imported else frozenset()
        refuse_unsafe(options.path, list(scan_config(config)), known)
    directory = scratch / "source_savedmodel"
    if legacy:
        from mpexport.tf.keras2 import export_keras2 as export
    else:
        from mpexport.tf.keras3 import export_keras3 as export
    try:
        export(replace(options, path=_with_suffix(options.path, kind.name, scratch)), directory)
    except MpExportError:
        raise
    except Exception as e:
        raise _keras_failure(options, e, legacy) from e
    return _load_saved_model(options, str(directory), config_policies(config))


def _with_suffix(path: str, kind: str, scratch: Path) -> str:
    """A path whose suffix says what the file is: Keras goes by the suffix, we by the content."""
    suffixes = {"keras": (".keras",), "h5": (".h5", ".hdf5")}[kind]
    if path.endswith(suffixes):
        return path
    link = scratch / f"source{suffixes[0]}"
    link.symlink_to(path)
    return str(link)


def _keras_failure(options: SourceOptions, error: Exception, legacy: bool) -> MpExportError:
    generation = "tf-keras" if legacy else "Keras"
    text = first_line(error)
    unknown = "Unknown layer" in str(error) or "Could not locate" in str(error)
    if unknown or "Unknown object" in str(error) or "Unknown activation" in str(error):
        return UnsafeModelError(
            f"{options.path}: needs a custom class: {text}",
            hint="name the module that registers it: --import my_package.layers",
            where=options.path,
        )
    damaged = (OSError, KeyError, EOFError, ImportError)
    if isinstance(error, damaged) or "file" in text.lower() or "weights" in text.lower():
        return InputError(
            f"{options.path}: {generation} cannot load it: {text}", where=options.path
        )
    return ConversionError(
        f"{options.path}: {generation} cannot load or export it: {text}",
        hint="where the code that built the model still runs, save a SavedModel with it",
        where=options.path,
    )


def _import_modules(options: SourceOptions) -> bool:
    for name in options.imports:
        try:
            importlib.import_module(name)
        except ImportError as e:
            raise UsageError(
                f"--import {name}: {first_line(e)}",
                hint="the module must be importable from the current directory or be installed",
            ) from e
    return bool(options.imports)


def _registered(generation: str) -> frozenset[str]:
    """Names of the custom classes that the user's modules have registered."""
    keras = importlib.import_module(generation)
    objects = keras.saving.get_custom_objects()
    return frozenset(objects)


def _h5_config(options: SourceOptions) -> tuple[Any, bool]:
    """The model config of an HDF5 file and whether Keras 2 wrote it."""
    import h5py

    try:
        with h5py.File(options.path, "r") as f:
            attributes = dict(f.attrs)
    except OSError as e:
        raise InputError(
            f"{options.path}: the HDF5 file is damaged or cut off ({first_line(e)})",
            hint="copy the file again",
            where=options.path,
        ) from e
    raw = attributes.get("model_config")
    if raw is None:
        raise InputError(
            f"{options.path}: holds weights only, not a model",
            hint="save the whole model: model.save(...), not model.save_weights(...)",
            where=options.path,
        )
    try:
        config = json.loads(raw)
    except (ValueError, RecursionError, TypeError) as e:
        raise InputError(f"{options.path}: its model config is damaged", where=options.path) from e
    version = attributes.get("keras_version", "2")
    version = version.decode() if isinstance(version, bytes) else str(version)
    return config, version.startswith(("1", "2"))


def _meta_graph(path: str, wanted: str | None) -> tuple[list[str], Any]:
    """Tag set and MetaGraphDef to load; chosen by the user when there are several."""
    message = saved_model_pb2.SavedModel()
    file = Path(path) / "saved_model.pb"
    try:
        message.ParseFromString(file.read_bytes())
    except (DecodeError, OSError) as e:
        raise InputError(
            f"{file}: the file is damaged or cut off", hint="copy it again", where=str(file)
        ) from e
    sets = [sorted(m.meta_info_def.tags) for m in message.meta_graphs]
    if not sets:
        raise InputError(f"{file}: the file is damaged: it holds no graph", where=str(file))
    shown = "; ".join(",".join(s) or "(no tag)" for s in sets)
    if wanted is not None:
        tags = sorted(t for t in wanted.split(",") if t)
        if tags not in sets:
            raise UsageError(f"{path}: has no tag set {wanted!r}", hint=f"tag sets: {shown}")
        return tags, message.meta_graphs[sets.index(tags)]
    if len(sets) > 1:
        raise UsageError(
            f"{path}: has several tag sets: {shown}", hint="choose one: --tag TAG", where=path
        )
    return sets[0], message.meta_graphs[0]


def _restore(path: str, tags: list[str], meta_graph: Any) -> Any:
    paths = needed_paths(meta_graph)
    if paths is not None and "root.signatures" in paths:
        try:
            return load_paths(path, tags, paths)
        except ValueError as e:
            # Something restored needs something left out: then take it all.
            _log.warning("partial loading failed, loading everything: %s", first_line(e))
    return tf.saved_model.load(path, tags=tags)


def _load_saved_model(
    options: SourceOptions, path: str, policies: list[LayerPolicy]
) -> LoadedModel:
    tags, meta_graph = _meta_graph(path, options.tag if path == options.path else None)
    refuse_on_load(options.path, meta_graph, options.allow_code)
    try:
        model = _restore(path, tags, meta_graph)
    except Exception as e:
        # Damage shows as anything from IndexError to tf.errors.OpError.
        raise InputError(
            f"{options.path}: the SavedModel is damaged or incomplete ({first_line(e)})",
            hint="copy it again",
            where=options.path,
        ) from e
    signatures = dict(model.signatures)
    if not signatures or (options.signature and options.signature not in signatures):
        signatures = _from_endpoint(options, model, signatures)
    chosen = options.signature or _only_one(signatures)
    return LoadedModel(options, model, signatures, chosen, path, tags, policies)


def reload(source: LoadedModel) -> LoadedModel:
    """Restores a source once more, after its weights were let go."""
    return _load_saved_model(source.options, source.directory, source.policies)


def _from_endpoint(
    options: SourceOptions, model: Any, signatures: dict[str, Any]
) -> dict[str, Any]:
    endpoints = {
        name: function.concrete_functions
        for name in dir(model)
        if not name.startswith("_") or name == "__call__"
        if (function := getattr(model, name, None)) is not None
        and getattr(function, "concrete_functions", None)
    }
    named = ", ".join(sorted(endpoints)) or "none"
    if options.signature is None:
        raise UsageError(
            f"{options.path}: has no signatures; its endpoints are: {named}",
            hint="choose one: --signature NAME"
            if endpoints
            else "nothing in it was traced: save it again after a call, or from a tf.function with "
            "an input_signature",
            where=options.path,
        )
    if options.signature not in endpoints:
        known = sorted({*signatures, *endpoints})
        raise UsageError(
            f"{options.path}: has no signature {options.signature!r}",
            hint=did_you_mean(options.signature, known),
            where=options.path,
        )
    functions = endpoints[options.signature]
    if len(functions) > 1:
        raise UsageError(
            f"{options.path}: endpoint {options.signature!r} was traced {len(functions)} times",
            hint="save the model with one signature: tf.saved_model.save(m, path, signatures=...)",
        )
    return {options.signature: concrete.with_names(functions[0])}


def _only_one(signatures: dict[str, Any]) -> str | None:
    """The signature when there is one, or when all of them are the same function."""
    if len(signatures) == 1:
        return next(iter(signatures))
    if len({concrete.identity(f) for f in signatures.values()}) == 1:
        # Keras 3 exports each model under two keys: there is nothing to choose.
        return "serving_default" if "serving_default" in signatures else min(signatures)
    return None
