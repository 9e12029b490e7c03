"""``python _bare_tflite.py SAVED_MODEL FILE``: what one would write without mpexport."""

import sys
from pathlib import Path

import tensorflow as tf

converter = tf.lite.TFLiteConverter.from_saved_model(sys.argv[1])
Path(sys.argv[2]).write_bytes(converter.convert())
