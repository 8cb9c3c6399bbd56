"""What stands for the classes and functions that a pickle names: NumPy arrays and inert objects.

Tensors become views of the file or of bytes inside the pickle. NumPy checks that a view stays
inside; a pickle can reach nothing else of torch, NumPy or Python but plain containers.
"""

import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from transfer.convert.messages import shorten

LATIN1 = ("latin1", "latin-1", "iso-8859-1")
PLAIN_TENSORS = ("", "torch.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer")
"""Classes of tensors that compute as torch.Tensor does."""

MALFORMED = (
    pickle.UnpicklingError,
    struct.error,
    EOFError,
    ValueError,  # of which UnicodeDecodeError is one
    TypeError,
    AttributeError,
    LookupError,
    OverflowError,
    RecursionError,
)
"""Errors that reading a damaged or hostile pickle can raise."""

NUMPY_TYPES = {
    **{"float64": "<f8", "float32": "<f4", "float16": "<f2", "bool": "|b1"},
    **{"int64": "<i8", "int32": "<i4", "int16": "<i2", "int8": "|i1", "uint8": "|u1"},
    **{"complex64": "<c8", "complex128": "<c16"},
    # NumPy has no such type: its bits are copied and named again
    "bfloat16": "<u2",
}
"""NumPy's type of each of torch's, by name."""
STORAGE_TYPES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    # integers of quantized tensors, which only their scale and zero point turn into weights
    "QInt8Storage": "int8",
    "QUInt8Storage": "uint8",
    "QInt32Storage": "int32",
    "QUInt4x2Storage": "uint8",
    "QUInt2x4Storage": "uint8",
}


class RefusedError(Exception):
    """A file that is not read, with the reason in a sentence."""


class NeedsCodeError(RefusedError):
    """A pickle that only code execution could load."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"the pickle names {shorten(path)}, which is neither a tensor nor plain data: the file "
            f"needs code execution to load, and untrusted pickles are never executed. Where you "
            f"trust its source, load it there and save only model.state_dict()"
        )


class Sealed:
    """What a pickle may hold, but not complete or alter."""

    def __setstate__(self, _: object) -> None:
        raise pickle.UnpicklingError(f"the pickle tries to alter a {type(self).__name__}")


@dataclass(frozen=True, eq=False)
class Storage(Sealed):
    """A sequence of numbers in memory, of which tensors are views."""

    data: Any
    """Bytes of the numbers; None while the place of a legacy file's numbers is unknown."""
    dtype: str


@dataclass(frozen=True, eq=False)
class Tensor(Sealed):
    """A tensor: a view of a storage, or an array of NumPy."""

    array: np.ndarray
    dtype: str
    kind: str = ""
    """Module and name of its subclass of Tensor; empty for torch's own."""


@dataclass(frozen=True, eq=False)
class StorageType(Sealed):
    """What stands for torch.FloatStorage and similar."""

    dtype: str


class Inert:
    """What stands for an object of some class: keeps arguments, state and items."""

    __slots__ = ("parts",)
    path = ""
    """Module and name of the class."""
    is_known = True
    """Whether the class is known to hold configuration or logs only."""
    is_plain = False
    """Whether it is as good as a plain value, such as a device."""
    parts: list[object]

    def __new__(cls, *args: object, **keywords: object) -> "Inert":
        made = super().__new__(cls)
        made.parts = [*args, *keywords.values()]
        return made

    def __init__(self, *_args: object, **_keywords: object) -> None:
        """Accept what __new__ has kept."""

    def __setstate__(self, state: object) -> None:
        self.parts.append(state)

    def __setitem__(self, key: object, value: object) -> None:
        self.parts.append({key: value})

    def append(self, item: object) -> None:
        """Keep an item."""
        self.parts.append(item)

    def extend(self, items: list[object]) -> None:
        """Keep items."""
        self.parts.extend(items)

    add = append


def inert_class(path: str, *, is_known: bool = True, is_plain: bool = False) -> type[Inert]:
    """Return the class that stands for the one at this path."""
    flags = {"path": path, "is_known": is_known, "is_plain": is_plain}
    return type("Inert", (Inert,), {"__slots__": (), **flags})


def made_inert(path: str, *parts: object, is_known: bool = True) -> Inert:
    """Return an object of the class at this path."""
    return inert_class(path, is_known=is_known)(*parts)


class Replacement(Sealed):
    """A function of ours in place of a global; a pickle can call it, and nothing else."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.function = function

    def __call__(self, *args: object) -> object:
        return self.function(*args)


class InertDict(dict[Any, Any]):
    """What stands for OrderedDict and similar; drops attributes such as _metadata."""

    def __setstate__(self, state: object) -> None:
        """Drop the state."""


def _tensor(storage: object, first: Any, size: Any, steps: Any, *_rest: object) -> Tensor:
    if not isinstance(storage, Storage):
        raise pickle.UnpicklingError(f"a tensor lies in a {type(storage).__name__}")
    kind = np.dtype(NUMPY_TYPES[storage.dtype])
    if storage.data is None:
        return Tensor(np.empty(0, kind), storage.dtype)
    if min((first, *size, *steps)) < 0:
        raise pickle.UnpicklingError(f"a tensor has the sizes or strides {shorten((size, steps))}")
    strides = [step * kind.itemsize for step in steps]
    view = np.ndarray(tuple(size), kind, storage.data, first * kind.itemsize, strides)
    return Tensor(view, storage.dtype)


def _from_type(function: object, kind: object, args: object, _state: object) -> object:
    path = kind.path if isinstance(kind, type) and issubclass(kind, Inert) else ""
    if not isinstance(args, tuple):
        raise pickle.UnpicklingError(f"a tensor subclass is rebuilt of {shorten(args)}")
    if function is _REBUILD:
        made: Any = function(*args)
        return made if path in PLAIN_TENSORS else replace(made, kind=path)
    if isinstance(function, type) and issubclass(function, Inert) and not function.is_known:
        own = "" if path in PLAIN_TENSORS else f"{path} by "
        return made_inert(own + function.path, *args, is_known=False)
    raise pickle.UnpicklingError(
        f"a tensor subclass is rebuilt by a {type(function).__name__}, not by torch"
    )


def _encode(text: object, encoding: object = "latin1") -> bytes:
    if not isinstance(text, str) or encoding not in LATIN1:
        raise pickle.UnpicklingError(
            f"bytes are spelled as {type(text).__name__} in {shorten(encoding)}"
        )
    return text.encode("latin1")


def _instance(kind: object, *args: object) -> Inert:
    """Replace copyreg._reconstructor, which makes an object without calling its class."""
    known = isinstance(kind, type) and issubclass(kind, Inert)
    return kind(kind, *args) if known else made_inert("", kind, *args)  # type: ignore[operator]


def _attribute(owner: object, _name: object) -> Inert:
    """Replace getattr, by which mmengine's logs name methods of their own classes."""
    kind = owner if isinstance(owner, type) else type(owner)
    if not issubclass(kind, Inert):
        raise NeedsCodeError(f"an attribute of a {type(owner).__name__}")
    return made_inert(kind.path)


_REBUILD = Replacement(_tensor)
_PARAMETER = Replacement(lambda data, *_rest: data)
_CLASSES = (
    *("numpy.ndarray", "torch.Tensor", "torch.nn.parameter.Parameter", "torch.device"),
    *("torch.torch_version.TorchVersion", "builtins.object", "builtins.slice", "builtins.range"),
)

STAND_INS: dict[str, object] = {
    "torch._utils._rebuild_tensor": _REBUILD,
    "torch._utils._rebuild_tensor_v2": _REBUILD,
    "torch._utils._rebuild_parameter": _PARAMETER,
    "torch._utils._rebuild_parameter_with_state": _PARAMETER,
    "torch._tensor._rebuild_from_type_v2": Replacement(_from_type),
    "torch.Size": tuple,
    "collections.OrderedDict": InertDict,
    "collections.Counter": InertDict,
    "collections.defaultdict": Replacement(lambda _factory=None, content=(): InertDict(content)),
    "collections.deque": Replacement(lambda items=(), _length=None: list(items)),
    **{
        f"builtins.{kind.__name__}": kind
        for kind in (dict, list, tuple, set, frozenset, bytes, bytearray, int, float, bool, complex)
    },
    "builtins.str": Replacement(lambda text="": str(text)),
    "builtins.getattr": Replacement(_attribute),
    "_codecs.encode": Replacement(_encode),
    "copyreg._reconstructor": Replacement(_instance),
    "numpy.dtype": np.dtype,
    **{
        f"{package}.{name}": stand_in
        for package in ("numpy.core", "numpy._core")
        for name, stand_in in {
            # its shape and numbers come with its state
            "multiarray._reconstruct": Replacement(lambda *_: np.empty(0)),
            "multiarray.scalar": inert_class("numpy scalar", is_plain=True),
            "numeric._frombuffer": Replacement(
                lambda data, kind, shape, order: np.frombuffer(data, kind).reshape(
                    shape, order=order
                )
            ),
        }.items()
    },
    **{
        f"{package}.{name}": StorageType(dtype)
        for package in ("torch", "torch.cuda")
        for name, dtype in STORAGE_TYPES.items()
    },
    "torch.storage.UntypedStorage": StorageType("uint8"),
    **{path: inert_class(path, is_plain=True) for path in _CLASSES},
}
"""What stands for each global."""
