"""Open a checkpoint of any format and list its contents, without executing any of it.

The first bytes decide the format, never the file name.
"""

import gc
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transfer.convert.architectures import BackboneError
from transfer.convert.safe_pickle import (
    Budget,
    ByteReader,
    NeedsCodeError,
    StoredTensor,
    load_pickle,
)
from transfer.convert.torch_file import LEGACY_MAGIC, read_legacy, read_nested, read_zip
from transfer.convert.untrusted.budget import shorten
from transfer.convert.untrusted.containers import MAX_NAME, Opaque, check_extent, leaves
from transfer.convert.untrusted.safetensors_file import is_safetensors, read_safetensors

_OTHER_FORMATS = {
    b"version https://git-lfs": "a Git LFS pointer, not the file itself: run `git lfs pull`",
    b"<": "a web page or XML, not a checkpoint: open the link in a browser and save the file",
    b"\x1f\x8b": "a gzip archive: unpack it first",
    b"\x89HDF": "HDF5 (Keras); convert it to a PyTorch state dict first",
}


@dataclass(frozen=True)
class Contents:
    """The contents of a file."""

    tree: Any
    """Nested dicts and lists of the file, with tensors as StoredTensor."""
    tensors: dict[str, StoredTensor]
    """Every tensor, named by the keys that lead to it, joined by dots."""
    values: dict[str, str | int | float]
    """Plain values, named in the same way, for example {"epoch": 200, "arch": "resnet50"}."""
    opaque: dict[str, Opaque]
    """Objects that are not read, named in the same way; only foreign code could make them."""
    configurations: tuple[str, ...] = ()
    """Classes of objects whose plain entries are among `values`."""


def read_file(path: Path) -> Contents:
    """Return the contents of a file; BackboneError if it is not a readable checkpoint."""
    data = _map_file(path)
    budget = Budget(len(data))
    with _without_collection():
        tree = _read_tree(data, budget)
        check_extent(tree, budget)
        found = leaves(tree, budget)
    tensors: dict[str, StoredTensor] = {}
    values: dict[str, str | int | float] = {}
    for name, leaf in found.visible:
        if isinstance(leaf, StoredTensor):
            if len(name) >= MAX_NAME:
                raise BackboneError(f"the name of a tensor is too long: {shorten(name)}")
            if name in tensors:
                raise BackboneError(
                    f"two tensors are called {shorten(name)}; expected distinct names"
                )
            tensors[name] = leaf
        elif isinstance(leaf, str | int | float):
            values[name] = leaf
    for name, thing in found.opaque.items():
        if thing.holds_numbers and not tensors:
            raise NeedsCodeError.for_global(thing.path)
        if name in tensors:
            raise BackboneError(
                f"a tensor and an object of {shorten(thing.path)} are both called "
                f"{shorten(name)}; expected distinct names"
            )
    return Contents(tree, tensors, values, found.opaque, found.configurations)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Pause the search for garbage in cycles: among millions of objects it takes half of the time.

    What a file asks for is bounded by its budget.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _map_file(path: Path) -> memoryview:
    """Return the bytes of a file, of which only those in use are in memory."""
    try:
        if not path.is_file():
            what = "a folder" if path.is_dir() else "no such file"
            raise BackboneError(f"{what}; expected a checkpoint file")
        if path.stat().st_size == 0:
            raise BackboneError("the file is empty; fetch it again")
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise BackboneError(f"the file cannot be read ({error.strerror or error})") from error


def _read_tree(data: memoryview, budget: Budget) -> Any:
    start = bytes(data[:64])
    if is_safetensors(data):
        return read_safetensors(data)
    for magic, advice in _OTHER_FORMATS.items():
        if start.startswith(magic):
            raise BackboneError(f"this is {advice}")
    if bytes(data[257:262]) == b"ustar":
        raise BackboneError("this is a tar archive; unpack it first")
    if start.startswith(b"PK"):
        return read_zip(data, budget)
    if start[8:9] == b"{" and start[:1] != b"\x80":
        return read_safetensors(data)
    reader = ByteReader(data)
    try:
        first = load_pickle(reader, budget=budget, nested=read_nested)
    except NeedsCodeError:
        raise
    except BackboneError as error:
        if start.startswith(b"\x80"):
            raise
        raise BackboneError(
            f"this is no checkpoint: the file starts with {start[:16]!r}; expected a torch file "
            f"(zip or legacy), a pickle or safetensors"
        ) from error
    if isinstance(first, int) and first == LEGACY_MAGIC:
        return read_legacy(reader, budget)
    return first
