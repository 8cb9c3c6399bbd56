"""A reader that treats pickles as data: nothing that a file names is ever imported or called.

A pickle is a small program. Its only way to foreign code is a *global*, "module.name", which the
ordinary reader imports and then calls with arguments from the file. Here a global is looked up
instead:

- what rebuilds tensors, arrays and containers is replaced (untrusted/replacements.py);
- classes become inert: their objects store the arguments and do nothing, so that the tensors
  beside them can be read. Tensors *inside* an object of an unknown class stay hidden, since only
  the class knows what they mean;
- other functions of torch and NumPy are not called: what they would have made is inert, too;
- functions known to run code, and all of Python's own library, are an error that names them.
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

CODE = sys.stdlib_module_names | {"commands", "cPickle", "popen2"}
"""Python's own modules, and those of Python 2 that run programs."""

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
    if package in CODE:
        raise NeedsCodeError.for_global(path)
    if package in ("torch", "numpy") and not path.rsplit(".", 1)[1].lstrip("_")[:1].isupper():
        if RUNS_CODE.match(path):
            raise NeedsCodeError.for_global(path)
        return ForeignFunction(path)
    return InertClass(path, is_known=False)


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
