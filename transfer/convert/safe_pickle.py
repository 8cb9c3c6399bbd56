"""A reader that treats pickles as data: nothing that a file names is ever imported or called.

A pickle is a small program. Its only way to foreign code is a *global*, "module.name", which the
ordinary reader imports and then calls with arguments from the file. Here each global is looked up
in a closed table instead:

- functions that rebuild tensors, arrays and containers are replaced by functions of this file,
  which check their arguments and only describe the tensor (`StoredTensor`); bytes are read later;
- configuration classes in real checkpoints become `Inert` objects, which store their arguments
  and do nothing;
- every other global is an error that names it.

The pickle's other opcodes cannot bypass this. They call, build or extend only objects that a
global returned, and all of these are defined here (`Closed` refuses to be altered).
"""

import pickle
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import numpy as np
import torch
from torch import Tensor

from transfer.convert.architectures import BackboneError

MALFORMED = (
    pickle.UnpicklingError,
    struct.error,
    EOFError,
    ValueError,  # of which UnicodeDecodeError is one
    TypeError,
    AttributeError,
    LookupError,
    OverflowError,
    MemoryError,
    RecursionError,
)
"""Errors that reading a damaged or hostile pickle can raise."""


class NeedsCodeError(BackboneError):
    """Error for a pickle that only code execution could load."""


class ReadableFile(Protocol):
    """The file interface that the unpickler needs: an open file, a BytesIO, or a memory map."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes."""

    def readline(self) -> bytes:
        """Return the bytes up to the next end of line."""


class Closed:
    """Base class that refuses the BUILD opcode, which would overwrite attributes."""

    def __setstate__(self, state: object) -> NoReturn:
        raise pickle.UnpicklingError(f"the pickle tries to alter a {type(self).__name__}")


@dataclass(frozen=True, eq=False)
class StoredTensor(Closed):
    """Description of a tensor of the file; `read` reads its values."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    read: Callable[[], Tensor]

    @property
    def num_values(self) -> int:
        """Number of values, the product of the shape; exact for any sizes that a file claims."""
        return int(np.prod(self.shape, dtype=object)) if self.shape else 1


@dataclass(frozen=True, eq=False)
class Storage(Closed):
    """A sequence of `num_values` numbers in the file, of which tensors are views."""

    dtype: torch.dtype
    num_values: int
    read: Callable[[], Tensor]
    """Function that returns a tensor (num_values,)."""


class Inert:
    """Replacement for objects of configuration classes: stores its arguments and does nothing."""

    parts: list[object]

    def __new__(cls, *args: object, **kwargs: object) -> "Inert":
        self = super().__new__(cls)
        self.parts = [*args, *kwargs.values()]
        return self

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        self.parts.append(state)

    def __setitem__(self, key: object, value: object) -> None:
        self.parts.append({str(key): value})

    def append(self, item: object) -> None:
        """Store an item (the APPEND opcode)."""
        self.parts.append(item)

    def extend(self, items: list[object]) -> None:
        """Store items (the APPENDS opcode)."""
        self.parts.extend(items)

    def add(self, item: object) -> None:
        """Store an item (the ADDITEMS opcode)."""
        self.parts.append(item)


class InertDict(dict[Any, Any]):
    """Replacement for OrderedDict and similar; drops attributes such as _metadata."""

    def __setstate__(self, state: object) -> None:
        pass


class Replacement(Closed):
    """A function of this file that replaces one global."""

    def __init__(self, call: Callable[..., object]) -> None:
        self._call = call

    def __call__(self, *args: object) -> object:
        return self._call(*args)


@dataclass(frozen=True, eq=False)
class StorageType(Closed):
    """Replacement for torch.FloatStorage and similar."""

    dtype: torch.dtype


class NumpyType:
    """Replacement for numpy.dtype; only plain numbers can become tensors."""

    def __init__(self, code: object, *_: object) -> None:
        self.code = str(code)
        self.byte_order = "<"

    def __setstate__(self, state: tuple[object, ...]) -> None:
        self.byte_order = ">" if state[1] == ">" else "<"


class NumpyArray:
    """Replacement for numpy.ndarray; `rest` holds the data if they are not plain numbers."""

    def __init__(self) -> None:
        self.stored: StoredTensor | None = None
        self.rest: object = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, column_major, data = state
        self.stored = _array(data, kind, shape, "F" if column_major else "C")
        self.rest = None if self.stored else data


_NUMPY_TO_TORCH = {
    code: torch.from_numpy(np.zeros(1, dtype=code)).dtype
    for code in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "b1")
}


def _array(
    data: object, kind: NumpyType, shape: tuple[int, ...], order: Any
) -> StoredTensor | None:
    """Return the array as a stored tensor; None if it does not hold plain numbers."""
    if kind.code not in _NUMPY_TO_TORCH:
        return None
    # Python 2 wrote bytes as text with one character per byte
    raw = data.encode("latin1") if isinstance(data, str) else data
    if not isinstance(raw, bytes | bytearray):
        raise pickle.UnpicklingError(f"an array holds {type(raw).__name__} instead of bytes")
    shape = _sizes(shape)
    found = np.frombuffer(raw, dtype=np.dtype(kind.byte_order + kind.code))
    values = found.reshape(shape, order=order)  # raises where the number of bytes does not fit

    def read() -> Tensor:
        return torch.from_numpy(np.array(values, dtype=np.dtype(kind.code), order="C"))

    return StoredTensor(_NUMPY_TO_TORCH[kind.code], shape, read)


def _sizes(values: Any) -> tuple[int, ...]:
    sizes = tuple(values)
    if not all(type(size) is int and size >= 0 for size in sizes):
        raise pickle.UnpicklingError(f"a tensor has the sizes or strides {sizes}")
    return sizes


def _tensor(storage: object, offset: object, size: Any, stride: Any, *_: object) -> StoredTensor:
    if not isinstance(storage, Storage):
        raise pickle.UnpicklingError(f"a tensor lies in a {type(storage).__name__}")
    (start,), shape, steps = _sizes([offset]), _sizes(size), _sizes(stride)
    if len(shape) != len(steps):
        raise pickle.UnpicklingError(f"a tensor has sizes {shape} but strides {steps}")
    last = start + sum((length - 1) * step for length, step in zip(shape, steps, strict=True))
    if 0 not in shape and last >= storage.num_values:
        raise pickle.UnpicklingError(f"a tensor reaches value {last} of {storage.num_values}")
    return StoredTensor(
        storage.dtype, shape, lambda: torch.as_strided(storage.read(), shape, steps, start)
    )


def _parameter(data: object, *_: object) -> object:
    return data


def _from_type(function: object, _type: object, args: tuple[object, ...], _state: object) -> object:
    if not isinstance(function, Replacement):
        raise pickle.UnpicklingError(
            f"a tensor subclass is rebuilt by a {type(function).__name__}, not by torch"
        )
    return function(*args)


def _encode(text: object, encoding: object = "latin1") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"bytes are spelled as {type(text).__name__} in {encoding!r}")
    return text.encode("latin1")


def _empty_array(*_: object) -> NumpyArray:
    return NumpyArray()


def _array_from_buffer(data: object, kind: Any, shape: Any, order: Any) -> NumpyArray:
    array = NumpyArray()
    array.stored = _array(data, kind, shape, order)
    return array


def _inert(*args: object) -> Inert:
    return Inert(*args)


def _attribute(owner: object, _name: object) -> Inert:
    """Replace getattr, by which mmengine's logs name methods of their own classes."""
    if owner is not Inert and not isinstance(owner, Inert):
        raise NeedsCodeError(
            f"the pickle takes an attribute of a {type(owner).__name__}, which is not plain data"
        )
    return Inert()


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
}

REPLACEMENTS: dict[str, object] = {
    "torch._utils._rebuild_tensor": Replacement(_tensor),
    "torch._utils._rebuild_tensor_v2": Replacement(_tensor),
    "torch._utils._rebuild_parameter": Replacement(_parameter),
    "torch._utils._rebuild_parameter_with_state": Replacement(_parameter),
    "torch._tensor._rebuild_from_type_v2": Replacement(_from_type),
    "torch.Size": Replacement(lambda sizes=(): tuple(sizes)),
    "collections.OrderedDict": Replacement(InertDict),
    "collections.Counter": Replacement(InertDict),
    "collections.defaultdict": Replacement(lambda _factory=None, *rest: InertDict(*rest)),
    "collections.deque": Replacement(lambda items=(), *_: list(items)),
    **{
        f"builtins.{kind.__name__}": Replacement(kind)
        for kind in (
            *(dict, list, tuple, set, frozenset),
            *(bytes, bytearray, complex, int, float, str, bool),
        )
    },
    "_codecs.encode": Replacement(_encode),
    "copyreg._reconstructor": Replacement(_inert),
    "numpy.dtype": Replacement(NumpyType),
    "numpy.ndarray": Inert,
    **{
        f"{package}.{name}": replacement
        for package in ("numpy.core", "numpy._core")
        for name, replacement in {
            "multiarray._reconstruct": Replacement(_empty_array),
            "multiarray.scalar": Replacement(_inert),
            "numeric._frombuffer": Replacement(_array_from_buffer),
        }.items()
    },
    **{
        f"{package}.{name}": StorageType(dtype)
        for package in ("torch", "torch.cuda")
        for name, dtype in _STORAGE_DTYPES.items()
    },
    "torch.storage.UntypedStorage": StorageType(torch.uint8),
    "torch.Tensor": Inert,
    "torch.nn.parameter.Parameter": Inert,
    "torch.device": Inert,
    "torch.torch_version.TorchVersion": Inert,
    "builtins.getattr": Replacement(_attribute),
    "builtins.object": Inert,
    "builtins.slice": Inert,
    "builtins.range": Inert,
}
"""Replacement of each global; a pickle can reach nothing else of torch, numpy or Python."""

# fmt: off
INERT_PACKAGES = frozenset({
    "argparse", "pathlib", "datetime", "uuid", "typing", "types.SimpleNamespace",
    "omegaconf", "yacs", "addict", "easydict", "ml_collections", "munch",
    "box", "lightning", "pytorch_lightning", "lightning_fabric",
    "lightning_utilities", "mmengine", "mmcv", "vissl", "classy_vision", "fvcore", "numpy.random",
})
# fmt: on
"""Packages (or single names) whose objects in checkpoints are configuration and logs."""

_PYTHON_2 = {"__builtin__": "builtins", "copy_reg": "copyreg"}


class SafeUnpickler(pickle._Unpickler):
    """Unpickler that raises BackboneError at a global outside the table.

    It extends the implementation in Python, not the one in C: a single damaged number can make the
    latter allocate tens of gigabytes (its memo is an array). Checkpoints hold few opcodes, so the
    speed is the same.
    """

    def __init__(
        self,
        file: ReadableFile,
        *,
        storage: Callable[[Any], Storage] | None = None,
        nested: Callable[[bytes], object] | None = None,
    ) -> None:
        """Open a pickle; `storage` looks up a persistent id, `nested` reads a torch file in it."""
        # latin1 maps every byte, so that text of Python 2 is preserved
        super().__init__(file, encoding="latin1")
        self._storage = storage
        self._nested = nested

    def find_class(self, module: str, name: str) -> object:
        """Return the replacement of a global; called for every opcode that names one."""
        path = f"{_PYTHON_2.get(module, module)}.{name}"
        if path == "torch.storage._load_from_bytes" and self._nested is not None:
            return Replacement(self._nested)
        if path in REPLACEMENTS:
            return REPLACEMENTS[path]
        if re.fullmatch(r"torch\.(b?float|u?int|complex|bool)\w*", path):
            return path
        parents = {path.rsplit(".", depth)[0] for depth in range(path.count(".") + 1)}
        if parents & INERT_PACKAGES:
            return Inert
        raise NeedsCodeError(
            f"the pickle names {path!r}, which is neither a tensor nor plain data: the file needs "
            f"code execution to load, and untrusted pickles are never executed. Where you trust "
            f"its source, load it there and save only model.state_dict()"
        )

    def persistent_load(self, identity: object) -> Storage:
        """Return the storage with this identity in the torch file."""
        if self._storage is None:
            raise pickle.UnpicklingError(
                f"the pickle refers to data outside of it by a {type(identity).__name__}"
            )
        return self._storage(identity)


def load_pickle(
    file: ReadableFile,
    *,
    storage: Callable[[Any], Storage] | None = None,
    nested: Callable[[bytes], object] | None = None,
) -> Any:
    """Return the next pickle as plain containers of StoredTensor, numbers, text and Inert.

    BackboneError if the pickle is damaged or needs code execution.
    """
    try:
        return SafeUnpickler(file, storage=storage, nested=nested).load()
    except BackboneError:
        raise
    except MALFORMED as error:
        raise BackboneError(
            f"the pickle in it is cut off or damaged ({type(error).__name__}: {error}); "
            f"fetch the file again and compare its size with the source"
        ) from error
