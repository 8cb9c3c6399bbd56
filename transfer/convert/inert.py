"""Pickles as data: nothing that a file names is imported or called; `torch.load`'s pickle_module.

A pickle's only way to foreign code is a *global*, "module.name", which the ordinary reader imports
and then calls with arguments from the file. Python's own reader works here, too, but it gets for
each global what `find_global` hands out instead:

- for tensors, arrays and containers the functions and classes of STAND_INS;
- classes that keep their arguments and do nothing, so that the tensors beside such objects can be
  read. Tensors *inside* an object of an unknown class stay hidden: only the class knows what they
  mean;
- for other functions of torch and NumPy such a class as well;
- for what is known to run code, and for every function of Python's own library, an error that
  names it. Classes of the library are inert unless they belong to a module that runs code.

Time and memory are bounded by the limits of the process (child.py).
"""

import io
import os
import pickle
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor
from torch.storage import TypedStorage

from transfer.convert.architectures import BackboneError
from transfer.convert.layouts import NAMES
from transfer.convert.messages import shorten

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
"""First pickle of a file that torch before 1.6 wrote."""

INERT_PACKAGES = frozenset(NAMES["inert_packages"])
"""Packages (or single names) whose objects in checkpoints are configuration and logs."""
RUNNING_MODULES = frozenset(NAMES["running_modules"])
"""Modules of Python, also of Python 2, that run code or programs, or hand out what does."""
LIBRARY = sys.stdlib_module_names | RUNNING_MODULES
"""Python's own modules."""

RUNS_CODE = re.compile(
    r"torch\.(load|compile|hub|jit|package|export|ops|_dynamo|_inductor|distributed\.rpc"
    r"|serialization\.load|utils\.cpp_extension|fx\.graph_module)"
    r"|numpy\.(load|lib\._?npyio|distutils|f2py|testing|ctypeslib|[\w.]*\b_?pickle)"
)
"""Functions of torch and NumPy that load pickles or libraries, or execute text."""

PYTHON_2 = {"__builtin__": "builtins", "copy_reg": "copyreg"}


class Untyped:
    """A stand-in for torch's storage without a type."""

    dtype = torch.uint8


class Inert:
    """A stand-in for an object of some class: keeps arguments, state and items."""

    __slots__ = ("parts",)
    path = ""
    """Module and name of the class."""
    is_known = True
    """True if the class is known to hold configuration or logs only."""
    parts: list[object]

    def __new__(cls, *args: object, **keywords: object) -> "Inert":
        made = super().__new__(cls)
        made.parts = [*args, *keywords.values()]
        return made

    def __init__(self, *_args: object, **_keywords: object) -> None:
        """Accept what __new__ has kept."""

    def __setitem__(self, key: object, value: object) -> None:
        self.parts.append({key: value})

    def append(self, item: object) -> None:
        """Keep an item."""
        self.parts.append(item)

    def extend(self, items: list[object]) -> None:
        """Keep items."""
        self.parts.extend(items)

    __setstate__ = add = append


def inert_class(path: str, *, is_known: bool = True) -> type[Inert]:
    """Return the class that stands for the one at this path."""
    return type("Inert", (Inert,), {"__slots__": (), "path": path, "is_known": is_known})


class InertDict(dict[Any, Any]):
    """A stand-in for OrderedDict and similar; drops attributes such as _metadata."""

    def __setstate__(self, state: object) -> None:
        """Drop the state."""


def _tensor(storage: object, first: Any, size: Any, steps: Any, *_rest: object) -> Tensor:
    if not isinstance(storage, TypedStorage):
        raise pickle.UnpicklingError(f"a tensor lies in a {type(storage).__name__}")
    # torch would lengthen the storage of a legacy file by numbers that are not in the file
    last = first + sum((count - 1) * step for count, step in zip(size, steps, strict=True))
    end = (last + 1) * storage.dtype.itemsize
    if min((first, *size, *steps)) < 0 or (
        0 not in size and end > storage._untyped_storage.nbytes()
    ):
        raise pickle.UnpicklingError(f"a tensor of {shorten(size)} does not lie in its storage")
    return torch._utils._rebuild_tensor(storage, first, torch.Size(size), tuple(steps))  # type: ignore[no-any-return]


def _from_type(function: object, kind: object, args: object, _state: object) -> object:
    path = kind.path if isinstance(kind, type) and issubclass(kind, Inert) else ""
    if not isinstance(args, tuple):
        raise pickle.UnpicklingError(f"a tensor subclass is rebuilt of {shorten(args)}")
    if function is _tensor:
        return _tensor(*args)
    if isinstance(function, type) and issubclass(function, Inert) and not function.is_known:
        return inert_class(f"{path} by {function.path}", is_known=False)(*args)
    raise pickle.UnpicklingError(
        f"a tensor subclass is rebuilt by a {type(function).__name__}, not by torch"
    )


def _encode(text: object, encoding: object = "latin1") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", "iso-8859-1"):
        raise pickle.UnpicklingError(
            f"bytes are spelled as {type(text).__name__} in {shorten(encoding)}"
        )
    return text.encode("latin1")


def _instance(kind: object, *args: object) -> Inert:
    """Replace copyreg._reconstructor, which makes an object without calling its class."""
    known = isinstance(kind, type) and issubclass(kind, Inert)
    return kind(kind, *args) if known else inert_class("")(kind, *args)  # type: ignore[operator]


def _attribute(owner: object, _name: object) -> Inert:
    """Replace getattr, by which mmengine's logs name methods of their own classes."""
    kind = owner if isinstance(owner, type) else type(owner)
    if not issubclass(kind, Inert):
        raise BackboneError(needs_code(f"an attribute of a {type(owner).__name__}"))
    return inert_class(kind.path)()


def _nested(content: object) -> Any:
    """Return the object in a legacy torch file inside a pickle, as pickle.dump stores a tensor."""
    if not isinstance(content, bytes | bytearray) or load(io.BytesIO(content)) != LEGACY_MAGIC:
        raise pickle.UnpicklingError("a tensor inside it is not in torch's format")
    return load_torch(io.BytesIO(content))


_CLASSES = (
    *("numpy.ndarray", "torch.Tensor", "torch.nn.parameter.Parameter", "torch.device"),
    *("torch.torch_version.TorchVersion", "builtins.object", "builtins.slice", "builtins.range"),
)

STAND_INS: dict[str, object] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": lambda data, *_rest: data,
    "torch._utils._rebuild_parameter_with_state": lambda data, *_rest: data,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch.storage._load_from_bytes": _nested,
    "torch.storage.UntypedStorage": Untyped(),
    "torch.Size": tuple,
    "collections.OrderedDict": InertDict,
    "collections.Counter": InertDict,
    "collections.defaultdict": lambda _factory=None, content=(): InertDict(content),
    "collections.deque": lambda items=(), _length=None: list(items),
    **{
        f"builtins.{kind.__name__}": kind
        for kind in (dict, list, tuple, set, frozenset, bytes, bytearray, int, float, bool, complex)
    },
    "builtins.str": lambda text="": str(text),
    "builtins.getattr": _attribute,
    "_codecs.encode": _encode,
    "copyreg._reconstructor": _instance,
    "numpy.dtype": np.dtype,
    **{
        f"{package}.{name}": stand_in
        for package in ("numpy.core", "numpy._core")
        for name, stand_in in {
            # its shape and numbers come with its state
            "multiarray._reconstruct": lambda *_: np.empty(0),
            "multiarray.scalar": inert_class("numpy scalar"),
            "numeric._frombuffer": lambda data, kind, shape, order: np.frombuffer(
                data, kind
            ).reshape(shape, order=order),
        }.items()
    },
    **{path: inert_class(path) for path in _CLASSES},
}
"""The stand-in of each global."""


def find_global(module: str, name: str) -> object:
    """Return what stands for a global; BackboneError if nothing may."""
    path = f"{PYTHON_2.get(module, module)}.{name}"
    if path in STAND_INS:
        return STAND_INS[path]
    if re.fullmatch(r"torch\.(b?float|u?int|complex|bool)\w*", path):
        return path
    parents = {path.rsplit(".", depth)[0] for depth in range(min(path.count("."), 20) + 1)}
    if parents & INERT_PACKAGES:
        return inert_class(path)
    package = path.split(".")[0]
    # `code.utils` can only be a user's own, since Python's `code` has no modules in it
    has_modules = package in ("os", "sys") or (Path(os.__file__).parent / package).is_dir()
    if package in LIBRARY and ("." not in module or has_modules):
        if package in RUNNING_MODULES or not all(map(_names_class, name.split("."))):
            raise BackboneError(needs_code(path))
    elif RUNS_CODE.match(path) and not _names_class(path.rsplit(".", 1)[1]):
        raise BackboneError(needs_code(path))
    return inert_class(path, is_known=False)


def _names_class(word: str) -> bool:
    """Return whether a name is written like a class; functions have small letters."""
    return word.lstrip("_")[:1].isupper()


class Unpickler(pickle.Unpickler):
    """Python's reader of pickles, with what `find_global` hands out in place of every global."""

    def __init__(self, file: BinaryIO, **_: object) -> None:
        super().__init__(file, encoding="latin1")
        self.known: dict[tuple[str, str], object] = {}

    def find_class(self, module: str, name: str, /) -> Any:
        """Return what stands for a global."""
        if (module, name) not in self.known:
            self.known[module, name] = find_global(module, name)
        return self.known[module, name]

    def __setattr__(self, name: str, value: Any) -> None:
        """Let torch's persistent_load see identities of storages alone, not those of modules."""
        of_storages = partial(_storage, value) if name == "persistent_load" else value
        super().__setattr__(name, of_storages)


def _storage(by_torch: Callable[[object], object], identity: object) -> object:
    match identity:
        case ("storage", _, str(), str() | bytes(), int(), *_):
            return by_torch(identity)
    raise pickle.UnpicklingError(f"it refers to outside data as {shorten(identity)}")


def load(file: BinaryIO, **_: object) -> Any:
    """Return the next pickle of a file; `torch.load` calls it for the head of a legacy file."""
    found = Unpickler(file).load()
    if isinstance(found, dict) and found.get("little_endian") is False:
        raise BackboneError(BIG_ENDIAN)
    return found


def load_torch(file: BinaryIO | str, *, is_mapped: bool = False) -> Any:
    """Return the object in a torch file, which is no TorchScript and no tar archive."""
    this = sys.modules[__name__]
    return torch.load(file, "cpu", this, weights_only=False, mmap=is_mapped, encoding="latin1")


BIG_ENDIAN = "the file was written on a big-endian machine; save it again on a little-endian one"


def needs_code(path: str) -> str:
    """Return the sentence on a class or function that would have to be called."""
    return (
        f"the pickle names {shorten(path)}, no tensor and no plain data: it needs code execution, "
        f"which is never done. Where you trust its source, load it and save model.state_dict()"
    )
