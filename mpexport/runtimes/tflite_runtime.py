"""tflite-runtime 2.14, the last of its name: what older devices run.

It needs numpy < 2, has no file verifier (a cut file can kill the process), and cannot be used in a
process that has imported TensorFlow 2.21 (``ValueError: vector::reserve``).
"""

from __future__ import annotations

import numpy as np

from mpexport import optional
from mpexport.errors import MissingDependencyError
from mpexport.runtimes import RuntimeSpec, _tflite_interpreter

_MODULE = "tflite_runtime.interpreter"
_EXTRA = "tflite-runtime"


def _probe() -> None:
    optional.require_installed(("tflite_runtime",), _EXTRA)
    # The interpreter would fail too, but only after numpy has printed a page of warnings.
    if int(np.__version__.partition(".")[0]) >= 2:
        raise MissingDependencyError(
            f"tflite_runtime is installed but needs numpy < 2; this is numpy {np.__version__}",
            hint=f"install 'mpexport[{_EXTRA}]' in an environment of its own",
            where="tflite_runtime",
            details={"extra": _EXTRA},
        )
    _tflite_interpreter.probe(_MODULE, _EXTRA)


SPEC = RuntimeSpec(
    name="tflite_runtime",
    formats=("tflite",),
    priority=20,
    modules=("tflite_runtime",),
    extra=_EXTRA,
    probe=_probe,
    open=_tflite_interpreter.opener("tflite_runtime", _MODULE, _EXTRA, _probe),
    settings=_tflite_interpreter.SETTINGS,
)
