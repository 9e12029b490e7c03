"""Child: TFLiteConverter without options: ``python bare.py [SAVED_MODEL FILE] ...``."""

from __future__ import annotations

import sys
from pathlib import Path

import tensorflow as tf

if __name__ == "__main__":
    for source, target in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        converter = tf.lite.TFLiteConverter.from_saved_model(source)
        Path(target).write_bytes(converter.convert())
