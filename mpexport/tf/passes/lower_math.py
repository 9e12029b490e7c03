"""Write elementwise functions that TFLite lacks in those it has.

Given::

    y = Asin(x)

Result::

    y = PartitionedCall{f}(x)          f(x) = Atan2(x, Sqrt((1 - x) * (1 + x)))

Fires on float32 only; bounds given in the functions are for float32 arguments.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf

from mpexport.findings import Change
from mpexport.tf.graph import Program
from mpexport.tf.lowering import Site, contains, lower, simple
from mpexport.tf.pipeline import GraphPass, PassContext

_LOG_2 = math.log(2.0)
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


def polynomial(x: Any, coefficients: list[float]) -> Any:
    """Horner's rule; the constant term comes first."""
    y = tf.fill(tf.shape(x), np.float32(coefficients[-1]))
    for c in reversed(coefficients[:-1]):
        y = y * x + np.float32(c)
    return y


def _fit_erfc() -> list[float]:
    """log(erfc(z) / t) + z² as a polynomial in t = 1 / (1 + z/2), for z from 0 to 9.

    A least-squares fit at Chebyshev nodes; its largest error is 2e-8, below float32's rounding.
    """
    nodes = np.cos(np.pi * (np.arange(200) + 0.5) / 200)
    low = 1 / (1 + 9.0 / 2)
    t = (low + 1) / 2 + (1 - low) / 2 * nodes
    z = 2 * (1 / t - 1)
    values = [math.log(math.erfc(a) / b) + a * a for a, b in zip(z, t)]
    fit = np.polynomial.Chebyshev.fit(t, values, 10)
    return [float(c) for c in fit.convert(kind=np.polynomial.Polynomial).coef]


_ERFC = _fit_erfc()
# erf(x) = 2/sqrt(pi) * sum (-1)^n x^(2n+1) / (n! (2n+1)); what is left out is below 2^-24 of erf(x)
# for |x| < 1/2.
_ERF = [2 / math.sqrt(math.pi) * (-1) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(7)]
_SINH = [1 / math.factorial(2 * n + 1) for n in range(5)]  # next term: 1e-11 of x at |x| = 1/2
# B_2n / (2n (2n-1)) and B_2n / 2n of Stirling's series
_LGAMMA = [1 / 12, -1 / 360, 1 / 1260, -1 / 1680]
_DIGAMMA = [1 / 12, -1 / 120, 1 / 252, -1 / 240]
# From this argument on the terms above give float32's last bit.
_STIRLING_FROM = 6


def erfc(x: Any) -> Any:
    """1 - erf, with its digits kept in the tail."""
    z = tf.minimum(tf.abs(x), 9.0)
    t = 1.0 / (1.0 + 0.5 * z)
    tail = t * tf.exp(polynomial(t, _ERFC) - z * z)
    far = tf.where(x < 0, 2.0 - tail, tail)
    return tf.where(z < 0.5, 1.0 - x * polynomial(x * x, _ERF), far)


def _erf(x: Any) -> Any:
    z = tf.minimum(tf.abs(x), 9.0)
    t = 1.0 / (1.0 + 0.5 * z)
    far = 1.0 - t * tf.exp(polynomial(t, _ERFC) - z * z)
    return tf.where(z < 0.5, x * polynomial(x * x, _ERF), tf.where(x < 0, -far, far))


def _sinh(x: Any) -> Any:
    small = x * polynomial(x * x, _SINH)
    return tf.where(tf.abs(x) < 0.5, small, 0.5 * (tf.exp(x) - tf.exp(-x)))


def _asinh(x: Any) -> Any:
    z = tf.abs(x)
    # Squares overflow from 1.8e19 on; log(2z) is exact to float32 long before.
    w = tf.minimum(z, 1e9)
    y = tf.where(z > 1e9, tf.math.log(z) + _LOG_2, tf.math.log(w + tf.sqrt(w * w + 1.0)))
    small = x * (1.0 - x * x * (1.0 / 6 - x * x * (3.0 / 40 - x * x * (15.0 / 336))))
    return tf.where(z < 0.1, small, tf.where(x < 0, -y, y))


def _acosh(x: Any) -> Any:
    w = tf.minimum(x, 1e9)
    near = tf.math.log(w + tf.sqrt(w - 1.0) * tf.sqrt(w + 1.0))
    return tf.where(x > 1e9, tf.math.log(x) + _LOG_2, near)


def _atanh(x: Any) -> Any:
    small = x * (1.0 + x * x * (1.0 / 3 + x * x * (1.0 / 5 + x * x * (1.0 / 7))))
    far = 0.5 * (tf.math.log(1.0 + x) - tf.math.log(1.0 - x))
    return tf.where(tf.abs(x) < 0.1, small, far)


def _sin_pi(x: Any) -> Any:
    """sin(pi x), exact at whole numbers."""
    nearest = tf.round(x)
    value = tf.sin(math.pi * (x - nearest))
    return tf.where(tf.math.floormod(nearest, 2.0) > 0.5, -value, value)


def _cos_pi(x: Any) -> Any:
    nearest = tf.round(x)
    value = tf.cos(math.pi * (x - nearest))
    return tf.where(tf.math.floormod(nearest, 2.0) > 0.5, -value, value)


def lgamma(x: Any) -> Any:
    """Log |gamma| by Stirling's series, reflected below 1/2."""
    # gamma(1 - x) gamma(x) = pi / sin(pi x)
    z = tf.where(x < 0.5, 1.0 - x, x)
    product = tf.ones_like(z)
    low = z < _STIRLING_FROM
    w = tf.where(low, z, tf.ones_like(z))
    for k in range(_STIRLING_FROM):
        product = product * (w + float(k))
    shifted = tf.where(low, z + float(_STIRLING_FROM), z)
    series = polynomial(1.0 / (shifted * shifted), _LGAMMA) / shifted
    value = (shifted - 0.5) * tf.math.log(shifted) - shifted + np.float32(_HALF_LOG_2PI) + series
    value = value - tf.where(low, tf.math.log(product), tf.zeros_like(z))
    reflected = math.log(math.pi) - tf.math.log(tf.abs(_sin_pi(x))) - value
    return tf.where(x < 0.5, reflected, value)


def digamma(x: Any) -> Any:
    """The derivative of `lgamma`."""
    z = tf.where(x < 0.5, 1.0 - x, x)
    low = z < _STIRLING_FROM
    w = tf.where(low, z, tf.ones_like(z))
    total = tf.zeros_like(z)
    for k in range(_STIRLING_FROM):
        total = total + 1.0 / (w + float(k))
    shifted = tf.where(low, z + float(_STIRLING_FROM), z)
    inverse = 1.0 / (shifted * shifted)
    value = tf.math.log(shifted) - 0.5 / shifted - inverse * polynomial(inverse, _DIGAMMA)
    value = value - tf.where(low, total, tf.zeros_like(z))
    reflected = value - math.pi * _cos_pi(x) / _sin_pi(x)
    return tf.where(x < 0.5, reflected, value)


def _truncate_mod(x: Any, y: Any) -> Any:
    rest = tf.math.floormod(tf.abs(x), tf.abs(y))
    return tf.where(x < 0, -rest, rest)


def _div_no_nan(site: Site) -> Any:
    """DivNoNan of more than four axes: the converter spreads a 0 to a shape that it never makes."""
    ranks = [site.shape(i).rank for i in (0, 1)]
    if None in ranks or max(ranks) <= 4:
        return None

    def function(x: Any, y: Any) -> Any:
        # Selecting and comparing spread no more than four axes; adding does.
        x, y = x + tf.zeros_like(y), y + tf.zeros_like(x)
        zero = tf.zeros_like(y)
        return tf.where(tf.equal(y, zero), zero, x / y)

    return function


def _fake_quant(site: Site) -> Any:
    """FakeQuantWithMinMaxArgs as arithmetic: the converter takes it as an order to quantize."""
    low, high = site.attr("min"), site.attr("max")
    first, last = float(site.attr("narrow_range")), float(2 ** site.attr("num_bits") - 1)
    scale = np.float32((high - low) / (last - first))
    zero = float(np.clip(np.round(first - low / scale), first, last))

    def function(x: Any) -> Any:
        bounded = tf.clip_by_value(x, (first - zero) * scale, (last - zero) * scale)
        # TensorFlow rounds halves up here.
        steps = tf.floor((bounded - (first - zero) * scale) / scale + 0.5)
        return steps * scale + (first - zero) * scale

    return function


_TABLE = {
    "Acos": simple(lambda x: tf.atan2(tf.sqrt((1.0 - x) * (1.0 + x)), x)),
    "Acosh": simple(_acosh),
    "Asin": simple(lambda x: tf.atan2(x, tf.sqrt((1.0 - x) * (1.0 + x)))),
    "Asinh": simple(_asinh),
    "Atan": simple(lambda x: tf.atan2(x, tf.ones_like(x))),
    "Atanh": simple(_atanh),
    "Cosh": simple(lambda x: 0.5 * (tf.exp(x) + tf.exp(-x))),
    "Digamma": simple(digamma),
    "DivNoNan": _div_no_nan,
    "Erf": simple(_erf),
    "Erfc": simple(erfc),
    "FakeQuantWithMinMaxArgs": _fake_quant,
    "Lgamma": simple(lgamma),
    "Sinh": simple(_sinh),
    "Tan": simple(lambda x: tf.sin(x) / tf.cos(x)),
    "TruncateMod": simple(_truncate_mod),
}


def _apply(program: Program, context: PassContext) -> list[Change]:
    return lower(program, PASS.name, _TABLE)


PASS = GraphPass(name="lower_math", stage="format", apply=_apply, is_needed=contains(_TABLE))
