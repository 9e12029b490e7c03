"""Makes faults in exported files and sees whether the parity gate finds them.

``python -m tests.mutation.run [PATTERN…]`` keeps a line per mutant in ``mutation/`` and writes
``docs/mutation.md`` of all of them. A subject that has its lines is not run again.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
import zlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import mpexport
from mpexport.errors import MpExportError
from mpexport.findings import Verdict
from mpexport.parity.cases import InputOptions
from mpexport.results import RunOptions
from mpexport.worker.parent import Worker
from mpexport.worker.pool import WorkerPool
from tests.conformance.children import Child
from tests.mutation.faults import KINDS, RARE_SHARE, rare_nan
from tests.mutation.net import Net, open_net
from tests.mutation.subjects import FLOAT32, SUBJECTS, Subject
from tests.mutation.table import write

CHECKOUT = Path(__file__).parents[2]
WORK = CHECKOUT / "mutation"
NAN, STALE = "NaN for one sample in 1,000", "stale version"
UNTOUCHED = "untouched"
# Candidates of one comparison: each has a process of its own.
_CHUNK = 24
_BATCH = 250
# Seeds of made-up inputs on which the untouched files are compared.
_SEEDS = (0, 1, 2, 3, 4)
Row = dict[str, Any]


@dataclass(frozen=True)
class _Reusing(RunOptions):
    """Takes all workers from the pool: a start costs more than a comparison of a small file."""

    def worker(
        self, purpose: str = "", python: str | None = None
    ) -> AbstractContextManager[Worker]:
        """A worker that may have served other files."""
        return super().worker(purpose or "mutation", python)


class Bench:
    """The processes of one run, and the folder of one subject."""

    def __init__(self, work: Path) -> None:
        self.work = work
        truth = [sys.executable, "-m", "tests.mutation.truth"]
        self.truth = Child(truth, KERAS_BACKEND="tensorflow")
        self._pool = WorkerPool(RunOptions().worker)
        self.run = _Reusing(pool=self._pool)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *exc: object) -> None:
        self.truth.close()
        self._pool.close()

    def prepare(self, subject: Subject) -> tuple[Path, dict[str, float]]:
        """The folder of a subject and the noise of its trained model per output."""
        folder = self.work / subject.name
        stored = folder / "noise.json"
        if not stored.exists():
            answer = self.truth.call(
                "prepare",
                model=subject.model,
                policy=subject.policy,
                module=subject.module,
                folder=str(folder),
            )
            if "error" in answer:
                raise RuntimeError(f"{subject.name}: {answer['error']}\n{self.truth.noise()}")
            stored.write_text(json.dumps(answer))
        noise: dict[str, float] = json.loads(stored.read_text())["noise"]
        return folder, noise

    def export(self, source: Path, target: str, name: str) -> Path:
        """An exported file, made once. It is not proved here: that is what is tested."""
        suffix = ".tflite" if target.startswith("tflite") else ".onnx"
        path = source.parent / f"{name}{suffix}"
        if not path.exists():
            options = RunOptions(pool=self._pool)
            mpexport.convert(source, target, path, verify=False, run=options)
        return path

    def effect(self, folder: Path, path: Path) -> Row:
        """What the truth says about a file."""
        return self.truth.call("effect", folder=str(folder), path=str(path))

    def lowest(self, folder: Path, net: Net, output: str) -> float:
        """See `rare_nan`."""
        path = folder / f"observed{net.path.suffix}"
        net.save(path)
        answer = self.truth.call(
            "lowest", folder=str(folder), path=str(path), output=output, share=RARE_SHARE
        )
        if "error" in answer:
            raise ValueError(answer["error"])
        return float(answer["limit"])

    def verdicts(self, source: Path, files: list[Path], inputs: InputOptions) -> list[str]:
        """The gate's verdict per file, with its cause; an error of its own is one of them."""
        try:
            reports = mpexport.compare(source, files, inputs=inputs, run=self.run)
        except (MpExportError, OSError) as e:
            if len(files) == 1:
                return [f"error: {type(e).__name__}: {str(e).splitlines()[0]}"[:200]]
            half = len(files) // 2
            return [
                v
                for part in (files[:half], files[half:])
                for v in self.verdicts(source, part, inputs)
            ]
        return [_worst(report) for report in reports]


def _worst(report: Any) -> str:
    if report:
        return "PASS: " + "; ".join(sorted({row.cause for row in report.rows}))
    bad = [r for r in report.rows if r.verdict is not Verdict.PASS]
    failed = [r for r in bad if r.verdict is Verdict.FAIL] or bad
    row = failed[0] if failed else None
    return f"{row.verdict.name}: {row.output}: {row.message}" if row else "INCONCLUSIVE"


def make(bench: Bench, subject: Subject, folder: Path) -> list[tuple[Row, Path]]:
    """All mutants of a subject, and its untouched files."""
    made: list[tuple[Row, Path]] = []

    def add(kind: str, target: str, what: str, path: Path) -> None:
        row = {"subject": subject.name, "target": target, "kind": kind, "what": what}
        made.append((row, path))

    for target in subject.targets:
        good = bench.export(folder / "model.keras", target, target)
        add(UNTOUCHED, target, "", good)
        if target in FLOAT32:
            for old in sorted(folder.glob("stale-*.keras")):
                add(STALE, target, old.stem, bench.export(old, target, f"{target}-{old.stem}"))
        for kind in [*KINDS, NAN]:
            seed = zlib.crc32(f"{subject.name} {target} {kind}".encode())
            rng, net = np.random.default_rng(seed), open_net(good)
            if kind == NAN:
                what = rare_nan(net, rng, lambda n, output: bench.lowest(folder, n, output))
            else:
                what = KINDS[kind](net, rng)
            if what is not None:
                path = folder / f"{target}-fault-{len(made)}{good.suffix}"
                net.save(path)
                add(kind, target, what, path)
    return made


def judge(
    bench: Bench, subject: Subject, made: list[tuple[Row, Path]], asked: dict[str, InputOptions]
) -> None:
    """Puts into each row what the truth says, and per kind of inputs what the gate does."""
    folder, noise = bench.prepare(subject)
    for row, path in made:
        row.update(bench.effect(folder, path), noise=noise)
    # What does not run goes alone: it would end the comparison of the others.
    whole = [m for m in made if "error" not in m[0]]
    chunks = [whole[i : i + _CHUNK] for i in range(0, len(whole), _CHUNK)]
    for chunk in [*chunks, *([m] for m in made if "error" in m[0])]:
        for key, inputs in asked.items():
            found = bench.verdicts(folder / "model.keras", [path for _, path in chunk], inputs)
            for (row, _), verdict in zip(chunk, found, strict=True):
                row[key] = verdict


def given(folder: Path) -> InputOptions:
    """The data of a subject."""
    return InputOptions(data=str(folder / "data.npz"), batch=_BATCH)


def run_subject(bench: Bench, subject: Subject) -> list[Row]:
    """Makes the mutants of a subject, measures what they do, and asks the gate."""
    started = time.monotonic()
    folder, _ = bench.prepare(subject)
    made = make(bench, subject, folder)
    _say(subject, f"{len(made)} files made", started)
    judge(bench, subject, made, {"data": given(folder), "made_up": InputOptions()})
    _say(subject, "compared", started)
    untouched = [(row, path) for row, path in made if row["kind"] == UNTOUCHED]
    for seed in _SEEDS:
        files = [path for _, path in untouched]
        found = bench.verdicts(folder / "model.keras", files, InputOptions(seed=seed))
        for (row, _), verdict in zip(untouched, found, strict=True):
            row.setdefault("seeds", []).append(verdict)
    for path in folder.glob("*-fault-*"):
        path.unlink()
    _say(subject, "done", started)
    return [row for row, _ in made]


def _say(subject: Subject, what: str, started: float) -> None:
    text = f"{subject.name}: {what}, {time.monotonic() - started:.0f} s"
    print(text, file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.run", description=__doc__)
    parser.add_argument("patterns", nargs="*", help="names of subjects, with * and ?; default: all")
    parser.add_argument("--work", type=Path, default=WORK)
    options = parser.parse_args(arguments)
    options.work.mkdir(exist_ok=True)
    with Bench(options.work) as bench:
        for subject in SUBJECTS:
            stored = options.work / f"{subject.name}.json"
            wanted = not options.patterns or any(
                fnmatch.fnmatch(subject.name, p) for p in options.patterns
            )
            if wanted and not stored.exists():
                stored.write_text(json.dumps(run_subject(bench, subject), indent=1))
    rows = [
        row
        for subject in SUBJECTS
        if (stored := options.work / f"{subject.name}.json").exists()
        for row in json.loads(stored.read_text())
    ]
    write(rows, CHECKOUT / "docs" / "mutation.md")


if __name__ == "__main__":
    main()
