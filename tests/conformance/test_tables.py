"""The tables of the suite against what Keras exports: nothing is forgotten, nothing made up."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conformance.cases import activations, applications, layers
from tests.conformance.run import all_cases

# In a child, as Keras may be imported with another backend or generation in this process.
_EXPORTED = """
import importlib, inspect, json, sys
module = importlib.import_module(sys.argv[1])
wanted = getattr(inspect, sys.argv[2])
found = {}
for name, value in vars(module).items():
    if not name.startswith("_") and wanted(value):
        found.setdefault(id(value), []).append(name)
print(json.dumps(list(found.values())))
"""


def exported(module: str, kind: str) -> list[list[str]]:
    """Public classes or functions of a module, each with all its names."""
    done = subprocess.run(
        [sys.executable, "-c", _EXPORTED, module, kind],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.tf
@pytest.mark.parametrize(
    ("group", "module", "kind", "absent"),
    [
        ("layers", "keras.layers", "isclass", layers.ABSENT),
        ("activations", "keras.activations", "isfunction", activations.ABSENT),
        ("applications", "keras.applications", "isfunction", applications.ABSENT),
    ],
)
def test_everything_public_has_a_row_or_a_reason(group, module, kind, absent):
    rows = {
        case.name.partition("/")[2].partition("-")[0]
        for _, case in all_cases()
        if case.name.startswith(f"{group}/")
    }
    public = exported(module, kind)
    known = {name for names in public for name in names}
    assert len(public) > 20
    forgotten = [names for names in public if not (rows | set(absent)) & set(names)]
    assert not forgotten, f"no row and no reason: {forgotten}"
    assert not rows - known, f"rows for what {module} hasn't: {sorted(rows - known)}"
    both = [names for names in public if rows & set(names) and set(absent) & set(names)]
    assert not both, f"a row and a reason: {both}"


def test_reasons_are_given_and_names_are_in_groups():
    for reasons in (layers.ABSENT, activations.ABSENT, applications.ABSENT):
        assert all(isinstance(reason, str) and len(reason) > 10 for reason in reasons.values())
    for module, case in all_cases():
        assert case.name.count("/") == 1, f"{module}: {case.name}"
