"""Pickles as data: nothing that a file names is imported or called. It runs in a child process.

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

Time and memory are bounded by the limits of the process (child.py). Nothing here needs torch.
"""

import pickle
import re
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from transfer.convert.stand_ins import (
    MALFORMED,
    STAND_INS,
    NeedsCodeError,
    RefusedError,
    Replacement,
    Storage,
    inert_class,
)

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

PYTHON_2 = {"__builtin__": "builtins", "copy_reg": "copyreg"}


def find_global(module: str, name: str) -> object:
    """Return what stands for a global; NeedsCodeError if nothing may."""
    path = f"{PYTHON_2.get(module, module)}.{name}"
    if path in STAND_INS:
        return STAND_INS[path]
    if re.fullmatch(r"torch\.(b?float|u?int|complex|bool)\w*", path):
        return path
    parents = {path.rsplit(".", depth)[0] for depth in range(min(path.count("."), 20) + 1)}
    if parents & INERT_PACKAGES:
        return inert_class(path)
    package = path.split(".")[0]
    if _is_library(package, module):
        if package in RUNNING_MODULES or not all(map(_names_class, name.split("."))):
            raise NeedsCodeError(path)
    elif RUNS_CODE.match(path) and not _names_class(path.rsplit(".", 1)[1]):
        raise NeedsCodeError(path)
    return inert_class(path, is_known=False)


def _is_library(package: str, module: str) -> bool:
    """Return whether a module belongs to Python and not to a user's package of the same name."""
    return package in LIBRARY and ("." not in module or package in PACKAGES)


def _names_class(word: str) -> bool:
    """Return whether a name is written like a class; functions have small letters."""
    return word.lstrip("_")[:1].isupper()


class InertUnpickler(pickle.Unpickler):
    """Python's reader of pickles, with what `find_global` hands out in place of every global."""

    def __init__(
        self,
        file: BinaryIO,
        storage: Callable[[Any], Storage] | None = None,
        nested: Callable[[object], object] | None = None,
    ) -> None:
        """Read from a file.

        storage: looks up a persistent id; nested: reads a torch file that is a value of a pickle.
        """
        super().__init__(file, encoding="latin1")
        self.storage, self.nested = storage, nested
        self.known: dict[tuple[str, str], object] = {}

    def find_class(self, module: str, name: str, /) -> Any:
        """Return what stands for a global."""
        if (module, name) == ("torch.storage", "_load_from_bytes") and self.nested is not None:
            return Replacement(self.nested)
        if (module, name) not in self.known:
            self.known[module, name] = find_global(module, name)
        return self.known[module, name]

    def persistent_load(self, identity: Any, /) -> Storage:
        """Return the storage that a persistent id names."""
        if self.storage is None:
            raise pickle.UnpicklingError(
                f"the pickle refers to data outside of it by a {type(identity).__name__}"
            )
        return self.storage(identity)


def load_pickle(
    file: BinaryIO,
    storage: Callable[[Any], Storage] | None = None,
    nested: Callable[[object], object] | None = None,
) -> Any:
    """Return the next pickle of a file as plain containers of Tensor, numbers, text and Inert.

    RefusedError if the pickle is damaged or needs code execution.
    """
    try:
        return InertUnpickler(file, storage, nested).load()
    except MALFORMED as error:
        raise RefusedError(
            f"the pickle in it is cut off or damaged ({type(error).__name__}: "
            f"{str(error)[:300]}); fetch the file again and compare its size with the source"
        ) from error
