"""Write real Fourier transforms of lengths that TFLite refuses as products with a DFT matrix.

Given::

    z = RFFT(x, [400])          re = Real(z)          im = Imag(z)          a = ComplexAbs(z)

Result::

    re = PartitionedCall{f}(x)          f(x) = MatMul(x, cosines)

TFLite's RFFT2D takes powers of two only, and fails when the file is run. Fires on readers of an
RFFT whose constant length is no power of two. One that is read in another way is refused, since a
file would be written that runs nowhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from mpexport.errors import ConversionError
from mpexport.findings import Change
from mpexport.tf.graph import Program, rename_readers, tensor_node, where
from mpexport.tf.lowering import Site, trace
from mpexport.tf.pipeline import GraphPass, PassContext

_OUTPUTS = {"ComplexAbs": "y", "Imag": "output", "Real": "output"}


def _is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def _part(op: str, length: int) -> Any:
    """A function of the transform's input."""
    # Reduced before the cosine, whose argument would lose digits.
    turns = np.outer(np.arange(length), np.arange(length // 2 + 1)) % length / length
    cosines = np.cos(2 * np.pi * turns).astype(np.float32)
    sines = -np.sin(2 * np.pi * turns).astype(np.float32)

    def function(x: Any) -> Any:
        frame = x[..., :length]
        missing = length - frame.shape[-1]
        if missing > 0:
            frame = tf.pad(frame, [[0, 0]] * (x.shape.rank - 1) + [[0, missing]])
        if op == "Real":
            return tf.matmul(frame, cosines)
        if op == "Imag":
            return tf.matmul(frame, sines)
        return tf.sqrt(tf.square(tf.matmul(frame, cosines)) + tf.square(tf.matmul(frame, sines)))

    return function


def _apply(program: Program, context: PassContext) -> list[Change]:
    changes = []
    for fdef in list(program.library.values()):
        producers = {n.name: n for n in fdef.node_def}
        dead = set()
        for fft in [n for n in fdef.node_def if n.op in ("RFFT", "FFT")]:
            site = Site(fdef, fft, producers)
            shape = site.shape(0)
            last = shape.as_list()[-1:] if shape.rank else []
            sizes = site.const(1) if fft.op == "RFFT" else np.array(last)
            if sizes is None or not sizes.size or sizes[0] is None or _is_power_of_two(sizes[0]):
                continue
            length = int(sizes[0])
            readers = [n for n in fdef.node_def if fft.name in map(tensor_node, n.input)]
            known = shape.rank and shape.rank > 1 and shape[-1] is not None
            if fft.op == "FFT" or not known or any(n.op not in _OUTPUTS for n in readers):
                raise ConversionError(
                    f"TFLite's Fourier transform takes powers of two only; {fft.name} has {length}",
                    hint="pad the frames to a power of two (fft_length), or use savedmodel",
                    where=where(fdef, fft),
                    details={"ops": [f"tf.{fft.op}"]},
                )
            for node in readers:
                spec = tf.TensorSpec(shape, tf.float32)
                made = trace(_part(node.op, length), [spec])
                program.library[made.signature.name] = made
                changes.append(Change(PASS.name, "rfft-lowered", where(fdef, node)))
                old = f"{node.name}:{_OUTPUTS[node.op]}:0"
                node.op = "PartitionedCall"
                node.input[0] = fft.input[0]
                node.attr.clear()
                node.attr["f"].func.name = made.signature.name
                node.attr["Tin"].list.type.append(tf.float32.as_datatype_enum)
                node.attr["Tout"].list.type.append(tf.float32.as_datatype_enum)
                new = f"{node.name}:output:0"
                rename_readers(fdef, {old: new} if old != new else {})
            dead.add(fft.name)
        kept = [n for n in fdef.node_def if n.name not in dead]
        if dead:
            del fdef.node_def[:]
            fdef.node_def.extend(kept)
    return changes


PASS = GraphPass(
    name="lower_fourier",
    stage="format",
    apply=_apply,
    is_needed=lambda program: any(n.op in ("RFFT", "FFT") for _, n in program.nodes()),
)
