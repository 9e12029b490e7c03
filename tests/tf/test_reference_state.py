"""A model that keeps state: every run begins where the saved model begins."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from mpexport.tensors import load_npy_dir, save_npy_dir
from mpexport.worker.jobs import Session
from tests.tf.support import normalized

pytestmark = pytest.mark.tf


def test_runs_do_not_go_on_from_each_other(tmp_path):
    module = tf.Module()
    module.total = tf.Variable([1.0, 2.0])

    @tf.function(input_signature=[tf.TensorSpec([None, 2], name="x")])
    def call(x):
        seen = tf.reduce_sum(tf.cast(x, tf.float16), 0)
        return {"y": module.total.assign_add(tf.cast(seen, tf.float32))}

    module.call = call
    tf.saved_model.save(module, str(tmp_path / "m"), signatures=call)
    session = Session(lambda text: None)
    session.model = normalized(tmp_path / "m")
    cases = []
    for i in range(2):
        save_npy_dir({"x": np.full((1, 2), i + 1, np.float32)}, tmp_path / str(i))
        cases.append(str(tmp_path / str(i)))
    key = session.model.source.choose()
    for attempt in ("first", "second"):
        output = tmp_path / attempt
        session.run(
            "reference",
            {"key": key, "cases": cases, "kinds": ["trained", "reference"], "output": str(output)},
        )
        for kind in ("trained", "reference"):
            found = [load_npy_dir(output / kind / str(i))["y"].tolist() for i in range(2)]
            assert found == [[2, 3], [4, 5]], (attempt, kind)
    assert module.total.numpy().tolist() == [1, 2]
