"""The objects that a pickle can build besides plain containers, numbers and text."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transfer.convert.architectures import BackboneError
from transfer.convert.untrusted.budget import Budget, shorten

MAX_DIMENSIONS = 64
"""Most dimensions of a tensor, as in NumPy and torch."""


class NeedsCodeError(BackboneError):
    """Error for a pickle that only code execution could load."""

    @classmethod
    def for_global(cls, path: str) -> "NeedsCodeError":
        """Return the error for a global that is neither a tensor nor plain data."""
        return cls(
            f"the pickle names {shorten(path)}, which is neither a tensor nor plain data: the file "
            f"needs code execution to load, and untrusted pickles are never executed. Where you "
            f"trust its source, load it there and save only model.state_dict()"
        )


class Buildable:
    """Base class of what the BUILD opcode may complete; it reaches nothing else."""

    __slots__ = ()

    def set_state(self, state: Any) -> None:
        """Take the state of the object that this one replaces."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """Description of a tensor of the file; `read` reads its values."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    read: Callable[[], Tensor]
    kind: str = ""
    """Module and name of its subclass of Tensor; empty for torch's own."""

    @property
    def num_values(self) -> int:
        """Number of values, the product of the shape."""
        return num_values_of(self.shape)


@dataclass(frozen=True, eq=False)
class Storage:
    """A sequence of `num_values` numbers in the file, of which tensors are views."""

    dtype: torch.dtype
    num_values: int
    content: Callable[[], memoryview]
    """Function that returns the bytes of the numbers, checked where the file has a checksum."""


@dataclass(frozen=True, eq=False)
class StorageType:
    """Replacement for torch.FloatStorage and similar."""

    dtype: torch.dtype


class Inert(Buildable):
    """Replacement for an object of some class: stores its arguments and does nothing."""

    __slots__ = ("is_known", "parts", "path")

    def __init__(self, path: str = "", *, is_known: bool = True) -> None:
        self.path = path
        """Module and name of the class."""
        self.is_known = is_known
        """Whether the class is known to hold configuration or logs only."""
        self.parts: list[object] = []

    def set_state(self, state: object) -> None:
        """Store the state."""
        self.parts.append(state)


@dataclass(frozen=True)
class InertClass:
    """Replacement for a class; a call returns an Inert object with the arguments."""

    path: str
    is_known: bool = True

    def __call__(self, *args: object) -> Inert:
        made = Inert(self.path, is_known=self.is_known)
        made.parts += args
        return made


@dataclass(frozen=True)
class ForeignFunction:
    """Replacement for a function of torch or NumPy that this room does not know.

    Its name alone is a value; a call is not made, and returns an Inert object with the arguments.
    """

    path: str

    def __call__(self, *args: object) -> Inert:
        made = Inert(self.path, is_known=False)
        made.parts += args
        return made


class InertDict(dict[Any, Any], Buildable):
    """Replacement for OrderedDict and similar; drops attributes such as _metadata."""

    def set_state(self, state: object) -> None:
        """Drop the state."""


@dataclass(frozen=True, eq=False)
class Replacement:
    """A function of ours that replaces one global; the budget is its first argument."""

    function: Callable[..., object]
    rebuilds: bool = False
    """True if it makes a tensor of a storage."""
    copies: bool = True
    """True if the result may be a copy of the arguments."""

    def __call__(self, budget: Budget, *args: object) -> object:
        return self.function(budget, *args)


def num_values_of(shape: tuple[int, ...]) -> int:
    """Return the product of the sizes."""
    product = 1
    for size in shape:
        product *= size
    return product


def check_sizes(values: Any) -> tuple[int, ...]:
    """Return sizes, strides or offsets as a tuple; UnpicklingError unless a tensor can have them.

    Values are whole numbers below 2**62, and so is the number of values of a tensor.
    """
    if not isinstance(values, tuple | list) or len(values) > MAX_DIMENSIONS:
        raise pickle.UnpicklingError(f"a tensor has the sizes or strides {shorten(values)}")
    sizes = tuple(values)
    if not all(type(size) is int and 0 <= size < 2**62 for size in sizes):
        raise pickle.UnpicklingError(f"a tensor has the sizes or strides {shorten(sizes)}")
    return sizes


def check_shape(values: Any) -> tuple[int, ...]:
    """Return the sizes of a tensor; UnpicklingError unless 62 bits can count its values."""
    sizes = check_sizes(values)
    if num_values_of(tuple(max(size, 1) for size in sizes)) >= 2**62:
        raise pickle.UnpicklingError(f"a tensor has the sizes {shorten(sizes)}")
    return sizes
