"""Replacements for the globals of torch, NumPy and Python that real checkpoints name.

Each function checks its arguments and only describes the tensor (`StoredTensor`); bytes are read
later. A pickle can reach nothing else of torch, NumPy or Python.
"""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transfer.convert.architectures import BackboneError
from transfer.convert.untrusted.budget import SPARE_BYTES, Budget, shorten
from transfer.convert.untrusted.objects import (
    Buildable,
    ForeignFunction,
    Inert,
    InertClass,
    InertDict,
    NeedsCodeError,
    Replacement,
    Storage,
    StorageType,
    StoredTensor,
    check_shape,
    check_sizes,
    num_values_of,
)

_NUMPY_TO_TORCH = {
    code: torch.from_numpy(np.zeros(1, dtype=code)).dtype
    for code in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "b1")
}
_TORCH_TO_NUMPY = {dtype: code for code, dtype in _NUMPY_TO_TORCH.items()} | {
    # NumPy has no such types: their bits are copied and named again
    torch.bfloat16: "u2",
    torch.float8_e4m3fn: "u1",
    torch.float8_e5m2: "u1",
    # those of NumPy without a storage type in pickles
    torch.uint16: "u2",
    torch.uint32: "u4",
    torch.uint64: "u8",
    torch.complex64: "c8",
    torch.complex128: "c16",
}
_LATIN1 = ("latin1", "latin-1", "iso-8859-1")


class NumpyType(Buildable):
    """Replacement for numpy.dtype; only plain numbers can become tensors."""

    def __init__(self, code: object) -> None:
        self.code = code if isinstance(code, str) else ""
        self.byte_order = "<"

    def set_state(self, state: Any) -> None:
        """Take the byte order."""
        self.byte_order = ">" if state[1] in (">", b">") else "<"


class NumpyArray(Buildable):
    """Replacement for numpy.ndarray; `rest` holds the data if they are not plain numbers."""

    def __init__(self) -> None:
        self.stored: StoredTensor | None = None
        self.rest: object = None

    def set_state(self, state: Any) -> None:
        """Take shape, type, order and data."""
        _, shape, kind, column_major, data = state
        self.stored = _stored_array(data, kind, shape, "F" if column_major is True else "C")
        self.rest = None if self.stored else data


def _stored_array(data: object, kind: object, shape: Any, order: Any) -> StoredTensor | None:
    """Return the array as a stored tensor; None if it does not hold plain numbers."""
    if not isinstance(kind, NumpyType):
        raise pickle.UnpicklingError(f"the type of an array is a {type(kind).__name__}")
    if kind.code not in _NUMPY_TO_TORCH:
        return None
    # Python 2 wrote bytes as text with one character per byte
    raw = data.encode("latin1") if isinstance(data, str) else data
    if not isinstance(raw, bytes | bytearray):
        raise pickle.UnpicklingError(f"an array holds {type(raw).__name__} instead of bytes")
    sizes = check_shape(shape)
    flat = np.frombuffer(raw, dtype=np.dtype(kind.byte_order + kind.code))
    if order not in ("C", "F"):
        raise pickle.UnpicklingError(f"an array has the order {shorten(order)}; known are C and F")
    values = flat.reshape(sizes, order=order)  # raises where the number of bytes does not fit

    def read() -> Tensor:
        return torch.from_numpy(np.array(values, dtype=np.dtype(kind.code), order="C"))

    return StoredTensor(_NUMPY_TO_TORCH[kind.code], sizes, read)


def _tensor(
    _: Budget, storage: object, offset: object, size: Any, stride: Any, *_rest: object
) -> StoredTensor:
    if not isinstance(storage, Storage):
        raise pickle.UnpicklingError(f"a tensor lies in a {type(storage).__name__}")
    (start,), shape, steps = check_sizes((offset,)), check_shape(size), check_sizes(stride)
    if len(shape) != len(steps):
        raise pickle.UnpicklingError(f"a tensor has sizes {shape} but strides {steps}")
    last = start + sum((length - 1) * step for length, step in zip(shape, steps, strict=True))
    if 0 not in shape and last >= storage.num_values:
        raise pickle.UnpicklingError(f"a tensor reaches value {last} of {storage.num_values}")
    return StoredTensor(storage.dtype, shape, lambda: copy_values(storage, start, shape, steps))


def copy_values(
    storage: Storage, start: int, shape: tuple[int, ...], steps: tuple[int, ...]
) -> Tensor:
    """Return a copy of part of a storage; BackboneError if it is far larger than the storage.

    Strides of 0 repeat values: a file of a few bytes can describe a tensor of any size.
    """
    num_bytes = num_values_of(shape) * storage.dtype.itemsize
    if num_bytes > storage.num_values * storage.dtype.itemsize + SPARE_BYTES:
        raise BackboneError(
            f"a tensor of shape {shorten(shape)} repeats {storage.num_values:,} stored values and "
            f"would take {num_bytes:,} bytes; save it again with .clone()"
        )
    content = storage.content()
    if num_bytes == 0:
        return torch.empty(shape, dtype=storage.dtype)
    kind = np.dtype(_TORCH_TO_NUMPY[storage.dtype])
    flat = np.frombuffer(content, dtype=kind, count=storage.num_values)[start:]
    strides = [step * kind.itemsize for step in steps]
    view = np.lib.stride_tricks.as_strided(flat, shape, strides, writeable=False)
    values = torch.from_numpy(np.array(view, order="C"))
    return values if values.dtype == storage.dtype else values.view(storage.dtype)


def _parameter(_: Budget, data: object, *_rest: object) -> object:
    return data


def _from_type(
    budget: Budget, function: object, kind: object, args: object, _state: object
) -> object:
    path = kind.path if isinstance(kind, InertClass | ForeignFunction) else ""
    if not isinstance(args, tuple):
        raise pickle.UnpicklingError(f"a tensor subclass is rebuilt of {shorten(args)}")
    match function:
        case Replacement(rebuilds=True):
            made = function(budget, *args)
            if isinstance(made, StoredTensor) and path not in PLAIN_TENSORS:
                return replace(made, kind=path)
            return made
        case ForeignFunction() | InertClass(is_known=False):
            own = "" if path in PLAIN_TENSORS else f"{path} by "
            return InertClass(own + function.path, is_known=False)(*args)
    raise pickle.UnpicklingError(
        f"a tensor subclass is rebuilt by a {type(function).__name__}, not by torch"
    )


def _encode(_: Budget, text: object, encoding: object = "latin1") -> bytes:
    if not isinstance(text, str) or encoding not in _LATIN1:
        raise pickle.UnpicklingError(
            f"bytes are spelled as {type(text).__name__} in {shorten(encoding)}"
        )
    return text.encode("latin1")


def _plain_bytes(budget: Budget, content: object = b"", encoding: object = "latin1") -> bytes:
    if isinstance(content, bytes | bytearray):
        return bytes(content)
    return _encode(budget, content, encoding)


def _empty_array(_: Budget, *_rest: object) -> NumpyArray:
    return NumpyArray()


def _array_from_buffer(_: Budget, data: object, kind: object, shape: Any, order: Any) -> NumpyArray:
    array = NumpyArray()
    array.stored = _stored_array(data, kind, shape, order)
    return array


def _numpy_type(_: Budget, code: object, *_rest: object) -> NumpyType:
    return NumpyType(code)


def _instance(_: Budget, kind: object, *args: object) -> Inert:
    """Replace copyreg._reconstructor, which makes an object without calling its class."""
    made = Inert(kind.path, is_known=kind.is_known) if isinstance(kind, InertClass) else Inert()
    made.parts += [kind, *args]
    return made


def _scalar(_: Budget, *args: object) -> Inert:
    made = Inert("numpy scalar")
    made.parts += args
    return made


def _attribute(_: Budget, owner: object, _name: object) -> Inert:
    """Replace getattr, by which mmengine's logs name methods of their own classes."""
    if not isinstance(owner, InertClass | Inert):
        raise NeedsCodeError(
            f"the pickle takes an attribute of a {type(owner).__name__}, which is not plain data"
        )
    return Inert(owner.path)  # a path that grew with each name would cost memory beyond the budget


def _items(value: object) -> list[object]:
    if not isinstance(value, list | tuple | set | frozenset):
        raise pickle.UnpicklingError(f"a container is made of a {type(value).__name__}")
    return list(value)


def _hashed(budget: Budget, value: object) -> list[object]:
    items = _items(value)
    for item in items:
        budget.pay_for_key(item)
    return items


def _mapping(budget: Budget, content: object = ()) -> InertDict:
    pairs = content.items() if isinstance(content, dict) else _items(content)
    made = InertDict()
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise pickle.UnpicklingError(f"a dict is made of {shorten(pair)}")
        budget.pay_for_key(pair[0])
        made[pair[0]] = pair[1]
    return made


def _number(kind: type[bool] | type[int] | type[float]) -> Replacement:
    def make(_: Budget, value: object = 0) -> object:
        # numbers that the opcodes have read are short; text could be of any length
        if not isinstance(value, int | float):
            raise pickle.UnpicklingError(f"a number is made of a {type(value).__name__}")
        return kind(value)

    return Replacement(make)


def _complex(_: Budget, real: object = 0.0, imaginary: object = 0.0) -> complex:
    if not isinstance(real, float) or not isinstance(imaginary, float):
        raise pickle.UnpicklingError(
            f"a complex number is made of {shorten(real)} and {shorten(imaginary)}"
        )
    return complex(real, imaginary)


def _text(_: Budget, value: object = "") -> str:
    if not isinstance(value, str):
        raise pickle.UnpicklingError(f"text is made of a {type(value).__name__}")
    return value


_STORAGE_DTYPES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "ComplexFloatStorage": torch.complex64,
    "ComplexDoubleStorage": torch.complex128,
    # integers of quantized tensors, which only their scale and zero point turn into weights
    "QInt8Storage": torch.int8,
    "QUInt8Storage": torch.uint8,
    "QInt32Storage": torch.int32,
    "QUInt4x2Storage": torch.uint8,
    "QUInt2x4Storage": torch.uint8,
}
PLAIN_TENSORS = ("", "torch.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer")
"""Classes of tensors that compute as torch.Tensor does."""
_REBUILD = Replacement(_tensor, rebuilds=True)
_CLASSES = (
    *("numpy.ndarray", "torch.Tensor", "torch.nn.parameter.Parameter", "torch.device"),
    *("torch.torch_version.TorchVersion", "builtins.object", "builtins.slice", "builtins.range"),
)

REPLACEMENTS: dict[str, object] = {
    "torch._utils._rebuild_tensor": _REBUILD,
    "torch._utils._rebuild_tensor_v2": _REBUILD,
    "torch._utils._rebuild_parameter": Replacement(_parameter),
    "torch._utils._rebuild_parameter_with_state": Replacement(_parameter),
    "torch._tensor._rebuild_from_type_v2": Replacement(_from_type),
    "torch.Size": Replacement(lambda _, sizes=(): check_sizes(sizes)),
    "collections.OrderedDict": Replacement(_mapping),
    "collections.Counter": Replacement(_mapping),
    "collections.defaultdict": Replacement(
        lambda budget, _factory=None, content=(): _mapping(budget, content)
    ),
    "collections.deque": Replacement(lambda _, items=(), _length=None: _items(items)),
    "builtins.dict": Replacement(_mapping),
    "builtins.list": Replacement(lambda _, items=(): _items(items)),
    "builtins.tuple": Replacement(lambda _, items=(): tuple(_items(items))),
    "builtins.set": Replacement(lambda budget, items=(): set(_hashed(budget, items))),
    "builtins.frozenset": Replacement(lambda budget, items=(): frozenset(_hashed(budget, items))),
    "builtins.bytes": Replacement(_plain_bytes),
    "builtins.bytearray": Replacement(lambda *args: bytearray(_plain_bytes(*args))),
    "builtins.int": _number(int),
    "builtins.float": _number(float),
    "builtins.bool": _number(bool),
    "builtins.complex": Replacement(_complex),
    "builtins.str": Replacement(_text),
    "builtins.getattr": Replacement(_attribute),
    "_codecs.encode": Replacement(_encode),
    "copyreg._reconstructor": Replacement(_instance),
    "numpy.dtype": Replacement(_numpy_type),
    **{
        f"{package}.{name}": replacement
        for package in ("numpy.core", "numpy._core")
        for name, replacement in {
            "multiarray._reconstruct": Replacement(_empty_array),
            "multiarray.scalar": Replacement(_scalar),
            "numeric._frombuffer": Replacement(_array_from_buffer),
        }.items()
    },
    **{
        f"{package}.{name}": StorageType(dtype)
        for package in ("torch", "torch.cuda")
        for name, dtype in _STORAGE_DTYPES.items()
    },
    "torch.storage.UntypedStorage": StorageType(torch.uint8),
    **{path: InertClass(path) for path in _CLASSES},
}
"""Replacement of each global."""
