"""What stands for the classes and functions that a pickle names, and what they make of it.

Each function checks its arguments and only describes the tensor; a pickle can reach nothing else of
torch, NumPy or Python.
"""

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from transfer.convert.messages import shorten

MAX_DIMENSIONS = 64
"""Most dimensions of a tensor, as in NumPy and torch."""

LATIN1 = ("latin1", "latin-1", "iso-8859-1")
PLAIN_TENSORS = ("", "torch.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer")
"""Classes of tensors that compute as torch.Tensor does."""

ITEM_BYTES = {
    **{"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "complex64": 8, "complex128": 16},
    **{"int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1},
}
"""Bytes of a value, by the name of torch's type."""
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
NUMPY_TYPES = {
    **{"f2": "float16", "f4": "float32", "f8": "float64", "b1": "bool", "u1": "uint8"},
    **{"i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64"},
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


@dataclass(eq=False)
class Storage(Sealed):
    """A sequence of numbers, of which tensors are views."""

    content: bytes | None
    """Bytes that hold the numbers; None for the file itself."""
    start: int
    """Place of the first number, in bytes; of a legacy file it is known last."""
    num_values: int
    dtype: str
    crc: tuple[int, int, int] | None = None
    """Start, length and CRC-32 of the bytes that have a checksum."""
    byte_order: str = "<"


@dataclass(frozen=True, eq=False)
class StorageView(Sealed):
    """A tensor: part of a storage."""

    storage: Storage
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
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

    def __init__(self, function: Callable[..., object], *, rebuilds: bool = False) -> None:
        self.function = function
        self.rebuilds = rebuilds
        """True if it makes a tensor of a storage."""

    def __call__(self, *args: object) -> object:
        return self.function(*args)


class InertDict(dict[Any, Any]):
    """What stands for OrderedDict and similar; drops attributes such as _metadata."""

    def __setstate__(self, state: object) -> None:
        """Drop the state."""


class NumpyType:
    """What stands for numpy.dtype; only plain numbers can become tensors."""

    __slots__ = ("byte_order", "code")

    def __init__(self, code: object, *_: object) -> None:
        self.code = code if isinstance(code, str) else ""
        self.byte_order = "<"

    def __setstate__(self, state: Any) -> None:
        self.byte_order = ">" if state[1] in (">", b">") else "<"


class NumpyArray:
    """What stands for numpy.ndarray; `rest` holds the data if they are not plain numbers."""

    __slots__ = ("rest", "view")

    def __init__(self, *_: object) -> None:
        self.view: StorageView | None = None
        self.rest: object = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, column_major, data = state
        self.view = _array_view(data, kind, shape, "F" if column_major is True else "C")
        self.rest = None if self.view else data


def _array_view(data: object, kind: object, shape: Any, order: Any) -> StorageView | None:
    """Return the array as a tensor; None if it does not hold plain numbers."""
    if not isinstance(kind, NumpyType):
        raise pickle.UnpicklingError(f"the type of an array is a {type(kind).__name__}")
    dtype = NUMPY_TYPES.get(kind.code)
    if dtype is None:
        return None
    # Python 2 wrote bytes as text with one character per byte
    raw = data.encode("latin1") if isinstance(data, str) else data
    if not isinstance(raw, bytes | bytearray):
        raise pickle.UnpicklingError(f"an array holds {type(raw).__name__} instead of bytes")
    if order not in ("C", "F"):
        raise pickle.UnpicklingError(f"an array has the order {shorten(order)}; known are C and F")
    sizes = check_shape(shape)
    num_values = num_values_of(sizes)
    if len(raw) != num_values * ITEM_BYTES[dtype]:
        raise pickle.UnpicklingError(f"an array of shape {shorten(sizes)} has {len(raw)} bytes")
    rows = [num_values_of(sizes[axis + 1 :]) for axis in range(len(sizes))]
    columns = [num_values_of(sizes[:axis]) for axis in range(len(sizes))]
    storage = Storage(bytes(raw), 0, num_values, dtype, byte_order=kind.byte_order)
    return StorageView(storage, 0, sizes, tuple(rows if order == "C" else columns))


def _array_from_buffer(data: object, kind: object, shape: Any, order: Any) -> NumpyArray:
    array = NumpyArray()
    array.view = _array_view(data, kind, shape, order)
    return array


def _tensor(storage: object, first: object, size: Any, stride: Any, *_rest: object) -> StorageView:
    if not isinstance(storage, Storage):
        raise pickle.UnpicklingError(f"a tensor lies in a {type(storage).__name__}")
    (start,), shape, steps = check_sizes((first,)), check_shape(size), check_sizes(stride)
    if len(shape) != len(steps):
        raise pickle.UnpicklingError(f"a tensor has sizes {shape} but strides {steps}")
    last = start + sum((length - 1) * step for length, step in zip(shape, steps, strict=True))
    if 0 not in shape and last >= storage.num_values:
        raise pickle.UnpicklingError(f"a tensor reaches value {last} of {storage.num_values}")
    return StorageView(storage, start, shape, steps)


def _from_type(function: object, kind: object, args: object, _state: object) -> object:
    path = kind.path if isinstance(kind, type) and issubclass(kind, Inert) else ""
    if not isinstance(args, tuple):
        raise pickle.UnpicklingError(f"a tensor subclass is rebuilt of {shorten(args)}")
    if isinstance(function, Replacement) and function.rebuilds:
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


def _plain_bytes(content: object = b"", encoding: object = "latin1") -> bytes:
    return bytes(content) if isinstance(content, bytes | bytearray) else _encode(content, encoding)


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


def _items(value: object = ()) -> list[object]:
    if not isinstance(value, list | tuple | set | frozenset):
        raise pickle.UnpicklingError(f"a container is made of a {type(value).__name__}")
    return list(value)


def _mapping(content: object = ()) -> InertDict:
    made = InertDict()
    for pair in content.items() if isinstance(content, dict) else _items(content):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise pickle.UnpicklingError(f"a dict is made of {shorten(pair)}")
        made[pair[0]] = pair[1]
    return made


def _converted(kind: type[Any], *accepted: type[Any]) -> Replacement:
    def make(value: object = kind()) -> object:
        if not isinstance(value, accepted):
            raise pickle.UnpicklingError(f"a {kind.__name__} is made of a {type(value).__name__}")
        return kind(value)

    return Replacement(make)


def _complex(real: object = 0.0, imaginary: object = 0.0) -> complex:
    if not isinstance(real, float) or not isinstance(imaginary, float):
        raise pickle.UnpicklingError(
            f"a complex number is made of {shorten(real)} and {shorten(imaginary)}"
        )
    return complex(real, imaginary)


_REBUILD = Replacement(_tensor, rebuilds=True)
_PARAMETER = Replacement(lambda data, *_rest: data)
_CLASSES = (
    *("numpy.ndarray", "torch.Tensor", "torch.nn.parameter.Parameter", "torch.device"),
    *("torch.torch_version.TorchVersion", "builtins.object", "builtins.slice", "builtins.range"),
)

REPLACEMENTS: dict[str, object] = {
    "torch._utils._rebuild_tensor": _REBUILD,
    "torch._utils._rebuild_tensor_v2": _REBUILD,
    "torch._utils._rebuild_parameter": _PARAMETER,
    "torch._utils._rebuild_parameter_with_state": _PARAMETER,
    "torch._tensor._rebuild_from_type_v2": Replacement(_from_type),
    "torch.Size": Replacement(lambda sizes=(): check_sizes(sizes)),
    "collections.OrderedDict": Replacement(_mapping),
    "collections.Counter": Replacement(_mapping),
    "collections.defaultdict": Replacement(lambda _factory=None, content=(): _mapping(content)),
    "collections.deque": Replacement(lambda items=(), _length=None: _items(items)),
    "builtins.dict": Replacement(_mapping),
    "builtins.list": Replacement(_items),
    "builtins.tuple": Replacement(lambda items=(): tuple(_items(items))),
    "builtins.set": Replacement(lambda items=(): set(_items(items))),
    "builtins.frozenset": Replacement(lambda items=(): frozenset(_items(items))),
    "builtins.bytes": Replacement(_plain_bytes),
    "builtins.bytearray": Replacement(lambda *args: bytearray(_plain_bytes(*args))),
    "builtins.int": _converted(int, int, float),
    "builtins.float": _converted(float, int, float),
    "builtins.bool": _converted(bool, int, float),
    "builtins.complex": Replacement(_complex),
    "builtins.str": _converted(str, str),
    "builtins.getattr": Replacement(_attribute),
    "_codecs.encode": Replacement(_encode),
    "copyreg._reconstructor": Replacement(_instance),
    "numpy.dtype": Replacement(NumpyType),
    **{
        f"{package}.{name}": replacement
        for package in ("numpy.core", "numpy._core")
        for name, replacement in {
            "multiarray._reconstruct": Replacement(NumpyArray),
            "multiarray.scalar": inert_class("numpy scalar", is_plain=True),
            "numeric._frombuffer": Replacement(_array_from_buffer),
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
