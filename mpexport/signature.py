"""What goes into a model and what comes out: names, shapes and element types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

# Sizes; None for a size that is unknown until run time.
Shape = tuple[Optional[int], ...]


@dataclass(frozen=True)
class TensorSpec:
    """One named input or output.

    Attributes:
        name: The name in the signature.
        shape: Sizes; None for a size that is unknown until run time. None when the rank is unknown.
        dtype: Canonical element type name.
    """

    name: str
    shape: Optional[Shape]
    dtype: str

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; the shape is a list or null."""
        shape = None if self.shape is None else list(self.shape)
        return {"name": self.name, "shape": shape, "dtype": self.dtype}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TensorSpec:
        """The inverse of `to_json`."""
        shape = data["shape"]
        return cls(data["name"], None if shape is None else tuple(shape), data["dtype"])

    def __str__(self) -> str:
        if self.shape is None:
            sizes = "[...]"
        else:
            sizes = "[" + ", ".join("?" if d is None else str(d) for d in self.shape) + "]"
        return f"{self.name}: {self.dtype}{sizes}"


@dataclass(frozen=True)
class Signature:
    """A SignatureDef without its framework.

    Attributes:
        key: Name of the signature, for example ``serving_default``.
        inputs: Inputs by name, in a stable order.
        outputs: Outputs by name, in a stable order.
    """

    key: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "key": self.key,
            "inputs": [s.to_json() for s in self.inputs],
            "outputs": [s.to_json() for s in self.outputs],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Signature:
        """The inverse of `to_json`."""
        return cls(
            data["key"],
            tuple(TensorSpec.from_json(s) for s in data["inputs"]),
            tuple(TensorSpec.from_json(s) for s in data["outputs"]),
        )


def batch_shapes(signature: Signature, batch: int) -> dict[str, Shape]:
    """Shapes of the inputs whose leading size is unknown, with the batch put in."""
    return {
        s.name: (batch, *s.shape[1:]) for s in signature.inputs if s.shape and s.shape[0] is None
    }
