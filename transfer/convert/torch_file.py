"""The two containers of torch.save, zip archive and legacy file, in the process of child.py.

Numbers stay in the mapped file, of which tensors are views.
"""

import io
import struct
import zipfile
import zlib
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np

from transfer.convert.inert import load_pickle
from transfer.convert.messages import shorten
from transfer.convert.stand_ins import NUMPY_TYPES, RefusedError, Storage, StorageType

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
"""First pickle of a file that torch before 1.6 wrote; the second is the version, 1001."""
FETCH_AGAIN = "fetch the file again and compare its size with the source"
LOCAL_HEADER = struct.Struct("<4s5H3L2H")


def read_zip(file: BinaryIO, data: memoryview) -> Any:
    """Return the object in a torch zip file, of which `data` are the bytes."""
    entries = zip_entries(file, data)
    root = _root(list(entries))
    checked: dict[str, memoryview] = {}

    def content(name: str) -> memoryview:
        if name not in checked:
            info, start = entries[name]
            checked[name] = data[start : start + info.file_size]
            if zlib.crc32(checked[name]) != info.CRC:
                raise RefusedError(f"{shorten(name)} does not match its checksum; {FETCH_AGAIN}")
        return checked[name]

    order = bytes(content(f"{root}/byteorder")) if f"{root}/byteorder" in entries else b"little"
    if order != b"little":
        raise _wrong_byte_order(f"its byte order is {shorten(order)}")

    def storage(identity: Any) -> Storage:
        dtype, key, num_bytes = _storage_fields(identity)
        name = f"{root}/data/{key}"
        found = entries[name][0].file_size if name in entries else 0
        if name not in entries or found < num_bytes:
            raise RefusedError(
                f"storage {shorten(key)} should hold {num_bytes} bytes, the archive has {found}; "
                + FETCH_AGAIN
            )
        return Storage(content(name)[:num_bytes], dtype)

    return load_pickle(io.BytesIO(content(f"{root}/data.pkl")), storage, read_nested)


def zip_entries(file: BinaryIO, data: memoryview) -> dict[str, tuple[zipfile.ZipInfo, int]]:
    """Return each entry with the place of its first byte, by name.

    RefusedError if entries are damaged, compressed, of one name or overlap: Python's zipfile would
    read them one by one.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            listed = archive.infolist()
            directory = archive.start_dir
    except (zipfile.BadZipFile, NotImplementedError, *_DAMAGE) as error:
        raise _damaged(str(error)[:200]) from error
    entries: dict[str, tuple[zipfile.ZipInfo, int]] = {}
    spans = [(directory, len(data))]
    for info in listed:
        name = info.filename
        if name in entries:
            raise RefusedError(f"two entries of the zip file are called {shorten(name)}")
        if info.compress_type or info.flag_bits & 1 or info.compress_size != info.file_size:
            raise RefusedError(
                f"{shorten(name)} is compressed or encrypted, which torch.save never does"
            )
        header = bytes(data[info.header_offset :][: LOCAL_HEADER.size])
        if len(header) < LOCAL_HEADER.size or header[:4] != b"PK\x03\x04":
            raise _damaged(f"{shorten(name)} has no header at byte {info.header_offset}")
        start = info.header_offset + len(header) + sum(LOCAL_HEADER.unpack(header)[-2:])
        entries[name] = info, start
        spans.append((info.header_offset, start + info.file_size))
    for (_, end), (following, _) in pairwise(sorted(spans)):
        if end > following:
            raise _damaged(
                f"its entries overlap: one ends at {end}, the next begins at {following}"
            )
    return entries


_DAMAGE = (struct.error, UnicodeDecodeError, ValueError, OSError, EOFError, OverflowError)


def _damaged(reason: str) -> RefusedError:
    return RefusedError(f"the zip file is cut off or damaged ({reason}); {FETCH_AGAIN}")


def _root(names: list[str]) -> str:
    """Return the top folder of a torch archive."""
    roots = [name.removesuffix("/data.pkl") for name in names if name.endswith("/data.pkl")]
    if len(roots) != 1 and names and all(name.endswith(".npy") for name in names):
        raise RefusedError(
            "this is NumPy's .npz: load it where it was made, and save its arrays as tensors by "
            "torch.save"
        )
    inside = [name for name in names if name.endswith((".pth", ".pt", ".bin", ".ckpt", ".zip"))]
    if not roots and inside:
        raise RefusedError(f"this is a zip archive around {shorten(inside)}: unpack it first")
    if len(roots) != 1:
        raise RefusedError(
            f"this zip archive was not written by torch.save: expected one data.pkl, "
            f"found {shorten(names)}"
        )
    if any(name.startswith(f"{roots[0]}/code/") for name in names):
        raise RefusedError(
            f"this is a TorchScript program ({shorten(roots[0])}/code/), which needs code "
            f"execution to load; where you trust its source, load it there and save only "
            f"model.state_dict()"
        )
    return roots[0]


def read_legacy(file: BinaryIO, data: memoryview, *, is_nested: bool = False) -> Any:
    """Return the object in a legacy torch file, which stands behind the magic number.

    Its numbers follow the last pickle, so the tree is read twice: for their lengths, then for them.
    """
    version = load_pickle(file)
    if version != 1001:
        raise RefusedError(
            f"this is a legacy torch file of version {shorten(version)}; expected 1001"
        )
    system = load_pickle(file)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise _wrong_byte_order("not marked as little-endian")
    sizes: dict[str, tuple[str, int]] = {}
    places: dict[str, memoryview] = {}

    def storage(identity: Any) -> Storage:
        dtype, key, num_bytes = _storage_fields(identity)
        if len(identity) > 5 and identity[5] is not None:
            raise RefusedError(
                f"storage {shorten(key)} shares memory in the way of torch 0.3; save the file again"
            )
        if sizes.setdefault(key, (dtype, num_bytes)) != (dtype, num_bytes):
            raise RefusedError(f"storage {shorten(key)} is described in two ways; {FETCH_AGAIN}")
        return Storage(places.get(key), dtype)

    nested = None if is_nested else read_nested
    start = file.tell()
    load_pickle(file, storage, nested)
    keys = load_pickle(file)
    if (
        not isinstance(keys, list)
        or not all(isinstance(key, str | int) for key in keys)
        or len(keys) != len(sizes)
        or set(map(str, keys)) != sizes.keys()
    ):
        raise RefusedError(f"the list of tensors differs from the tensors; {FETCH_AGAIN}")
    position = file.tell()
    for key in map(str, keys):
        dtype, num_bytes = sizes[key]
        length, first = bytes(data[position : position + 8]), position + 8
        position = first + num_bytes
        if position > len(data):
            raise RefusedError(
                f"the file is cut off: storage {shorten(key)} ends at byte {position}, the file "
                f"has {len(data)}; {FETCH_AGAIN}"
            )
        if length != struct.pack("<q", num_bytes // np.dtype(NUMPY_TYPES[dtype]).itemsize):
            raise RefusedError(f"storage {shorten(key)} has another length than the pickle says")
        places[key] = data[first:position]
    file.seek(start)
    return load_pickle(file, storage, nested)


def read_nested(content: object) -> Any:
    """Return the object in a legacy torch file inside a pickle.

    A plain pickle.dump stores a tensor's numbers in that way.
    """
    if not isinstance(content, bytes | bytearray):
        raise RefusedError(f"a tensor inside the pickle is a {type(content).__name__}")
    file = io.BytesIO(content)
    if load_pickle(file) != LEGACY_MAGIC:
        raise RefusedError(
            f"a tensor inside the pickle, {len(content)} bytes, is not in torch's format"
        )
    return read_legacy(file, memoryview(content), is_nested=True)


def _storage_fields(identity: Any) -> tuple[str, str, int]:
    """Return type, key and bytes of ("storage", type, key, device, number of values, ...)."""
    match identity:
        case ("storage", StorageType() as kind, str() as key, _, int() as num_values, *_):
            if type(num_values) is int and 0 <= num_values < 2**62:
                return kind.dtype, key, num_values * np.dtype(NUMPY_TYPES[kind.dtype]).itemsize
    raise RefusedError(
        f"the pickle refers to outside data as {shorten(identity)}; the file may be damaged"
    )


def _wrong_byte_order(found: str) -> RefusedError:
    return RefusedError(
        f"the file was written on a big-endian machine ({found}); save it again on a "
        "little-endian one"
    )
