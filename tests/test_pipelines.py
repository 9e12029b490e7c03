"""docs/pipelines.md: its YAML parses, its commands exist, its Python compiles."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from mpexport.cli.app import build_app

TEXT = (Path(__file__).parents[1] / "docs" / "pipelines.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
YAML = [yaml.safe_load(body) for kind, body in BLOCKS if kind == "yaml"]


def scripts(value: Any) -> Iterator[str]:
    """Every shell script of a pipeline."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in ("run", "script"):
                yield from [inner] if isinstance(inner, str) else inner
            else:
                yield from scripts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from scripts(inner)


def commands() -> list[list[str]]:
    """The words of every call of mpexport, without redirections."""
    found = []
    for script in scripts(YAML):
        for line in script.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["mpexport"]:
                found.append(words[1 : words.index(">") if ">" in words else None])
    return found


def test_everything_is_found():
    assert len(YAML) == 4
    assert [words[0] for words in commands()] == ["parity", "export", "parity", "report"]


@pytest.mark.parametrize("words", commands(), ids=lambda words: words[0])
def test_commands_parse(words):
    """With the parser of the command line: an option that isn't there is an error."""
    words = [word.replace("${files[@]}", "a.tflite") for word in words]
    assert not [word for word in words if word.startswith("$") and word[1:] not in VARIABLES]
    command, bound, _ = build_app().parse_args(words)
    assert command.__name__ == words[0]
    assert bound.arguments
    with pytest.raises(Exception, match="no-such-option"):
        build_app().parse_args([*words, "--no-such-option"])


VARIABLES = set(YAML[0]["runs"]["steps"][0]["env"])


def test_options_in_the_text_exist():
    named = set(re.findall(r"`(--[a-z-]+)", TEXT))
    assert {"--json", "--junit", "--markdown", "--html", "--github"} <= named
    app = build_app()
    known = {
        name
        for parameter in app["parity"].assemble_argument_collection()
        for name in parameter.names
    }
    assert named <= known


@pytest.mark.parametrize("script", scripts(YAML))
def test_scripts_are_shell(script):
    checked = subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    # An expression of GitHub inside of a script would let a file name run as one.
    assert "${{" not in script


def test_action_is_complete():
    action, workflow, gitlab, later = YAML
    assert action["runs"]["using"] == "composite"
    compare, *rest = action["runs"]["steps"]
    assert all(step.get("shell") or step.get("uses") for step in action["runs"]["steps"])
    assert all(step["if"] == "always()" for step in rest)
    assert "if" not in compare
    used = set(re.findall(r"inputs\.(\w+)", str(compare["env"])))
    assert used == set(action["inputs"])
    given = workflow["jobs"]["parity"]["steps"][-1]["with"]
    required = {name for name, value in action["inputs"].items() if value.get("required")}
    assert required <= set(given) <= set(action["inputs"])
    job = gitlab["parity"]
    assert job["allow_failure"] == {"exit_codes": 9}
    assert job["artifacts"]["when"] == "always"
    assert job["artifacts"]["reports"]["junit"] in " ".join(job["script"])
    assert later["summary"]["needs"] == ["parity"]


def test_exit_codes_are_those_of_the_errors():
    from mpexport.errors import InconclusiveError, VerificationError, WorkerError

    rows = dict(re.findall(r"^\| (\d+) \| (\w+) \|", TEXT, re.MULTILINE))
    assert rows == {
        "0": "PASS",
        str(VerificationError.exit_code): "FAIL",
        str(InconclusiveError.exit_code): "INCONCLUSIVE",
        str(WorkerError.exit_code): "ERROR",
    }


@pytest.mark.parametrize("source", [body for kind, body in BLOCKS if kind == "python"])
def test_python_parses_and_names_what_there_is(source):
    import mpexport

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "mpexport":
            assert node.attr in mpexport.__all__
