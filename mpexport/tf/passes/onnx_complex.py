"""Write complex tensors as two real ones, and Fourier transforms as products with DFT matrices.

Given::

    z = RFFT(x, [400])          a = ComplexAbs(z)

Result (every tensor that was complex is two outputs of its node)::

    z = PartitionedCall{f}(x, [400])          a = PartitionedCall{g}(z:output:0, z:output:1)

where f multiplies by cosines and sines and g is ``Sqrt(re² + im²)``. ONNX's DFT takes one
transform, and ONNX has no complex numbers in between. Fires on every node that touches complex64;
an op without a rule is refused, and so is a complex input or output of a signature.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from mpexport.errors import ConversionError
from mpexport.findings import Change
from mpexport.tf.graph import (
    FunctionDef,
    NodeDef,
    Program,
    attr_value,
    input_types,
    op_def,
    output_types,
    rename_readers,
    where,
)
from mpexport.tf.lowering import SHAPES, Site, trace
from mpexport.tf.onnx_refusals import path_of, place_of
from mpexport.tf.pipeline import GraphPass, PassContext

_COMPLEX = types_pb2.DT_COMPLEX64
_Pair = tuple[Any, Any]
# Takes the node's inputs, a complex one as a pair; gives its outputs in the same way.
_Rule = Callable[..., Any]


def _turns(length: int, count: int) -> tuple[Any, Any]:
    """``[length, count]``: cosines and sines of the angles of a DFT."""
    # Reduced before the cosine, whose argument would lose digits.
    turns = np.outer(np.arange(length), np.arange(count)) % length / length
    angles = 2 * np.pi * turns
    cosines, sines = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    # What should be 0 decides, by its sign, about the phase of a negative number.
    return np.where(abs(cosines) < 1e-7, 0, cosines), np.where(abs(sines) < 1e-7, 0, sines)


def _fitted(x: Any, size: int) -> Any:
    """The last axis cut or filled with zeros to ``size``."""
    x = x[..., :size]
    missing = size - x.shape[-1]
    return tf.pad(x, [[0, 0]] * (x.shape.rank - 1) + [[0, missing]]) if missing > 0 else x


def _dft(z: _Pair, *, inverse: bool) -> _Pair:
    """The transform along the last axis, whose size is known."""
    re, im = z
    length = re.shape[-1]
    cosines, sines = _turns(length, length)
    if inverse:
        cosines, sines = cosines / np.float32(length), -sines / np.float32(length)
    return (
        tf.matmul(re, cosines) + tf.matmul(im, sines),
        tf.matmul(im, cosines) - tf.matmul(re, sines),
    )


def _rows(z: _Pair) -> _Pair:
    """Both parts with their last two axes exchanged."""
    axes = [*range(z[0].shape.rank - 2), z[0].shape.rank - 1, z[0].shape.rank - 2]
    return tf.transpose(z[0], axes), tf.transpose(z[1], axes)


def _known(site: Site, axes: int) -> bool:
    shape = site.shape(0)
    return shape.rank is not None and shape.rank > axes and None not in shape.as_list()[-axes:]


def _fft(inverse: bool, axes: int) -> Callable[[Site], _Rule | None]:
    def chosen(site: Site) -> _Rule | None:
        def function(z: _Pair) -> list[_Pair]:
            z = _dft(z, inverse=inverse)
            return [_rows(_dft(_rows(z), inverse=inverse)) if axes == 2 else z]

        return function if _known(site, axes) else None

    return chosen


def _lengths(site: Site, axes: int) -> list[int] | None:
    lengths = site.const(1)
    return lengths.tolist() if lengths is not None and _known(site, axes) else None


def _rfft(axes: int) -> Callable[[Site], _Rule | None]:
    def chosen(site: Site) -> _Rule | None:
        lengths = _lengths(site, axes)
        if lengths is None:
            return None

        def function(x: Any, _: Any) -> list[_Pair]:
            if axes == 2:
                x = _rows((_fitted(_rows((x, x))[0], lengths[0]), x))[0]
            x = _fitted(x, lengths[-1])
            cosines, sines = _turns(lengths[-1], lengths[-1] // 2 + 1)
            z = tf.matmul(x, cosines), tf.matmul(x, 0.0 - sines)
            return [_rows(_dft(_rows(z), inverse=False)) if axes == 2 else z]

        return function

    return chosen


def _irfft(axes: int) -> Callable[[Site], _Rule | None]:
    def chosen(site: Site) -> _Rule | None:
        lengths = _lengths(site, axes)
        if lengths is None:
            return None
        length = lengths[-1]
        half = length // 2 + 1

        def function(z: _Pair, _: Any) -> list[Any]:
            if axes == 2:
                re, im = _rows(z)
                z = _rows(_dft((_fitted(re, lengths[0]), _fitted(im, lengths[0])), inverse=True))
            cosines, sines = _turns(length, half)
            # The other half is the conjugate of this one, but for the first and the middle.
            share = np.full(half, 2.0)
            share[0] = 1.0
            if length % 2 == 0:
                share[-1] = 1.0
            share = (share / length).astype(np.float32)
            re, im = _fitted(z[0], half), _fitted(z[1], half)
            return [tf.matmul(re, (cosines * share).T) - tf.matmul(im, (sines * share).T)]

        return function

    return chosen


def _always(function: Callable[..., Any]) -> Callable[[Site], _Rule]:
    return lambda site: lambda *inputs: [function(*inputs)]


def _multiply(a: _Pair, b: _Pair) -> _Pair:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _divide(a: _Pair, b: _Pair) -> _Pair:
    size = b[0] * b[0] + b[1] * b[1]
    re, im = _multiply(a, (b[0], -b[1]))
    return re / size, im / size


def _exp(z: _Pair) -> _Pair:
    size = tf.exp(z[0])
    return size * tf.cos(z[1]), size * tf.sin(z[1])


def _cast(site: Site) -> _Rule:
    target = tf.as_dtype(site.attr("DstT"))

    def function(x: Any) -> list[Any]:
        if isinstance(x, tuple):
            return [x if target == tf.complex64 else tf.cast(x[0], target)]
        re = tf.cast(x, tf.float32)
        return [(re, tf.zeros_like(re))]

    return function


def _const(site: Site) -> _Rule:
    value = tf.make_ndarray(site.attr("value"))
    return lambda: [(tf.constant(value.real), tf.constant(value.imag))]


def _each_part(site: Site) -> _Rule:
    """The op itself, once per part: for what moves or sums elements."""
    definition = op_def(site.node)
    assert definition is not None
    attrs = {
        a.name: site.attr(a.name)
        for a in definition.attr
        if a.type not in ("type", "list(type)")
        and a.name not in {arg.number_attr for arg in definition.input_arg}
    }
    outputs = {o.name: o.type for o in definition.attr if o.name == "out_type"}
    for name in outputs:
        attrs[name] = tf.as_dtype(attr_value(site.node, name).type)
    call = getattr(tf.raw_ops, site.node.op)

    def function(*inputs: Any) -> list[Any]:
        parts = []
        for part in (0, 1):
            given = iter(x[part] if isinstance(x, tuple) else x for x in inputs)
            arguments = {}
            for arg in definition.input_arg:
                count = attr_value(site.node, arg.number_attr).i if arg.number_attr else 0
                arguments[arg.name] = [next(given) for _ in range(count)] if count else next(given)
            made = call(**arguments, **attrs)
            parts.append(list(made) if isinstance(made, (list, tuple)) else [made])
        return list(zip(*parts))

    return function


_RULES: dict[str, Callable[[Site], _Rule | None]] = {
    "Angle": _always(lambda z: tf.atan2(z[1], z[0])),
    "Cast": _cast,
    "Complex": _always(lambda re, im: (re, im)),
    "ComplexAbs": _always(lambda z: tf.sqrt(z[0] * z[0] + z[1] * z[1])),
    "Conj": _always(lambda z: (z[0], -z[1])),
    "Const": _const,
    "Exp": _always(_exp),
    "FFT": _fft(False, 1),
    "FFT2D": _fft(False, 2),
    "IFFT": _fft(True, 1),
    "IFFT2D": _fft(True, 2),
    "IRFFT": _irfft(1),
    "IRFFT2D": _irfft(2),
    "Imag": _always(lambda z: z[1]),
    "Mul": _always(_multiply),
    "RFFT": _rfft(1),
    "RFFT2D": _rfft(2),
    "Real": _always(lambda z: z[0]),
    "RealDiv": _always(_divide),
    "Shape": _always(lambda z: tf.shape(z[0])),
    "Square": _always(lambda z: _multiply(z, z)),
    "ZerosLike": _always(lambda z: (tf.zeros_like(z[0]), tf.zeros_like(z[0]))),
}
_RULES.update(
    dict.fromkeys(
        (
            *("Add", "AddN", "AddV2", "BroadcastTo", "ConcatV2", "ExpandDims", "GatherV2"),
            *("Identity", "Mean", "Neg", "Pack", "Pad", "Reshape", "ReverseV2", "SelectV2"),
            *("Slice", "Split", "SplitV", "Squeeze", "StridedSlice", "Sub", "Sum", "Tile"),
            *("Transpose", "Unpack"),
        ),
        _each_part,
    )
)


def _touches(node: NodeDef) -> bool:
    types = [*(input_types(node) or []), *(t for _, t in output_types(node) or [])]
    return any(t in (_COMPLEX, types_pb2.DT_COMPLEX128) for t in types)


def _refused(node: NodeDef, why: str) -> ConversionError:
    return ConversionError(
        f"ONNX has no complex numbers, and {node.op}{place_of(node.name)} {why}",
        hint="compute with real and imaginary parts instead of complex numbers, fix the sizes of "
        "the input (--input-shape), or use savedmodel",
        where=path_of(node.name),
        details={"ops": [node.op]},
    )


def _rewrite(program: Program, fdef: FunctionDef, nodes: list[NodeDef]) -> list[Change]:
    producers = {n.name: n for n in fdef.node_def}
    pairs: dict[str, _Pair] = {}
    renamed: dict[str, str] = {}
    made = []
    for node in nodes:
        site = Site(fdef, node, producers)
        choose = _RULES.get(node.op)
        rule = choose(site) if choose else None
        kinds = [*(input_types(node) or []), *(t for _, t in output_types(node) or [])]
        if rule is None or types_pb2.DT_COMPLEX128 in kinds:
            raise _refused(node, "cannot be written in real ones")
        position = 0
        for suffix, kind in output_types(node) or []:
            tensor, names = f"{node.name}:{suffix}", f"{node.name}:output:"
            if kind == _COMPLEX:
                pairs[tensor] = f"{names}{position}", f"{names}{position + 1}"
                position += 1
            else:
                renamed[tensor] = f"{names}{position}"
            position += 1
        made.append((node, rule, [site.shape(i) for i in range(len(site.inputs))]))
    for ref in fdef.ret.values():
        if ref in pairs:
            raise _refused(producers[ref.partition(":")[0]], "is an output")
    changes = []
    for node, rule, shapes in made:
        types = input_types(node) or []
        if any(t == _COMPLEX and r not in pairs for r, t in zip(node.input, types)):
            raise _refused(node, "takes one that comes from outside")
        function = _over_parts(rule, [t == _COMPLEX for t in types])
        widths = [2 if t == _COMPLEX else 1 for t in types]
        floats = [types_pb2.DT_FLOAT if t == _COMPLEX else t for t in types]
        flat = [t for t, n in zip(floats, widths) for _ in range(n)]
        specs = [
            tf.TensorSpec(s, tf.as_dtype(t))
            for s, t, n in zip(shapes, floats, widths)
            for _ in range(n)
        ]
        body = trace(function, specs)
        program.library[body.signature.name] = body
        inputs = [p for r in node.input for p in pairs.get(r, (r,))]
        changes.append(Change(PASS.name, "complex-split", where(fdef, node)))
        noted = list(node.attr[SHAPES].list.shape) if SHAPES in node.attr else []
        kinds = [t for _, t in output_types(node) or []]
        del node.input[:]
        node.input.extend(inputs)
        node.op = "PartitionedCall"
        node.attr.clear()
        if len(noted) == len(kinds):
            for shape, kind in zip(noted, kinds):
                node.attr[SHAPES].list.shape.extend([shape] * (2 if kind == _COMPLEX else 1))
        node.attr["f"].func.name = body.signature.name
        node.attr["Tin"].list.type.extend(flat)
        node.attr["Tout"].list.type.extend(a.type for a in body.signature.output_arg)
    rename_readers(fdef, {old: new for old, new in renamed.items() if old != new})
    return changes


def _over_parts(rule: _Rule, is_complex: list[bool]) -> Callable[..., Any]:
    def function(*flat: Any) -> list[Any]:
        given = iter(flat)
        inputs = [(next(given), next(given)) if pair else next(given) for pair in is_complex]
        return [
            tf.identity(part)
            for output in rule(*inputs)
            for part in (output if isinstance(output, tuple) else (output,))
        ]

    return function


def _apply(program: Program, context: PassContext) -> list[Change]:
    changes = []
    for fdef in list(program.library.values()):
        nodes = [n for n in fdef.node_def if _touches(n)]
        if nodes:
            changes += _rewrite(program, fdef, nodes)
    return changes


PASS = GraphPass(
    name="onnx_complex",
    stage="format",
    apply=_apply,
    is_needed=lambda program: any(_touches(n) for _, n in program.nodes()),
)
