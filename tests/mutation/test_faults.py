"""A fault changes what it says, and nothing else; and the gate finds what matters."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.mutation.faults import KINDS
from tests.mutation.net import open_net, to_half
from tests.mutation.run import UNTOUCHED, Bench, given, judge, make
from tests.mutation.subjects import SUBJECTS
from tests.mutation.table import is_detected, is_effective

pytestmark = [pytest.mark.tf, pytest.mark.ort, pytest.mark.litert]
SUBJECT = next(s for s in SUBJECTS if s.fast)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    with Bench(tmp_path_factory.mktemp("mutation")) as made:
        yield made


@pytest.fixture(scope="module", params=["tflite", "onnx"])
def good(bench, request):
    folder, _ = bench.prepare(SUBJECT)
    return bench.export(folder / "model.keras", request.param, request.param)


def _constants(path):
    net = open_net(path)
    return {p.name: net.get(p.name) for p in net.parameters()}


def _mutated(good, kind, tmp_path):
    net = open_net(good)
    assert KINDS[kind](net, np.random.default_rng(0)) is not None
    path = tmp_path / good.name
    net.save(path)
    return path


def test_one_weight_is_off_and_no_other(good, tmp_path):
    before = _constants(good)
    after = _constants(_mutated(good, "one weight 10% off", tmp_path))
    (changed,) = [k for k, v in before.items() if not np.array_equal(v, after[k])]
    places = before[changed] != after[changed]
    assert places.sum() == 1
    np.testing.assert_array_equal(
        after[changed][places], (before[changed][places] * np.float32(1.1)).astype(np.float32)
    )


def test_one_bias_is_dropped(good, tmp_path):
    before = _constants(good)
    after = _constants(_mutated(good, "bias dropped", tmp_path))
    (changed,) = [k for k, v in before.items() if not np.array_equal(v, after[k])]
    assert before[changed].any()
    assert not after[changed].any()


def test_a_replaced_activation_changes_one_op_and_no_constant(good, tmp_path):
    net, spots = open_net(good), open_net(good).activations()
    path = _mutated(good, "activation replaced", tmp_path)
    before, after = _constants(good), _constants(path)
    assert all(np.array_equal(v, after[k]) for k, v in before.items())
    assert len(spots) > 0
    assert len(open_net(path).edges()) == len(net.edges())


def test_swapped_outputs_keep_their_names(good, tmp_path):
    pairs = open_net(good).twins("outputs")
    assert pairs
    assert open_net(_mutated(good, "outputs swapped", tmp_path)).twins("outputs") == pairs


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rounding_to_half_is_that_of_tensorflow(dtype):
    import tensorflow as tf

    values = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    expected = tf.cast(tf.cast(values, dtype), tf.float32).numpy()
    np.testing.assert_array_equal(to_half(values, dtype), expected)


def test_the_gate_finds_the_faults_of_one_model(bench):
    folder, _ = bench.prepare(SUBJECT)
    made = make(bench, SUBJECT, folder)
    # Each that does not run takes a comparison of its own: seconds.
    runs = [m for m in made if "error" not in bench.effect(folder, m[1])]
    judge(bench, SUBJECT, runs, {"data": given(folder)})
    rows = [row for row, _ in runs]
    clean = [r for r in rows if r["kind"] == UNTOUCHED]
    assert [r["data"][:4] for r in clean] == ["PASS", "PASS"]
    assert not any(is_effective(r) for r in clean)
    # Up to twice the noise seen in its own data, the gate lets pass by design.
    plain = [r for r in rows if any(e > 3 * r["noise"][k] for k, e in r["effect"].items())]
    assert len(plain) >= 16
    missed = [r for r in plain if not is_detected(r, "data")]
    assert not missed, json.dumps(missed, indent=1)
