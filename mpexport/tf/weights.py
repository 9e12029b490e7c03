"""What float16 storage would do to weights, told before it is done."""

from __future__ import annotations

import numpy as np

from mpexport import dtypes
from mpexport.errors import ConversionError
from mpexport.tf import concrete, resources
from mpexport.tf.normalized import NormalizedModel

_LARGEST = dtypes.get("float16").max_finite or 0.0


def refuse_outside_float16(model: NormalizedModel, key: str) -> None:
    """Refuses float16 weights when a weight would be clamped or is not finite.

    TensorFlow's own float16 quantization clamps such weights without a word.

    Raises:
        ConversionError: Names variables and counts.
    """
    found = []
    names = {id(v.handle): v.name for v in model.holder([key]).resources if hasattr(v, "handle")}
    for capture in model.captures([key]):
        if concrete.variable_dtype(capture) is None:
            continue
        value = resources.read_value(capture)
        if value.dtype != np.float32:
            continue
        # One reduction per sign instead of |value|, which would copy the weight.
        extreme = max(float(value.max(initial=0)), -float(value.min(initial=0)))
        if not extreme <= _LARGEST:
            outside = ~(np.abs(value) <= _LARGEST)
            found.append(f"{names.get(id(capture), 'a weight')} ({int(outside.sum())})")
    if found:
        raise ConversionError(
            f"weights that float16 cannot hold (above 65504, NaN or Inf): {', '.join(found)}",
            hint="keep float32 weights for this model",
            where=found[0].partition(" ")[0],
        )
