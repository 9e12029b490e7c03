"""The jobs a worker can do. State (the loaded model, open runtimes) lives as long as the worker."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional

from mpexport.errors import MpExportError

if TYPE_CHECKING:
    from mpexport.tf.normalized import NormalizedModel

Job = Callable[..., "dict[str, Any]"]


class Session:
    """What one worker holds.

    Args:
        progress: Says what is being done, for a person who waits.
    """

    def __init__(self, progress: Callable[[str], None]) -> None:
        self.progress = progress
        self.model: Optional[NormalizedModel] = None
        # References made of the model, and the file that ran last, for calls with more cases.
        self.references: dict[tuple[str, str], Any] = {}
        self.opened: Optional[tuple[Any, Any]] = None
        self.elements: Any = None

    def close(self) -> None:
        """Lets go of everything."""
        self.model = None
        self.references = {}
        self.close_file()

    def close_file(self) -> None:
        """Closes the file that ran last."""
        if self.opened is not None:
            self.opened[1].close()
            self.opened = None

    def run(self, job: str, args: dict[str, Any]) -> dict[str, Any]:
        """Does one job by name."""
        function = JOBS.get(job)
        if function is None:
            raise MpExportError(f"the worker knows no job {job!r}")
        return function(self, **args)


def _reset(session: Session) -> dict[str, Any]:
    """Lets go of the model, for a worker that will be given another one."""
    session.close()
    return {}


def _open(session: Session, source: dict[str, Any], io_dtype: str, cwd: str) -> dict[str, Any]:
    """Loads and normalizes a source; later jobs work on it."""
    from mpexport.sources import SourceOptions

    options = SourceOptions.from_json(source)
    session.progress(f"loading {options.path}")
    if options.imports:
        os.chdir(cwd)
        sys.path.insert(0, cwd)
    from mpexport.tf.describe import describe
    from mpexport.tf.load import load
    from mpexport.tf.normalized import normalize

    session.close()
    loaded = load(options, Path(os.environ["TMPDIR"]))
    session.progress("normalizing")
    session.model = normalize(loaded, io_dtype)
    return describe(session.model)


def _opened(session: Session) -> NormalizedModel:
    if session.model is None:
        raise MpExportError("no model is open in this worker")
    return session.model


def _check(session: Session) -> dict[str, Any]:
    from mpexport.tf.check import check

    return check(_opened(session)).to_json()


def _convert(
    session: Session, format: str, options: dict[str, Any], path: str, is_last_use: bool
) -> dict[str, Any]:
    """Writes one format and reads the file back against its contract."""
    from mpexport import formats

    spec = formats.get(format)
    chosen = spec.options(**options)
    _opened(session).is_last_use = is_last_use
    session.progress(f"converting to {format}")
    conversion = spec.convert(_opened(session), Path(path), chosen)
    session.progress(f"checking {format}")
    contract = spec.check(Path(path), conversion, chosen)
    return {"conversion": conversion.to_json(), "contract": contract.to_json()}


def _reference(
    session: Session, key: str, cases: list[str], kinds: list[str], output: str, keep: bool = False
) -> dict[str, Any]:
    """Runs the trained model and the references on stored cases.

    Args:
        session: The worker's state.
        key: Signature key.
        cases: Directories of input arrays.
        kinds: Of ``trained``, ``reference``, ``single``, ``rounded`` and ``clamped``, ``reference``
            before ``single``, which is left out where it would be the same.
        output: Results go to ``output/KIND/INDEX``.
        keep: Whether more cases will follow; the references, with their own copies of the weights,
            then stay.
    """
    from mpexport.tensors import load_npy_dir, save_npy_dir
    from mpexport.tf import reference, weights
    from mpexport.tf.dependence import constant_outputs

    model = _opened(session)
    names = [s.name for s in model.program.entries[key].inputs]
    answer: dict[str, Any] = {"constant_outputs": constant_outputs(model.program, key)}
    state = reference.State(model, key)
    for kind in kinds:
        if kind == "single" and answer["reference_dtype"] == "float32":
            continue
        session.progress(f"running the {kind} model")
        state.restore()
        function = None
        if kind != "trained":
            made = session.references.get((key, kind))
            if made is None:
                made = reference.make_reference(
                    model, key, round_weights=kind == "rounded", single=kind == "single"
                )
            if keep:
                session.references[key, kind] = made
            function, answer[f"{kind}_dtype"] = made.function, made.dtype
        damages = weights.float16_damage(model, key) if kind == "clamped" else []
        with weights.clamped(model, key, damages):
            for i, case in enumerate(cases):
                inputs = load_npy_dir(Path(case))
                if function is None:
                    outputs, reason = reference.run_trained(model, key, inputs)
                    if outputs is None:
                        answer["trained_unavailable"] = reason
                        break
                else:
                    outputs = reference.run(function, names, inputs)
                save_npy_dir(outputs, Path(output) / kind / str(i))
    state.restore()
    return answer


def _runtime(format: str, name: Optional[str]) -> Any:
    from mpexport import runtimes

    return runtimes.get(name) if name else runtimes.for_format(format)


def _inspect(
    session: Session, format: str, runtime: Optional[str], path: str, options: dict[str, Any]
) -> dict[str, Any]:
    """Opens an exported file: its signature and what runs it."""
    from mpexport.runtimes import RuntimeOptions

    opened = _runtime(format, runtime).open(Path(path), RuntimeOptions(**options))
    try:
        return {"environment": opened.environment(), "signature": opened.signature.to_json()}
    finally:
        opened.close()


def _run(
    session: Session,
    format: str,
    runtime: Optional[str],
    path: str,
    options: dict[str, Any],
    cases: list[str],
    output: str,
) -> dict[str, Any]:
    """Runs an exported file on stored cases; results go to ``output/INDEX``."""
    from mpexport.runtimes import RuntimeOptions, run_in_chunks
    from mpexport.tensors import load_npy_dir, save_npy_dir

    spec = _runtime(format, runtime)
    session.progress(f"running {os.path.basename(path)} in {spec.name}")
    wanted = (spec.name, path, options)
    if session.opened is None or session.opened[0] != wanted:
        session.close_file()
        session.opened = (wanted, spec.open(Path(path), RuntimeOptions(**options)))
    opened = session.opened[1]
    for i, case in enumerate(cases):
        outputs = run_in_chunks(opened, load_npy_dir(Path(case)))
        save_npy_dir(outputs, Path(output) / str(i))
    return {"environment": opened.environment(), "signature": opened.signature.to_json()}


def _emulate(
    session: Session, path: str, cases: list[str], output: str, scratch: str
) -> dict[str, Any]:
    """Runs the float32 twins of a float16 ONNX file; results go to ``output/KIND/INDEX``."""
    from mpexport import optional
    from mpexport.runtimes import RuntimeOptions
    from mpexport.tensors import TensorSet, load_npy_dir, save_npy_dir

    optional.require("onnx", "onnx")
    from mpexport.tf.onnx_precision.emulate import emulate

    def run(twin: Path, inputs: list[TensorSet]) -> list[TensorSet]:
        opened = _runtime("onnx", "onnxruntime").open(twin, RuntimeOptions())
        try:
            return [dict(opened.run(case)) for case in inputs]
        finally:
            opened.close()

    session.progress(f"emulating the rounding of {os.path.basename(path)}")
    Path(scratch).mkdir(exist_ok=True)
    loaded = [load_npy_dir(Path(case)) for case in cases]
    found = emulate(Path(path), loaded, Path(scratch), run)
    for kind, runs in (("widened", found.widened), ("rounded", found.rounded)):
        for i, outputs in enumerate(runs):
            save_npy_dir(outputs, Path(output) / kind / str(i))
    return {}


def _dataset(
    session: Session, path: str, inputs: list[str], output: str, size_bytes: int
) -> dict[str, Any]:
    """Reads on in a saved dataset, about ``size_bytes``; elements go to ``output/INDEX``."""
    from mpexport.tensors import save_npy_dir
    from mpexport.tf import dataset

    if session.elements is None:
        session.progress(f"reading {path}")
        session.elements = dataset.elements(path, inputs)
    count = size = 0
    for element in session.elements:
        save_npy_dir(element, Path(output) / str(count))
        count, size = count + 1, size + sum(array.nbytes for array in element.values())
        if size >= size_bytes:
            break
    return {"count": count}


def _measure(
    session: Session,
    format: str,
    runtime: Optional[str],
    path: str,
    options: dict[str, Any],
    case: str,
    timing: dict[str, Any],
) -> dict[str, Any]:
    """Times an exported file on one stored case."""
    from mpexport.latency.measure import measure_file

    spec = _runtime(format, runtime)
    session.progress(f"timing {os.path.basename(path)} in {spec.name}")
    return measure_file(spec.name, Path(path), options, Path(case), timing).to_json()


JOBS: dict[str, Job] = {
    "reset": _reset,
    "open": _open,
    "check": _check,
    "convert": _convert,
    "reference": _reference,
    "run": _run,
    "emulate": _emulate,
    "dataset": _dataset,
    "inspect": _inspect,
    "measure": _measure,
}
