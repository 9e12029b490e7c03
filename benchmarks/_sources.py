"""Child: ``python _sources.py MODEL FOLDER``: one sample model, mixed and in float32.

Writes the SavedModels ``FOLDER/mixed`` and ``FOLDER/float32``, which have the same weights.
"""

from __future__ import annotations

import sys
from pathlib import Path

import keras

from sample_models.twin import build_twin_pair


def main(name: str, folder: Path) -> None:
    """Builds and exports both."""
    mixed, single = build_twin_pair(name, keras, "mixed_float16")
    mixed.export(folder / "mixed", verbose=False)
    single.export(folder / "float32", verbose=False)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
