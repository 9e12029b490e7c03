"""Makes ``docs/conformance.md`` of the results of the suite.

``python -m tests.conformance.table [--results DIR] [-o FILE]``

Every case must have a result of one and the same code; ``--any-code`` takes the newest result of
each case instead and says so in the page.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.conformance.case import TARGETS, Case
from tests.conformance.half_only import justification
from tests.conformance.run import CHECKOUT, RESULTS, all_cases, code_digest, stored, versions

PAGE = CHECKOUT / "docs" / "conformance.md"
Row = dict[str, Any]

_TITLES = {
    "savedmodel": "SavedModel",
    "tflite": "TFLite",
    "tflite-float16": "TFLite float16",
    "onnx": "ONNX",
    "onnx-float16": "ONNX float16",
}
_BARE = [
    ("TFLiteConverter", "tflite", False),
    ("tf2onnx", "onnx", False),
    ("TFLiteConverter on float32", "tflite", True),
    ("tf2onnx on float32", "onnx", True),
]


def state(case: Case, target: str, cell: Row) -> str:
    """A cell in a word: ``ok``, ``refused``, ``wrong``, or an exit code nobody wants there."""
    if cell["code"] == 0:
        agrees = cell["twin"] and cell["twin"]["agrees"]
        return "ok" if agrees and target not in case.refused else "wrong"
    if cell["code"] == 5:
        return "refused"
    return f"exit {cell['code']}"


def _both(states: Iterable[str]) -> str:
    """One word where all policies agree."""
    states = list(states)
    texts = [s if s in ("ok", "refused") else f"**{s}**" for s in states]
    return texts[0] if len(set(states)) == 1 else " / ".join(texts)


def _cells(case: Case, row: Row) -> list[str]:
    cells = [
        _both(state(case, t, p["targets"][t]) for p in row["policies"].values()) for t in TARGETS
    ]
    first = next(iter(row["policies"].values()))
    cells += [_bare(row, first, tool, twin) for _, tool, twin in _BARE]
    old = [o for p in row["policies"].values() for o in p["old_runtime"].values()]
    cells.append("" if not old else "ok" if all(not o["problem"] for o in old) else "fails")
    return cells


def _bare(row: Row, first: Row, tool: str, twin: bool) -> str:
    """What a bare tool did; empty where it wasn't asked."""
    answers = row["bare_float32"] if twin else first.get("bare", {})
    return answers.get(tool, "").partition(":")[0]


def _counts(cases: dict[str, Case], rows: list[Row]) -> list[str]:
    """The share of good cells per policy and target, and what the others are."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in rows:
        for policy, result in row["policies"].items():
            for target, cell in result["targets"].items():
                counts[policy, target][state(cases[row["case"]], target, cell)] += 1
    lines = ["| policy | target | models | ok | refused (5) | failed (7) | other code | wrong |",
             "|---|---|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    for (policy, target), found in counts.items():
        total, ok = found.total(), found["ok"]
        other = total - ok - found["refused"] - found["exit 7"] - found["wrong"]
        lines.append(
            f"| {policy} | {_TITLES[target]} | {total} | {ok} ({ok / total:.1%}) "
            f"| {found['refused']} | {found['exit 7']} | {other} | {found['wrong']} |"
        )
    return lines


def _bare_counts(rows: list[Row]) -> list[str]:
    lines = [
        "| bare tool | models | ok | fails | does not run | wrong |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for title, tool, twin in _BARE:
        answers = [_bare(r, next(iter(r["policies"].values())), tool, twin) for r in rows]
        found = Counter(a for a in answers if a)
        words = " | ".join(str(found[w]) for w in ("ok", "fails", "does not run", "wrong"))
        lines.append(f"| {title} | {found.total()} | {words} |")
    return lines


def _grouped(entries: Iterable[tuple[str, str]]) -> list[str]:
    """Reason → the models it holds for, as a list."""
    groups: dict[str, list[str]] = defaultdict(list)
    for reason, name in entries:
        if name not in groups[reason]:
            groups[reason].append(name)
    return [f"- {reason}: {', '.join(names)}" for reason, names in sorted(groups.items())]


def _not_ok(cases: dict[str, Case], rows: list[Row], wanted: Callable[[str], bool]) -> list[str]:
    entries = []
    for row in rows:
        case = cases[row["case"]]
        for policy, result in row["policies"].items():
            for target, cell in result["targets"].items():
                if wanted(state(case, target, cell)):
                    where = _TITLES[target] if wanted("refused") else f"{policy}, {_TITLES[target]}"
                    reason = case.refused.get(target) or cell["problem"] or cell["message"]
                    entries.append((f"{_plain(reason)} ({where})", f"`{case.name}`"))
    return _grouped(entries) or ["None."]


def _plain(text: str) -> str:
    """One line that can stand in a list: without the path of the layer, which differs by model."""
    line = text.splitlines()[0]
    return line.partition(" at call/")[0].replace("|", "\\|").replace("<", "&lt;")


def _ops_beyond(rows: list[Row]) -> list[str]:
    entries = []
    for row in rows:
        for policy, result in row["policies"].items():
            for target, cell in result["targets"].items():
                if more := cell.get("ops_beyond_twin"):
                    text = ", ".join(f"{op} {n:+d}" for op, n in more.items())
                    reason = justification(row["case"], target, more) or "**unexplained**"
                    entries.append((f"{reason}: {text} ({policy}, {_TITLES[target]})",
                                    f"`{row['case']}`"))  # fmt: skip
    return _grouped(entries) or ["None."]


def _old_runtime(rows: list[Row]) -> list[str]:
    files = right = 0
    entries = []
    for row in rows:
        for result in row["policies"].values():
            for target, old in result["old_runtime"].items():
                files += 1
                foretold = old["predicted"]
                right += old["runs"] == (not foretold)
                if old["problem"] or foretold:
                    said = f"predicted: {'; '.join(foretold)}" if foretold else "not predicted"
                    text = f"{_plain(old['problem'] or 'runs')} ({said}, {_TITLES[target]})"
                    entries.append((text, f"`{row['case']}`"))
    return [
        f"{files} files were run there, and {right} did what `mpexport inspect` predicts. Those "
        "that fail or should:",
        "",
        *(_grouped(entries) or ["- none"]),
    ]


def render(cases: dict[str, Case], rows: list[Row], heading: list[str]) -> str:
    """The page.

    Args:
        cases: Name → case.
        rows: One result per case, in order.
        heading: Lines that say what the results were made with.
    """
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["case"].partition("/")[0]].append(row)
    titles = [*_TITLES.values(), *(title for title, _, _ in _BARE), "tflite-runtime 2.14"]
    page = [*heading, "", "## Totals", "", *_counts(cases, rows), "", *_bare_counts(rows)]
    page += ["", "## Refused", "", *_not_ok(cases, rows, lambda s: s == "refused")]
    page += ["", "## Faults", ""]
    page += _not_ok(cases, rows, lambda s: s not in ("ok", "refused"))
    page += ["", "## Ops beyond those of the float32 twin's file", "", *_ops_beyond(rows)]
    page += ["", "## On tflite-runtime 2.14", "", *_old_runtime(rows)]
    for group, members in groups.items():
        page += ["", f"## {group}", "", f"| model | {' | '.join(titles)} |"]
        page += ["|---|" + "---|" * len(titles)]
        for row in members:
            name = row["case"].partition("/")[2]
            page.append(f"| {name} | {' | '.join(_cells(cases[row['case']], row))} |")
    return "\n".join(page) + "\n"


_ABOUT = """\
# Conformance

Every model is built twice by Keras or TensorFlow, under a 16-bit policy and as its float32 *twin*
with the same weights, by a process that knows nothing of mpexport. Each target is exported,
verified as always, and then run by the plain runtime at batch 1 and 3 and compared with the twin:
`|c - t| <= 2e-5 (|t| + max|t|)`, plus, measured in the twin itself, what the 16-bit rounding of
literals does there, and for float16 files the rounding of weights.

**ok**: written, its contract holds, it runs, it agrees with its reference and with the twin.
**refused**: exit code 5, since no faithful file can be made; nothing is written. A fault is in
bold: **exit 7** (made, but contract or numbers failed; nothing is written), any other code, and
**wrong** (written, though the twin disagrees). Where the two policies differ, mixed_float16 stands
before mixed_bfloat16. Beside them are the bare tools in the same run, on the mixed_float16 model
and on its float32 twin; for them `ok` is a thousand times wider, since they compute in half.

`make conformance` runs it all; `python -m tests.conformance.table` makes this page.
"""


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance.table", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--any-code", action="store_true", help="also results of older code")
    parser.add_argument("-o", "--output", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    cases = {case.name: case for _, case in all_cases()}
    codes = {case.name: code_digest(module) for module, case in all_cases()}
    found = {
        r["case"]: r
        for r in stored(options.results)
        if r["case"] in cases and (options.any_code or r["code"] == codes[r["case"]])
    }
    left_out = [name for name, case in cases.items() if case.deep and name not in found]
    cases = {name: case for name, case in cases.items() if name not in left_out}
    missing = sorted(set(cases) - set(found))
    if missing:
        sys.exit(f"{len(missing)} cases have no result of this code, the first is {missing[0]}")
    broken = [f"{name}: {r['error']}" for name, r in found.items() if "error" in r]
    if broken:
        sys.exit("cases that could not be built:\n" + "\n".join(broken))
    rows = [found[name] for name in sorted(cases)]
    minutes = sum(r["seconds"] for r in rows) / 60
    made = ", ".join(f"{name} {version}" for name, version in versions().items())
    heading = [
        _ABOUT,
        f"Made with {made}. {len(rows)} models; each alone would take {minutes:.0f} minutes one "
        "after the other.",
    ]
    if left_out:
        heading.append(
            f"Not run, since each only has more of the same blocks as a net below: "
            f"{', '.join(sorted(name.partition('/')[2] for name in left_out))}."
        )
    if stale := [r["case"] for r in rows if r["code"] != codes[r["case"]]]:
        heading.append(f"Results of older code: {', '.join(stale)}.")
    options.output.parent.mkdir(exist_ok=True)
    options.output.write_text(render(cases, rows, heading))
    print(json.dumps({"models": len(rows), "page": str(options.output)}))


if __name__ == "__main__":
    main()
