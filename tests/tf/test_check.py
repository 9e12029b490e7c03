"""The precision report: counts, the roles of Casts, literals, and one finding per rule."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from mpexport.findings import Severity
from mpexport.precision import CastSite, PrecisionReport
from mpexport.tf.check import CheckContext, all_rules, check
from mpexport.tf.policy import config_policies
from tests.tf.support import normalized, saved, spec, traced

pytestmark = pytest.mark.tf

HALF, BF16, FLOAT = tf.float16, tf.bfloat16, tf.float32


def report(tmp_path, function, *specs, **variables) -> PrecisionReport:
    """Checks the SavedModel of ``function(variables, *inputs)``."""

    class Model(tf.Module):
        @tf.function(input_signature=list(specs))
        def serve(self, *inputs):
            return function(self, *inputs)

    module = Model()
    for name, variable in variables.items():
        setattr(module, name, variable)
    path = saved(module, tmp_path / "m", {"serving_default": module.serve})
    return check(normalized(path))


def roles(result: PrecisionReport) -> list[tuple[str, str, str]]:
    return sorted((c.role, c.src_dtype, c.dst_dtype) for c in result.casts)


def rules(result: PrecisionReport) -> list[str]:
    return sorted(f.rule for f in result.findings)


def test_counts_by_element_type(tmp_path):
    def serve(m, x):
        h = tf.nn.relu(tf.cast(x, HALF) @ tf.cast(m.w, HALF)) + m.h
        return {"y": tf.cast(h, FLOAT) * 2, "n": tf.size(x)}

    result = report(
        tmp_path, serve, spec("x", [None, 3]),
        w=tf.Variable(tf.ones([3, 3])), h=tf.Variable(tf.ones([3], HALF)),
        unused=tf.Variable(tf.ones([100])),
    )  # fmt: skip
    counts = {c.dtype: (c.ops, c.variables, c.variable_bytes) for c in result.counts}
    assert {k: v[1:] for k, v in counts.items()} == {"float16": (1, 6), "float32": (1, 36)}
    assert counts["float16"][0] == 3  # MatMul, Relu, AddV2
    assert counts["float32"][0] == 1 + _calls(result)  # Mul
    assert result.counts[0].dtype == "float16"
    assert result.is_16_bit
    assert not result.has_errors
    assert PrecisionReport.from_json(result.to_json()) == result


def _calls(result: PrecisionReport) -> int:
    """The signature's wrapper calls the function: one op whose first floating output is float32."""
    return len(result.signatures)


def test_the_roles_of_casts(tmp_path):
    def serve(m, x, i):
        h = tf.cast(x, HALF) @ tf.cast(m.w, HALF)
        h += tf.cast(i, HALF)[:, None]
        h *= tf.cast(tf.constant([1.0, 2, 3]), HALF)
        back = tf.cast(h, FLOAT)
        return {"y": tf.cast(tf.sin(back), HALF), "g": tf.cast(tf.gather(m.w, i), HALF), "z": back}

    result = report(
        tmp_path, serve, spec("x", [None, 3]), spec("i", [None], tf.int32),
        w=tf.Variable(tf.ones([3, 3])),
    )  # fmt: skip
    assert roles(result) == [
        ("constant", "float32", "float16"),
        ("input", "float32", "float16"),
        ("integer", "int32", "float16"),
        ("output", "float16", "float32"),  # read inside too, and an output all the same
        ("output", "float32", "float16"),
        ("weight", "float32", "float16"),
        ("weight", "float32", "float16"),
    ]


def test_roles_through_calls_branches_and_reshapes(tmp_path):
    @tf.function
    def inner(x, w):
        return tf.cast(x, HALF) @ tf.cast(tf.reshape(w, [3, 3]), HALF)

    def serve(m, x):
        k = tf.cast(x[0, 0], tf.int32)
        branches = [lambda: tf.cast(x, HALF), lambda: tf.cast(x, HALF) @ tf.cast(m.w, HALF)]
        picked = tf.cond(k > 0, branches[0], branches[1]) + tf.switch_case(k, branches)
        return {"y": tf.cast(tf.identity(inner(x, m.w) + picked), FLOAT)}

    result = report(tmp_path, serve, spec("x", [None, 3]), w=tf.Variable(tf.eye(3)))
    found = roles(result)
    # Two in each of cond and switch_case, one in the function.
    assert found.count(("input", "float32", "float16")) == 5
    assert found.count(("weight", "float32", "float16")) == 3
    assert found.count(("output", "float16", "float32")) == 1
    assert len(found) == 9


def test_literals_are_what_the_trace_holds(tmp_path):
    def serve(m, x):
        return {"y": tf.cast(x, HALF) * 0.1 + tf.cast(tf.constant([1.0, 2.0], BF16), HALF)}

    result = report(tmp_path, serve, spec("x", [2]))
    assert sorted((x.dtype, x.value) for x in result.literals) == [
        ("bfloat16", "1 … (2 values)"),
        ("float16", "0.0999756"),
    ]


def test_a_clean_model_has_no_findings(tmp_path):
    result = report(tmp_path, lambda m, x: {"y": tf.nn.softmax(x * 2)}, spec("x", [2]))
    assert result.findings == result.casts == result.literals == ()
    assert not result.is_16_bit


# --- one seeded defect per rule -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [HALF, BF16])
@pytest.mark.parametrize("op", [tf.nn.softmax, tf.nn.log_softmax])
def test_half_head(tmp_path, dtype, op):
    def serve(m, x):
        return {"y": tf.cast(op(tf.cast(x, dtype)), FLOAT), "z": op(x)}

    (finding,) = report(tmp_path, serve, spec("x", [2, 2])).findings
    assert (finding.rule, finding.severity) == ("half-head", Severity.WARNING)
    assert finding.message.endswith(f"is computed in {dtype.name}")
    assert finding.where.startswith("__inference_serve")


def test_half_boundary(tmp_path):
    def serve(m, x, y):
        return {"p": x * 2, "q": y, "r": tf.cast(y, BF16)}

    result = report(tmp_path, serve, spec("x", [2], HALF), spec("y", [2]))
    assert [(f.rule, f.where, f.message) for f in result.findings] == [
        ("half-boundary", "serving_default/x", "input x is float16"),
        ("half-boundary", "serving_default/p", "output p is float16"),
        ("half-boundary", "serving_default/r", "output r is bfloat16"),
    ]


def test_infinite_constant(tmp_path):
    def serve(m, x):
        big = tf.constant(np.full((500, 500), -np.inf, np.float16))
        masks = tf.reduce_max(big), tf.constant([1.0, np.inf], BF16), tf.constant(65504, HALF)
        fine = tf.constant([np.inf])  # float32: the author meant it
        return {"y": sum(tf.reduce_sum(tf.cast(mask, FLOAT)) for mask in masks) + x + fine}

    result = report(tmp_path, serve, spec("x", [1]))
    assert rules(result) == ["infinite-constant", "infinite-constant"]


@pytest.mark.parametrize(
    ("value", "bad"),
    [
        (np.float32([1, np.nan, np.inf]), 2),
        (np.float16([np.inf, -np.inf]), 2),  # their sum is NaN
        (np.array([1, np.nan], ml_dtypes.bfloat16), 1),
        (np.float64([np.inf, 1]), 1),
        (np.float32([3.4e38, 3.4e38]), 0),  # overflows in float32 only
        (np.float64([1.7e308, 1.7e308]), 0),  # even in float64
        (np.int32([1]), 0),
        (np.float32([]), 0),
    ],
)
def test_nonfinite_weight(tmp_path, value, bad):
    def serve(m, x):
        return {"y": x + tf.cast(tf.reduce_sum(m.w), FLOAT)}

    result = report(tmp_path, serve, spec("x", []), w=tf.Variable(value, name="kernel"))
    found = [f for f in result.findings if f.rule == "nonfinite-weight"]
    assert len(found) == (bad > 0)
    assert result.has_errors == (bad > 0)
    if bad:
        assert found[0].severity is Severity.ERROR
        assert found[0].where.startswith("kernel")
        assert f"holds {bad} values" in found[0].message


def layer(kind, name, dtype, **config):
    policy = {"class_name": "DTypePolicy", "config": {"name": dtype}}
    return {"class_name": kind, "config": {"name": name, "dtype": policy, **config}}


def test_hidden_policy():
    bidirectional = layer(
        "Bidirectional",
        "both",
        "float32",
        layer=layer("LSTM", "forward", "mixed_float16"),
        backward_layer=layer("LSTM", "backward", "float32"),
    )
    inner = {
        "class_name": "Sequential",
        "config": {"name": "inner", "layers": [layer("Dense", "d", "mixed_bfloat16")]},
    }
    distributed = layer("TimeDistributed", "time", "float32", layer=inner)
    plain = layer("Dense", "plain", "mixed_float16")
    config = {
        "class_name": "Functional",
        "config": {"name": "m", "layers": [bidirectional, distributed, plain, inner]},
    }
    policies = config_policies(config)
    assert [p.layer for p in policies] == [
        "m/both",
        "m/both/forward",
        "m/both/backward",
        "m/time",
        "m/time/inner/d",
        "m/plain",
        "m/inner/d",
    ]
    assert policies[1].compute_dtype == "float16"
    assert policies[1].variable_dtype == "float32"
    context = CheckContext(traced(lambda x: {"y": x}, spec("x", [1])), None, policies)
    findings = all_rules()["hidden-policy"].check(context)
    assert [(f.where, f.severity) for f in findings] == [
        ("m/both", Severity.INFO),
        ("m/time", Severity.INFO),
    ]
    assert "m/both/forward" in findings[0].message
    assert "m/both/backward" not in findings[0].message


@pytest.mark.parametrize(
    ("dtype", "rows", "found"),
    [(HALF, 2049, 0), (HALF, 3000, 1), (tf.bfloat16, 257, 0), (tf.bfloat16, 300, 1)],
)
def test_ids_that_are_rounded(tmp_path, dtype, rows, found):
    table = tf.Variable(tf.zeros((rows, 2)))

    def serve(m, x):
        ids = tf.reshape(tf.cast(x, dtype), (-1,))
        return {"y": tf.gather(m.table, tf.cast(ids, tf.int32))}

    result = report(tmp_path, serve, spec("x", [None, 4]), table=table)
    assert [f.rule for f in result.findings if f.rule == "rounded-ids"] == ["rounded-ids"] * found


def test_ids_of_integers_are_not_rounded(tmp_path):
    table = tf.Variable(tf.zeros((3000, 2)))

    def serve(m, x):
        return {"y": tf.cast(tf.gather(m.table, x), HALF)}

    result = report(tmp_path, serve, spec("x", [None], tf.int32), table=table)
    assert not [f for f in result.findings if f.rule == "rounded-ids"]


def test_infinite_constant_that_a_model_holds(tmp_path):
    result = report(
        tmp_path,
        lambda m, x: {"y": tf.cast(tf.cast(x, HALF) / m.held, tf.float32)},
        spec("x", [2]),
        held=tf.constant([np.inf, 1.0], HALF),
    )
    assert [f.rule for f in result.findings if f.rule == "infinite-constant"]


def test_every_rule_has_a_seeded_defect():
    assert sorted(all_rules()) == [
        "half-boundary",
        "half-head",
        "hidden-policy",
        "infinite-constant",
        "nonfinite-weight",
        "rounded-ids",
    ]


def test_cast_sites_say_where(tmp_path):
    result = report(tmp_path, lambda m, x: {"y": tf.cast(x, HALF)}, spec("x", [1]))
    (site,) = result.casts
    assert isinstance(site, CastSite)
    assert site.where.startswith("__inference_serve")
    assert site.where.endswith("/Cast")
