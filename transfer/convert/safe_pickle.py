"""A reader that treats pickles as data: nothing that a file names is ever imported or called.

A pickle is a small program. Its only way to foreign code is a *global*, "module.name", which the
ordinary reader imports and then calls with arguments from the file. Here a global is looked up
instead:

- what rebuilds tensors, arrays and containers is replaced (untrusted/replacements.py);
- classes become inert: their objects store the arguments and do nothing, so that the tensors
  beside them can be read. Tensors *inside* an object of an unknown class stay hidden, since only
  the class knows what they mean;
- other functions of torch and NumPy are not called: what they would have made is inert, too;
- what is known to run code is an error that names it, and so is every function of Python's own
  library. Its classes are inert unless they belong to a module that runs code.
"""

import pickle
import re
import struct
import sys
from collections.abc import Callable
from typing import Any

from transfer.convert.architectures import BackboneError
from transfer.convert.untrusted.budget import Budget
from transfer.convert.untrusted.machine import ByteReader, PickleMachine
from transfer.convert.untrusted.objects import (
    ForeignFunction,
    Inert,
    InertClass,
    NeedsCodeError,
    Replacement,
    Storage,
    StorageType,
    StoredTensor,
)
from transfer.convert.untrusted.opcodes import OPCODES
from transfer.convert.untrusted.replacements import REPLACEMENTS, NumpyArray

__all__ = [
    "Budget",
    "ByteReader",
    "Inert",
    "NeedsCodeError",
    "NumpyArray",
    "Storage",
    "StorageType",
    "StoredTensor",
    "load_pickle",
]

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

# fmt: off
INERT_PACKAGES = frozenset({
    "argparse", "pathlib", "datetime", "uuid", "typing", "types.SimpleNamespace", "decimal.Decimal",
    "fractions.Fraction", "functools.partial", "logging", "random.Random", "re._compile",
    "omegaconf", "yacs", "addict", "easydict", "ml_collections", "munch",
    "box", "lightning", "pytorch_lightning", "lightning_fabric",
    "lightning_utilities", "mmengine", "mmcv", "vissl", "classy_vision", "fvcore", "numpy.random",
})
# fmt: on
"""Packages (or single names) whose objects in checkpoints are configuration and logs."""

# fmt: off
RUNNING_MODULES = frozenset({
    # programs, processes and threads
    "os", "posix", "nt", "subprocess", "_posixsubprocess", "pty", "multiprocessing", "concurrent",
    "asyncio", "threading", "_thread", "sched", "signal", "webbrowser", "platform", "commands",
    "popen2", "ensurepip", "venv", "idlelib", "turtledemo", "tkinter", "antigravity",
    # Python code, its import, compilation and examination
    "sys", "importlib", "imp", "runpy", "pkgutil", "zipimport", "zipapp", "site", "code", "codeop",
    "timeit", "pdb", "bdb", "cmd", "profile", "cProfile", "_lsprof", "trace", "doctest", "pydoc",
    "py_compile", "compileall", "inspect", "gc", "ast", "symtable", "atexit", "faulthandler",
    # functions, code and frames as objects, and ways to call them
    "types", "operator", "_operator", "functools", "_functools", "weakref",
    # programs in files, and memory of the process
    "pickle", "_pickle", "cPickle", "marshal", "shelve", "copyreg", "ctypes", "_ctypes", "mmap",
    "unittest", "distutils", "lib2to3",
})
# fmt: on
"""Modules of Python, also of Python 2, that run code or programs, or hand out what does."""

# fmt: off
PACKAGES = frozenset({
    "asyncio", "collections", "compression", "concurrent", "ctypes", "curses", "dbm", "distutils",
    "email", "encodings", "ensurepip", "html", "http", "idlelib", "importlib", "json", "lib2to3",
    "logging", "multiprocessing", "os", "pathlib", "pydoc_data", "re", "sqlite3", "string", "sys",
    "sysconfig", "test", "tkinter", "tomllib", "turtledemo", "unittest", "urllib", "venv",
    "wsgiref", "xml", "xmlrpc", "zipfile", "zoneinfo",
})
# fmt: on
"""Modules of Python that have modules within; `code.utils` can only be a user's own."""

LIBRARY = sys.stdlib_module_names | RUNNING_MODULES
"""Python's own modules."""

RUNS_CODE = re.compile(
    r"torch\.(load|compile|hub|jit|package|export|ops|_dynamo|_inductor|distributed\.rpc"
    r"|serialization\.load|storage\._load_from_bytes|utils\.cpp_extension|fx\.graph_module)"
    r"|numpy\.(load|lib\._?npyio|distutils|f2py|testing|ctypeslib|[\w.]*\b_?pickle)"
)
"""Functions of torch and NumPy that load pickles or libraries, or execute text."""

_PYTHON_2 = {"__builtin__": "builtins", "copy_reg": "copyreg"}


def find_replacement(module: str, name: str) -> object:
    """Return what stands for a global; NeedsCodeError if nothing may."""
    path = f"{_PYTHON_2.get(module, module)}.{name}"
    if path in REPLACEMENTS:
        return REPLACEMENTS[path]
    if re.fullmatch(r"torch\.(b?float|u?int|complex|bool)\w*", path):
        return path
    parents = {path.rsplit(".", depth)[0] for depth in range(min(path.count("."), 20) + 1)}
    if parents & INERT_PACKAGES:
        return InertClass(path)
    package = path.split(".")[0]
    if _is_library(package, module):
        if package in RUNNING_MODULES or not all(map(_names_class, name.split("."))):
            raise NeedsCodeError.for_global(path)
    elif package in ("torch", "numpy") and not _names_class(path.rsplit(".", 1)[1]):
        if RUNS_CODE.match(path):
            raise NeedsCodeError.for_global(path)
        return ForeignFunction(path)
    return InertClass(path, is_known=False)


def _is_library(package: str, module: str) -> bool:
    """Return whether a module belongs to Python and not to a user's package of the same name."""
    return package in LIBRARY and ("." not in module or package in PACKAGES)


def _names_class(word: str) -> bool:
    """Return whether a name is written like a class; functions have small letters."""
    return word.lstrip("_")[:1].isupper()


def load_pickle(
    reader: ByteReader,
    *,
    budget: Budget | None = None,
    storage: Callable[[Any], Storage] | None = None,
    nested: Callable[[Budget, object], object] | None = None,
) -> Any:
    """Return the next pickle as plain containers of StoredTensor, numbers, text and Inert.

    budget: what the whole file may cost; `storage` looks up a persistent id, `nested` reads a torch
    file inside the pickle. BackboneError if the pickle is damaged, needs code execution or costs
    too much.
    """
    budget = budget or Budget(len(reader.data))

    def find_global(module: str, name: str) -> object:
        if (module, name) == ("torch.storage", "_load_from_bytes") and nested is not None:
            return Replacement(nested, copies=False)
        return find_replacement(module, name)

    def load_persistent(identity: object) -> Storage:
        if storage is None:
            raise pickle.UnpicklingError(
                f"the pickle refers to data outside of it by a {type(identity).__name__}"
            )
        return storage(identity)

    try:
        return PickleMachine(reader, budget, find_global, load_persistent).run(OPCODES)
    except BackboneError:
        raise
    except MALFORMED as error:
        raise BackboneError(
            f"the pickle in it is cut off or damaged ({type(error).__name__}: "
            f"{str(error)[:300]}); fetch the file again and compare its size with the source"
        ) from error
