"""Readers of the two containers of torch.save, the zip archive and the legacy file.

torch.load also accepts programs, tar archives and classes with their own code; these readers
accept tensors only. The file is mapped and numbers are read on demand, so that a checkpoint full of
optimizer state takes no more memory than its backbone.
"""

import io
import struct
import zipfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from transfer.convert.architectures import BackboneError
from transfer.convert.safe_pickle import ReadableFile, Storage, StorageType, load_pickle

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
"""First pickle of a file that torch before 1.6 wrote; the second is the version, 1001."""

_FETCH_AGAIN = "fetch the file again and compare its size with the source"


class PositionedFile(ReadableFile, Protocol):
    """A mapped file or BytesIO that is read from its current position."""

    def tell(self) -> int:
        """Return the position in the file."""


def read_zip(path: Path, data: memoryview) -> Any:
    """Return the object in a torch zip file; `data` is the same file, mapped."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise BackboneError(
            f"the zip file is cut off or damaged ({error}); {_FETCH_AGAIN}"
        ) from error
    root = _root(entries)
    if f"{root}/byteorder" in entries and _content(data, entries[f"{root}/byteorder"]) != b"little":
        raise BackboneError(
            "the file was written on a big-endian machine; save it again on a little-endian one"
        )

    def storage(identity: Any) -> Storage:
        dtype, key, num_values = _storage_fields(identity)
        entry = entries.get(f"{root}/data/{key}")
        num_bytes = num_values * dtype.itemsize
        if entry is None or entry.file_size < num_bytes:
            found = entry.file_size if entry else "no"
            raise BackboneError(
                f"storage {key!r} should hold {num_bytes} bytes, the archive has {found}; "
                + _FETCH_AGAIN
            )
        return Storage(
            dtype, num_values, cache(lambda: numbers(_content(data, entry)[:num_bytes], dtype))
        )

    return load_pickle(
        io.BytesIO(_content(data, entries[f"{root}/data.pkl"])),
        storage=storage,
        nested=read_nested,
    )


def _root(entries: dict[str, zipfile.ZipInfo]) -> str:
    """Return the top folder of a torch archive."""
    roots = [name.removesuffix("/data.pkl") for name in entries if name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise BackboneError(
            f"this zip archive was not written by torch.save: expected one data.pkl, "
            f"found {list(entries)[:4]}"
        )
    if any(name.startswith(f"{roots[0]}/code/") for name in entries):
        raise BackboneError(
            f"this is a TorchScript program ({roots[0]}/code/), which needs code execution to "
            f"load; where you trust its source, load it there and save only model.state_dict()"
        )
    return roots[0]


def _content(data: memoryview, entry: zipfile.ZipInfo) -> bytes:
    """Return the bytes of one archive entry, after a comparison with its checksum."""
    if entry.compress_type != zipfile.ZIP_STORED:
        raise BackboneError(f"{entry.filename} is compressed, which torch.save never does")
    if not 0 <= entry.header_offset <= len(data) - 30:
        raise BackboneError(f"{entry.filename} lies outside of the file; {_FETCH_AGAIN}")
    # a local header of 30 bytes, the name and an extra field precede the numbers; the lengths of
    # the two may differ from those in the central directory
    name_bytes, extra_bytes = struct.unpack_from("<HH", data, entry.header_offset + 26)
    start = entry.header_offset + 30 + name_bytes + extra_bytes
    content = bytes(data[start : start + entry.file_size])
    if zlib.crc32(content) != entry.CRC:
        raise BackboneError(f"{entry.filename} does not match its checksum; {_FETCH_AGAIN}")
    return content


def read_legacy(file: PositionedFile, data: memoryview) -> Any:
    """Return the object in a legacy torch file; `file` reads `data`, after the magic number."""
    version = load_pickle(file)
    if version != 1001:
        raise BackboneError(f"this is a legacy torch file of version {version!r}; expected 1001")
    system = load_pickle(file)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise BackboneError(
            "the file was written on a big-endian machine; save it again on a little-endian one"
        )
    starts: dict[str, int] = {}
    kinds: dict[str, tuple[torch.dtype, int]] = {}

    def storage(identity: Any) -> Storage:
        dtype, key, num_values = _storage_fields(identity)
        if len(identity) > 5 and identity[5] is not None:
            raise BackboneError(
                f"storage {key!r} shares memory in the way of torch 0.3; save the file again"
            )
        kinds[key] = dtype, num_values

        def read() -> Tensor:
            # the numbers follow the pickles; `starts` is filled before any tensor is read
            start = starts[key]
            return numbers(data[start : start + num_values * dtype.itemsize], dtype)

        return Storage(dtype, num_values, cache(read))

    tree = load_pickle(file, storage=storage, nested=read_nested)
    keys = load_pickle(file)
    if not isinstance(keys, list) or len(keys) != len(kinds) or set(map(str, keys)) - kinds.keys():
        raise BackboneError(f"the list of tensors differs from the tensors; {_FETCH_AGAIN}")
    position = file.tell()
    for key in map(str, keys):
        dtype, num_values = kinds[key]
        starts[key] = position + 8
        position += 8 + num_values * dtype.itemsize
        if position > len(data):
            raise BackboneError(
                f"the file is cut off: storage {key!r} ends at byte {position}, the file has "
                f"{len(data)}; {_FETCH_AGAIN}"
            )
        if struct.unpack_from("<q", data, starts[key] - 8) != (num_values,):
            raise BackboneError(f"storage {key!r} has another length than the pickle says")
    return tree


def read_nested(content: bytes) -> Any:
    """Return the object in a legacy torch file inside a pickle.

    A plain pickle.dump stores a tensor's numbers in that way.
    """
    file = io.BytesIO(content)
    if load_pickle(file) != LEGACY_MAGIC:
        raise BackboneError(
            f"a tensor inside the pickle, {len(content)} bytes, is not in torch's format"
        )
    return read_legacy(file, memoryview(content))


def _storage_fields(identity: Any) -> tuple[torch.dtype, str, int]:
    """Return type, key and length of ("storage", type, key, device, length, ...)."""
    match identity:
        case ("storage", StorageType() as kind, str() as key, _, int() as num_values, *_):
            if num_values >= 0:
                return kind.dtype, key, num_values
    raise BackboneError(
        f"the pickle refers to outside data as {str(identity)[:80]}; the file may be damaged"
    )


def numbers(content: bytes | memoryview, dtype: torch.dtype) -> Tensor:
    """Return a tensor (num_values,) of a dtype with a copy of the bytes."""
    if not content:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(bytearray(content), dtype=dtype)
