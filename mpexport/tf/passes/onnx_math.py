"""Write elementwise functions that ONNX lacks in those it has.

Given::

    y = Expm1(x)

Result::

    y = PartitionedCall{f}(x)          f(x) = Tanh(x / 2) * (Exp(x) + 1)

Fires on float32 only; bounds given in the functions are for float32 arguments. An Erfc that is the
exact GELU's becomes 1 - Erf, as every reader of an ONNX file expects a GELU to look.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf

from mpexport.findings import Change
from mpexport.tf.graph import Program, tensor_node
from mpexport.tf.lowering import Site, contains, lower, simple
from mpexport.tf.passes.lower_math import digamma, erfc, lgamma, polynomial
from mpexport.tf.pipeline import GraphPass, PassContext

# 2 atanh(s) = 2 s (1 + s²/3 + s⁴/5 …); with |s| <= 1/7 what is left out is below 1e-9.
_ATANH = [2 / (2 * n + 1) for n in range(5)]


def _inverse_erf(x: float) -> float:
    """Erfinv by Newton's method in float64; ``x`` is 1 - erfc there, so tails keep their digits."""
    y = 0.0
    for _ in range(60):
        slope = 2 / math.sqrt(math.pi) * math.exp(-y * y)
        y -= (math.erf(y) - x) / slope
    return y


def _inverse_erfc(t: float) -> float:
    """Erfcinv for small ``t``: Newton's method on log(erfc), which is close to a parabola."""
    y = math.sqrt(-math.log(t))
    for _ in range(60):
        value = math.erfc(y)
        slope = -2 / math.sqrt(math.pi) * math.exp(-y * y) / value
        y -= (math.log(value) - math.log(t)) / slope
    return y


def _chebyshev(low: float, high: float, function: Any, degree: int) -> list[float]:
    nodes = np.cos(np.pi * (np.arange(200) + 0.5) / 200)
    places = (low + high) / 2 + (high - low) / 2 * nodes
    values = [function(p) for p in places]
    fit = np.polynomial.Chebyshev.fit(places, values, degree, domain=[low, high])
    return [float(c) for c in fit.convert(kind=np.polynomial.Polynomial).coef]


# erfinv(x) = x P(w) with w = -log(1 - x²). In the middle P is smooth in w, outside in sqrt(w); both
# are taken about the middle of their stretch, and their largest relative error is below 1e-7.
_SPLIT = 5.0
_MIDDLE, _OUTER = _SPLIT / 2, 5.5


def _factor(w: float) -> float:
    x = math.sqrt(-math.expm1(-w)) if w else 0.0
    return _inverse_erf(x) / x if x else math.sqrt(math.pi) / 2


def _tail(root: float) -> float:
    w = root * root
    # 1 - x, from (1 - x)(1 + x) = exp(-w), without cancellation
    rest = math.exp(-w)
    x = math.sqrt(1 - rest)
    return _inverse_erfc(rest / (1 + x)) / x


_INNER = _chebyshev(-_MIDDLE, _MIDDLE, lambda u: _factor(u + _MIDDLE), 10)
_FAR = _chebyshev(math.sqrt(_SPLIT) - _OUTER, 9.4 - _OUTER, lambda u: _tail(u + _OUTER), 16)


def _erfinv_of(x: Any, w: Any) -> Any:
    inner = polynomial(tf.minimum(w, _SPLIT) - _MIDDLE, _INNER)
    root = tf.sqrt(tf.clip_by_value(w, _SPLIT, 9.4**2))
    value = x * tf.where(w < _SPLIT, inner, polynomial(root - _OUTER, _FAR))
    # w is infinite at the ends, and no number outside.
    return tf.where(w < 1e30, value, x * w)


def _erfinv(x: Any) -> Any:
    return _erfinv_of(x, -tf.math.log((1.0 - x) * (1.0 + x)))


def _ndtri(p: Any) -> Any:
    """The normal quantile: sqrt(2) erfinv(2p - 1), whose w is -log(4 p (1 - p))."""
    w = -(tf.math.log(p) + tf.math.log(1.0 - p) + math.log(4.0))
    return math.sqrt(2.0) * _erfinv_of(2.0 * p - 1.0, w)


def _expm1(x: Any) -> Any:
    return tf.tanh(0.5 * x) * (tf.exp(x) + 1.0)


def _log1p(x: Any) -> Any:
    s = x / (2.0 + x)
    return tf.where(tf.abs(x) < 0.25, s * polynomial(s * s, _ATANH), tf.math.log(1.0 + x))


def _unless_zero(x: Any, value: Any) -> Any:
    return tf.where(tf.equal(x, 0.0), tf.zeros_like(value), value)


def _approximately(site: Site) -> Any:
    tolerance = site.attr("tolerance")
    return lambda x, y: tf.abs(x - y) < tolerance


def _source(site: Site, ref: str) -> str:
    """The tensor that a chain of negations and products with constants starts from."""
    while True:
        node = site.producers.get(tensor_node(ref))
        if node is None or node.op not in ("Neg", "Mul", "RealDiv", "Identity"):
            return ref
        varying = []
        for r in node.input:
            producer = site.producers.get(tensor_node(r))
            if not r.startswith("^") and (producer is None or producer.op != "Const"):
                varying.append(r)
        if len(varying) != 1:
            return ref
        ref = varying[0]


def _erfc(site: Site) -> Any:
    own = f"{site.node.name}:y:0"
    start = _source(site, site.inputs[0])
    readers = [n for n in site.fdef.node_def if own in n.input]
    factors = [r for n in readers for r in n.input if n.op == "Mul" and r != own]
    scaled = factors and all(_source(site, r) == start for r in factors)
    if scaled and len(factors) == len(readers) and own not in site.fdef.ret.values():
        return lambda x: 1.0 - tf.math.erf(x)
    return erfc


_TABLE = {
    "ApproximateEqual": _approximately,
    "Digamma": simple(digamma),
    "Erfc": _erfc,
    "Erfinv": simple(_erfinv),
    "Expm1": simple(_expm1),
    "L2Loss": simple(lambda x: 0.5 * tf.reduce_sum(x * x)),
    "Lgamma": simple(lgamma),
    "Log1p": simple(_log1p),
    "MulNoNan": simple(lambda x, y: _unless_zero(y, x * y)),
    "Ndtri": simple(_ndtri),
    "Xdivy": simple(lambda x, y: _unless_zero(x, x / y)),
    "Xlog1py": simple(lambda x, y: _unless_zero(x, x * _log1p(y))),
    "Xlogy": simple(lambda x, y: _unless_zero(x, x * tf.math.log(y))),
}


def _apply(program: Program, context: PassContext) -> list[Change]:
    return lower(program, PASS.name, _TABLE)


PASS = GraphPass(name="onnx_math", stage="format", apply=_apply, is_needed=contains(_TABLE))
