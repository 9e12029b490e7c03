"""Runs the conformance suite: every case, every policy, every target, beside the bare tools.

``python -m tests.conformance.run [PATTERN ...] [--fast] [--deep] [--shard 1/4] [--jobs 2]``

Results are lines of JSON in ``conformance/results``; a case that has a line made by the same code
isn't run again, so that a run that was interrupted goes on where it stopped, and shards of
different machines need only be put into one folder. ``python -m tests.conformance.table`` makes
the table of them.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import functools
import hashlib
import importlib
import json
import pkgutil
import queue
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.conformance.case import Case
from tests.conformance.children import Children
from tests.conformance.targets import run_policy, run_twin

CHECKOUT = Path(__file__).parents[2]
RESULTS = CHECKOUT / "conformance" / "results"
PACKAGES = (
    "tensorflow", "keras", "tf-keras", "keras-hub", "tf2onnx", "onnx", "onnxruntime",
    "ai-edge-litert",
)  # fmt: skip
Planned = tuple[str, Case]


def all_cases() -> list[Planned]:
    """Module and case, in a stable order."""
    package = importlib.import_module("tests.conformance.cases")
    found = []
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(info.name)
        found += [(info.name, case) for case in getattr(module, "CASES", [])]
    names = [case.name for _, case in found]
    assert len(set(names)) == len(names), (
        f"named twice: {sorted({n for n in names if names.count(n) > 1})}"
    )
    return sorted(found, key=lambda planned: planned[1].name)


def select(
    cases: list[Planned],
    patterns: list[str],
    fast: bool,
    shard: tuple[int, int] = (1, 1),
    *,
    deep: bool = False,
) -> list[Planned]:
    """The cases that are asked for; deep ones only by name, unless all are wanted."""
    wanted = [
        (module, case)
        for module, case in cases
        if (not fast or case.fast)
        and (
            any(fnmatch.fnmatch(case.name, p) for p in patterns)
            if patterns
            else deep or not case.deep
        )
    ]
    return wanted[shard[0] - 1 :: shard[1]]


def versions() -> dict[str, str]:
    """Of the packages that take part."""
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@functools.cache
def code_digest(module: str) -> str:
    """Of everything that the results of the cases of one module depend on."""
    digest = hashlib.sha256(json.dumps(versions()).encode())
    for folder in ("mpexport", "tests/conformance", "sample_models"):
        for path in sorted((CHECKOUT / folder).rglob("*.py")):
            other = path.parent.name == "cases" and path.stem != module.rpartition(".")[2]
            if path.name == "table.py" or path.name.startswith("test_"):
                continue
            if not other or path.name.startswith("_"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def run_case(module: str, case: Case, children: Children) -> dict[str, Any]:
    """One case under all its policies."""
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="conformance-"))
    row: dict[str, Any] = {"case": case.name, "policies": {}}
    try:
        built = children.builder(case.keras).call(
            "build",
            module=module,
            name=case.name,
            folder=str(folder / "built"),
            policies=list(case.policies),
        )
        if "error" in built:
            return {**row, "error": built["error"]}
        row["evidence"], row["bare_float32"] = built["evidence"], built["bare_float32"]
        twins: dict[str, Any] = {}
        for policy, facts in built["policies"].items():
            if facts["twin"] not in twins:
                twins[facts["twin"]] = run_twin(
                    case, facts["twin"], folder / f"twin_files-{policy}", children
                )
            row["policies"][policy] = run_policy(
                case, policy, facts, twins[facts["twin"]], folder, children
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    row["seconds"] = round(time.monotonic() - started, 1)
    return row


def stored(results: Path) -> Iterator[dict[str, Any]]:
    """All lines of all result files."""
    for path in sorted(results.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            yield json.loads(line)


def run(planned: list[Planned], results: Path, jobs: int) -> list[dict[str, Any]]:
    """Runs what has no result yet; returns the results of all that was planned."""
    codes = {case.name: code_digest(module) for module, case in planned}
    results.mkdir(parents=True, exist_ok=True)
    done = {r["case"]: r for r in stored(results) if r["code"] == codes.get(r["case"])}
    waiting: queue.SimpleQueue[Planned] = queue.SimpleQueue()
    for item in planned:
        if item[1].name not in done:
            waiting.put(item)
    total, lock = waiting.qsize(), threading.Lock()
    failures: list[BaseException] = []

    def work() -> None:
        with Children() as children:
            while not failures:
                try:
                    module, case = waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    row = {**run_case(module, case, children), "code": codes[case.name]}
                except BaseException as e:
                    failures.append(e)
                    return
                with lock:
                    done[case.name] = row
                    with (results / f"{codes[case.name]}.jsonl").open("a") as f:
                        f.write(json.dumps(row) + "\n")
                    left = total - waiting.qsize()
                    print(f"[{left}/{total}] {summary(row)}", file=sys.stderr, flush=True)

    threads = [threading.Thread(target=work) for _ in range(min(jobs, max(total, 1)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [done[case.name] for _, case in planned]


def summary(row: dict[str, Any]) -> str:
    """One line about one case."""
    if "error" in row:
        return f"{row['case']}: NOT BUILT: {row['error']}"
    parts = []
    for policy, cells in row["policies"].items():
        bad = [
            f"{target}={cell['code']}:{cell['problem'][:90]}"
            for target, cell in cells["targets"].items()
            if cell["problem"]
        ]
        parts.append(f"{policy} {'ok' if not bad else '; '.join(bad)}")
    return f"{row['case']} ({row['seconds']:.0f} s): {' | '.join(parts)}"


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.run", description=__doc__)
    parser.add_argument("patterns", nargs="*", help="names of cases, with * and ?; default: all")
    parser.add_argument("--fast", action="store_true", help="the part that make test runs")
    parser.add_argument("--deep", action="store_true", help="also the larger sizes of large nets")
    parser.add_argument("--shard", default="1/1", help="which part of how many, for example 2/4")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    part, parts = map(int, options.shard.split("/"))
    planned = select(all_cases(), options.patterns, options.fast, (part, parts), deep=options.deep)
    started = time.monotonic()
    run(planned, options.results, options.jobs)
    print(f"{len(planned)} cases, {(time.monotonic() - started) / 60:.1f} min", file=sys.stderr)


if __name__ == "__main__":
    main()
