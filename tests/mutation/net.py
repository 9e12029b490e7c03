"""What a fault needs to know of a file, whatever its format: constants, activations, ops."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Role = Literal["kernel", "bias", "scale", "literal", "epsilon"]
# A scalar added to something is an epsilon below this, and something else above.
LARGEST_EPSILON = 1.1e-2


@dataclass(frozen=True)
class Parameter:
    """A float constant that ops read.

    Attributes:
        name: Unique in the file.
        role: ``kernel`` (of a convolution, product or recurrence), ``bias``, ``scale`` (a factor
            per channel), ``epsilon`` (a small scalar that is added), ``literal`` (another scalar).
        channels: Axis of a kernel along which the output channels lie.
    """

    name: str
    role: Role
    channels: int = 0


@dataclass(frozen=True)
class Edge:
    """A float activation: what an op gives.

    Attributes:
        graph: Which graph it is in; 0 is the main one, others are bodies of loops.
        tensor: Its key there.
        label: For people; begins with the layer.
        op: What gives it.
        depth: The position of that op in its graph.
    """

    graph: int
    tensor: Hashable
    label: str
    op: str
    depth: int


@dataclass(frozen=True)
class Spot:
    """An op, and what about it is to be changed."""

    graph: int
    position: int
    label: str


# Gets the net and the diverted activation, gives the tensor to be read in its place.
Chain = Callable[["Pen", Any], Any]


class Net(ABC):
    """One file, open for editing; nothing is written before `save`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def parameters(self) -> list[Parameter]:
        """All float constants that ops read, in a fixed order."""

    @abstractmethod
    def get(self, name: str) -> Array:
        """A constant as float32."""

    @abstractmethod
    def set(self, name: str, value: Array) -> None:
        """Replaces a constant, in the type it is stored in; the shape must be the same."""

    @abstractmethod
    def edges(self) -> list[Edge]:
        """All float activations, in a fixed order."""

    @abstractmethod
    def insert(self, edge: Edge, chain: Chain) -> None:
        """Puts ops between an activation and all that read it."""

    @abstractmethod
    def expose(self, edge: Edge) -> str:
        """Makes an activation of the main graph an output; returns its name."""

    @abstractmethod
    def activations(self) -> list[Spot]:
        """Ops that have another activation function to be replaced by."""

    @abstractmethod
    def replace_activation(self, spot: Spot) -> None:
        """Puts another function in the place of one of `activations`."""

    @abstractmethod
    def paddings(self) -> list[Spot]:
        """Convolutions and poolings."""

    @abstractmethod
    def shift_padding(self, spot: Spot) -> None:
        """Pads at the other end, or, where there is no padding, pads."""

    @abstractmethod
    def axes(self) -> list[Spot]:
        """Ops that go by an axis or an order of axes."""

    @abstractmethod
    def change_axis(self, spot: Spot) -> None:
        """Takes a neighboring axis, or exchanges the last two of an order."""

    @abstractmethod
    def twins(self, side: str) -> list[tuple[str, str]]:
        """Pairs of ``inputs`` or ``outputs`` of one type and shape."""

    @abstractmethod
    def exchange(self, side: str, pair: tuple[str, str]) -> None:
        """Lets two inputs or outputs bear each other's name."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Writes the file."""

    def of_role(self, *roles: Role) -> list[Parameter]:
        """The parameters with these roles."""
        return [p for p in self.parameters() if p.role in roles]


class Pen(ABC):
    """Writes ops behind a diverted activation; tensors are whatever the format calls them by."""

    @abstractmethod
    def op(self, kind: str, *tensors: Any) -> Any:
        """``mul``, ``add``, ``sub``, ``sqrt`` or ``neg`` of float32 tensors."""

    @abstractmethod
    def constant(self, value: float) -> Any:
        """A float32 scalar."""

    def through(self, x: Any, bits: int) -> Any:
        """The value rounded to so many bits of significand, as float16 (11) or bfloat16 (8) do.

        By Veltkamp's splitting, exact while nothing overflows: not all runtimes have the casts, and
        some remove a cast that another one takes back.
        """
        scaled = self.op("mul", x, self.constant(2.0 ** (24 - bits) + 1))
        return self.op("sub", scaled, self.op("sub", scaled, x))


def role_of_scalar(value: Array, added: bool) -> Role:
    """What a scalar constant is."""
    small = added and 0 < abs(float(value.ravel()[0])) <= LARGEST_EPSILON
    return "epsilon" if small else "literal"


def to_half(value: Array, dtype: str) -> Array:
    """Values rounded to ``float16`` or ``bfloat16``, as float32."""
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return value.astype(np.float16).astype(np.float32)
    # To nearest, ties to even, on the upper half of the bits.
    bits = np.ascontiguousarray(value, np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded & np.uint32(0xFFFF0000)).view(np.float32)


def open_net(path: Path) -> Net:
    """The file by its suffix."""
    from tests.mutation.onnx_net import OnnxNet
    from tests.mutation.tflite_net import TfliteNet

    return TfliteNet(path) if path.suffix == ".tflite" else OnnxNet(path)
