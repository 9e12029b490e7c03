"""The twins are a witness only as long as they share nothing with the product."""

from __future__ import annotations

import ast
from pathlib import Path

import sample_models


def test_sample_models_import_nothing_of_mpexport() -> None:
    files = sorted(Path(sample_models.__file__).parent.glob("*.py"))
    files = [p for p in files if p.name != "demo.py"]  # it shows what mpexport does
    assert len(files) >= 5
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                imported = [node.module or ""]
            assert not [name for name in imported if name.split(".")[0] == "mpexport"], path
