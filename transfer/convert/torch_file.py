"""Readers of the two containers of torch.save, the zip archive and the legacy file.

torch.load also accepts programs, tar archives and classes with their own code; these readers
accept tensors only. The file is mapped and numbers are read on demand, so that a checkpoint full of
optimizer state takes no more memory than its backbone.
"""

import struct
from functools import cache
from typing import Any

import torch

from transfer.convert.architectures import BackboneError
from transfer.convert.safe_pickle import (
    Budget,
    ByteReader,
    Storage,
    StorageType,
    load_pickle,
)
from transfer.convert.untrusted.budget import shorten
from transfer.convert.untrusted.zip_directory import FETCH_AGAIN, ZipEntry, read_directory

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
"""First pickle of a file that torch before 1.6 wrote; the second is the version, 1001."""


def _wrong_byte_order(found: str) -> BackboneError:
    return BackboneError(
        f"the file was written on a big-endian machine ({found}); save it again on a "
        "little-endian one"
    )


def read_zip(data: memoryview, budget: Budget) -> Any:
    """Return the object in a torch zip file."""
    entries = read_directory(data)
    root = _root(entries)
    order = entries.get(f"{root}/byteorder")
    if order is not None and bytes(order.content(data)) != b"little":
        raise _wrong_byte_order(f"its byte order is {shorten(bytes(order.content(data)))}")
    storages: dict[tuple[str, torch.dtype, int], Storage] = {}

    def storage(identity: Any) -> Storage:
        dtype, key, num_values = _storage_fields(identity)
        entry = entries.get(f"{root}/data/{key}")
        num_bytes = num_values * dtype.itemsize
        if entry is None or entry.size < num_bytes:
            size = entry.size if entry else "no"
            raise BackboneError(
                f"storage {shorten(key)} should hold {num_bytes} bytes, the archive has {size}; "
                + FETCH_AGAIN
            )
        made = Storage(dtype, num_values, cache(lambda: entry.content(data)))
        return storages.setdefault((key, dtype, num_values), made)

    content = entries[f"{root}/data.pkl"].content(data)
    return load_pickle(ByteReader(content), budget=budget, storage=storage, nested=read_nested)


def _root(entries: dict[str, ZipEntry]) -> str:
    """Return the top folder of a torch archive."""
    roots = [name.removesuffix("/data.pkl") for name in entries if name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise BackboneError(
            f"this zip archive was not written by torch.save: expected one data.pkl, "
            f"found {shorten(list(entries))}"
        )
    if any(name.startswith(f"{roots[0]}/code/") for name in entries):
        raise BackboneError(
            f"this is a TorchScript program ({shorten(roots[0])}/code/), which needs code "
            f"execution to load; where you trust its source, load it there and save only "
            f"model.state_dict()"
        )
    return roots[0]


def read_legacy(reader: ByteReader, budget: Budget, *, is_nested: bool = False) -> Any:
    """Return the object in a legacy torch file; the reader stands behind the magic number.

    is_nested: the file lies inside a pickle, and no further file may lie inside it.
    """
    version = load_pickle(reader, budget=budget)
    if version != 1001:
        raise BackboneError(
            f"this is a legacy torch file of version {shorten(version)}; expected 1001"
        )
    system = load_pickle(reader, budget=budget)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise _wrong_byte_order("not marked as little-endian")
    data = reader.data
    starts: dict[str, int] = {}
    storages: dict[str, Storage] = {}

    def storage(identity: Any) -> Storage:
        dtype, key, num_values = _storage_fields(identity)
        if len(identity) > 5 and identity[5] is not None:
            raise BackboneError(
                f"storage {shorten(key)} shares memory in the way of torch 0.3; save the file again"
            )
        num_bytes = num_values * dtype.itemsize
        # the numbers follow the pickles; `starts` is filled before any tensor is read
        made = Storage(dtype, num_values, lambda: data[starts[key] : starts[key] + num_bytes])
        known = storages.setdefault(key, made)
        if (known.dtype, known.num_values) != (dtype, num_values):
            raise BackboneError(f"storage {shorten(key)} is described in two ways; {FETCH_AGAIN}")
        return known

    nested = None if is_nested else read_nested
    tree = load_pickle(reader, budget=budget, storage=storage, nested=nested)
    keys = load_pickle(reader, budget=budget)
    if (
        not isinstance(keys, list)
        or not all(isinstance(key, str | int) for key in keys)
        or len(keys) != len(storages)
        or set(map(str, keys)) != storages.keys()
    ):
        raise BackboneError(f"the list of tensors differs from the tensors; {FETCH_AGAIN}")
    _place_storages(data, reader.position, list(map(str, keys)), storages, starts)
    return tree


def _place_storages(
    data: memoryview,
    position: int,
    keys: list[str],
    storages: dict[str, Storage],
    starts: dict[str, int],
) -> None:
    """Fill `starts` with the position of each storage; each follows its length in 8 bytes."""
    for key in keys:
        num_values = storages[key].num_values
        starts[key] = position + 8
        position += 8 + num_values * storages[key].dtype.itemsize
        if position > len(data):
            raise BackboneError(
                f"the file is cut off: storage {shorten(key)} ends at byte {position}, the file "
                f"has {len(data)}; {FETCH_AGAIN}"
            )
        if struct.unpack_from("<q", data, starts[key] - 8) != (num_values,):
            raise BackboneError(f"storage {shorten(key)} has another length than the pickle says")


def read_nested(budget: Budget, content: object) -> Any:
    """Return the object in a legacy torch file inside a pickle.

    A plain pickle.dump stores a tensor's numbers in that way.
    """
    if not isinstance(content, bytes | bytearray):
        raise BackboneError(f"a tensor inside the pickle is a {type(content).__name__}")
    reader = ByteReader(memoryview(bytes(content)))
    if load_pickle(reader, budget=budget) != LEGACY_MAGIC:
        raise BackboneError(
            f"a tensor inside the pickle, {len(content)} bytes, is not in torch's format"
        )
    return read_legacy(reader, budget, is_nested=True)


def _storage_fields(identity: Any) -> tuple[torch.dtype, str, int]:
    """Return type, key and length of ("storage", type, key, device, length, ...)."""
    match identity:
        case ("storage", StorageType() as kind, str() as key, _, int() as num_values, *_):
            if type(num_values) is int and 0 <= num_values < 2**62:
                return kind.dtype, key, num_values
    raise BackboneError(
        f"the pickle refers to outside data as {shorten(identity)}; the file may be damaged"
    )
