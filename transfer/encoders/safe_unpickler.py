"""Unpickle files without importing or calling anything that they name.

Python's own unpickler reads the file. `find_class` returns the functions of REBUILDS for the names
that rebuild tensors, arrays and dicts. For every other name, such as `os.system`, it returns a
class that only stores its arguments. `torch.load` uses this module as its `pickle_module`.
"""

import io
import pickle
import re
import sys
import warnings
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor
from torch.storage import TypedStorage

from transfer.encoders.architectures import BackboneError
from transfer.encoders.file_types import is_legacy

RUNS_PROGRAMS = re.compile(
    r"(os|posix|nt|pty|subprocess|commands|runpy|importlib|ctypes|socket|shutil|webbrowser)\."
    r"|builtins\.(eval|exec|execfile|compile|open|__import__)$|_?io\.open$"
)
"""Pattern of names that run programs, for a clearer error message."""
REBUILDING = re.compile(r"rebuild|mareconstruct")
"""Pattern of functions that create a tensor or an array."""


class Inert:
    """Replacement for an object of any class: items, arguments and state."""

    path = ""
    """Module and name of the class."""
    dump_patches = False  # torch asks the modules of legacy files

    def __new__(cls, *args: object, **keywords: object) -> "Inert":
        instance = super().__new__(cls)
        instance.items, instance.attributes = [], [*args, *keywords.values()]
        return instance

    def __init__(self, *_: object, **__: object) -> None:
        self.items: list[tuple[object, object]]
        """Entries of a mapping or a sequence."""
        self.attributes: list[object]
        """Arguments and state, which only the class can interpret."""

    def __setitem__(self, key: object, value: object) -> None:
        self.items.append((key, value))

    def append(self, item: object) -> None:
        """Store an item."""
        self.items.append((len(self.items), item))

    def __setstate__(self, state: object) -> None:
        self.attributes.append(state)

    add = append


def inert_class(path: str) -> type[Inert]:
    """Return a replacement for the class or function at this path."""
    return type("Inert", (Inert,), {"path": path})


class Items(dict[Any, Any]):
    """Replacement for OrderedDict and similar classes, without attributes such as _metadata."""

    def __setstate__(self, _: object) -> None:
        """Ignore the state."""


class Untyped:
    """Replacement for torch's untyped storage."""

    dtype = torch.uint8


def _tensor(storage: Any, first: Any, size: Any, steps: Any, *_: object) -> Tensor:
    rebuilt: Tensor = torch._utils._rebuild_tensor(storage, first, torch.Size(size), tuple(steps))
    return rebuilt


def _subclass(rebuild: Any, kind: Any, args: Any, _: object) -> Any:
    if rebuild is _tensor:
        return _tensor(*args)
    return inert_class(f"{kind.path} by {rebuild.path}")(*args)


def _nested(content: bytes) -> Any:
    """Return the object in a legacy torch file inside a pickle.

    `pickle.dump` stores a tensor in this way.
    """
    if not is_legacy(content):  # torch would run a TorchScript archive
        raise pickle.UnpicklingError("a tensor inside it is not in torch's format")
    return load_torch(io.BytesIO(content))


def _reconstructed(kind: type[Inert], _: object, items: object = None) -> Inert:
    """Return an object of pickle protocols 0 and 1.

    A subclass of dict comes with its items.
    """
    instance = kind()
    if isinstance(items, dict):
        instance.items.extend(items.items())
    return instance


REBUILDS: dict[str, Any] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    "torch._utils._rebuild_parameter_with_state": lambda data, *_: data,
    "torch._tensor._rebuild_from_type_v2": _subclass,
    "torch.storage._load_from_bytes": _nested,
    "torch.storage.UntypedStorage": Untyped(),
    "torch.Size": tuple,
    "collections.OrderedDict": Items,
    "collections.defaultdict": lambda *_: Items(),
    "collections.Counter": Items,
    "builtins.bytes": bytes,
    "copyreg._reconstructor": _reconstructed,
    "_codecs.encode": lambda text, *_: text.encode("latin1"),
    "numpy.dtype": np.dtype,
    # shape and values are in the state
    "numpy.core.multiarray._reconstruct": lambda *_: np.empty(0),
    "numpy.core.numeric._frombuffer": lambda data, kind, shape, order: np.frombuffer(
        data, kind
    ).reshape(shape, order=order),
}
"""Replacements that rebuild data; every other name gets an inert class."""
MOVED = {"numpy._core.": "numpy.core.", "copy_reg.": "copyreg.", "__builtin__.": "builtins."}
"""New names of modules -> the names in REBUILDS."""


class Unpickler(pickle.Unpickler):
    """Python's unpickler with a replacement for every name."""

    def __init__(self, file: BinaryIO, **_: object) -> None:
        super().__init__(file, encoding="latin1")

    def find_class(self, module: str, name: str, /) -> Any:
        """Return the replacement for a name."""
        path = f"{module}.{name}"
        for old, new in MOVED.items():
            path = path.replace(old, new, 1) if path.startswith(old) else path
        if RUNS_PROGRAMS.match(path):
            raise BackboneError(
                f"the pickle names {path[:160]}, which runs programs. It was not executed. Do not "
                f"load this file with other software"
            )
        return REBUILDS[path] if path in REBUILDS else inert_class(path)


def load(file: BinaryIO, **_: object) -> Any:
    """Return the next pickle of a file.

    `torch.load` calls it for the start of a legacy file.
    """
    loaded = Unpickler(file).load()
    if isinstance(loaded, dict) and loaded.get("little_endian") is False:
        raise BackboneError(BIG_ENDIAN)
    return loaded


BIG_ENDIAN = "the file was written on a big-endian machine; save it again on a little-endian one"


def load_torch(file: BinaryIO | str, *, mmap: bool = False) -> Any:
    """Return the object in a torch file.

    The file must be neither TorchScript nor a tar archive.
    """
    with warnings.catch_warnings(action="ignore"):
        return torch.load(
            file, "cpu", sys.modules[__name__], weights_only=False, mmap=mmap, encoding="latin1"
        )


def holds_numbers(node: object) -> bool:
    """Return whether an object is or replaces a tensor, array or storage."""
    if isinstance(node, Inert):
        return REBUILDING.search(node.path) is not None
    return isinstance(node, Tensor | TypedStorage | np.ndarray)
