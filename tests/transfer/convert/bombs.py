"""Small files that ask for gigabytes or ages, or claim to hold them; none is ever executed."""

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

HUGE = 8_000_000_000
NUM_DOUBLINGS = 60
_P2 = b"\x80\x02"
_HUGE = pickle.LONG1 + b"\x05" + HUGE.to_bytes(5, "little")


def _name(path: str) -> bytes:
    module, _, name = path.rpartition(".")
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def _called(path: str, *args: bytes, by: bytes = b"R") -> bytes:
    return _name(path) + b"(" + b"".join(args) + b"t" + by


def _text(text: str) -> bytes:
    content = text.encode()
    return b"X" + struct.pack("<I", len(content)) + content


def _doubled(empty: bytes, pair: Callable[[bytes], bytes]) -> bytes:
    """Push a container that holds the one before it twice, NUM_DOUBLINGS times over."""
    program = empty
    for place in range(NUM_DOUBLINGS):
        program += b"q" + bytes([place]) + b"0" + pair(b"h" + bytes([place]))
    return program


LISTS = _doubled(b"]", lambda inner: b"](" + inner + inner + b"e")
TUPLES = _doubled(b")", lambda inner: inner + inner + b"\x86")
RANGE = _called("__builtin__.range", _HUGE)
DEEP = b"]" * 1_000_000 + b"a" * 999_999
KEYS = b"}(" + b"".join(
    pickle.LONG1 + b"\x0a" + (number * (2**61 - 1)).to_bytes(10, "little") + b"N"
    for number in range(1, 60_000)
)


def archive(entries: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip archive with these entries."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, content in entries.items():
            file.writestr(name, content)
    return buffer.getvalue()


def _zip(program: bytes, compression: int = zipfile.ZIP_STORED) -> bytes:
    return archive({"net/data.pkl": program, "net/data/0": bytes(400)}, compression)


def _legacy(program: bytes) -> bytes:
    file = io.BytesIO()
    torch.save({}, file, _use_new_zipfile_serialization=False)
    start = [pickle.dumps(value, protocol=2) for value in (0x1950A86A20F9469CFC6C, 1001)]
    system = pickle.dumps({"little_endian": True}, protocol=2)
    return b"".join([*start, system, program, pickle.dumps([], protocol=2)])


def _safetensors(header: object) -> bytes:
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(content)) + content + bytes(400)


def _expanded_tensor(num_values: int) -> bytes:
    """A zip file whose step counter repeats one stored value."""
    tensor = torch.zeros(1).expand(num_values)
    file = io.BytesIO()
    torch.save({"bn1.num_batches_tracked": tensor}, file)
    return file.getvalue()


BUILTINS: dict[str, bytes] = {
    f"{kind} of 8e9 by {opcode}": _P2 + _called(f"__builtin__.{kind}", _HUGE, by=by) + b"."
    for kind in ("bytearray", "bytes", "list", "tuple", "set", "str", "int")
    for opcode, by in (("REDUCE", b"R"), ("NEWOBJ", b"\x81"))
}
PROGRAMS: dict[str, bytes] = {
    **BUILTINS,
    "list of a range": _P2 + _called("__builtin__.list", RANGE) + b".",
    "int of a long text": _P2 + _called("__builtin__.int", _text("9" * 2_000_000)) + b".",
    "a long int": _P2 + b"\x8b" + struct.pack("<i", 5_000_000) + b"\x7f" * 5_000_000 + b".",
    "copies of a list": _P2
    + b"](" + b"K\x01" * 500_000 + b"eq\x00" + b"0"
    + b"](" + (_name("__builtin__.list") + b"h\x00\x85R") * 20_000 + b"e.",
    "doubled lists": _P2 + LISTS + b".",
    "doubled tuples": _P2 + TUPLES + b".",
    "doubled tuples as a key": _P2 + b"}" + TUPLES + b"Ns.",
    "doubled lists as the sizes of a tensor": _P2
    + _called("torch._utils._rebuild_tensor_v2", LISTS, LISTS, LISTS, LISTS) + b".",
    "doubled lists in our own format": _P2 + b"}(" + _text("format") + LISTS + b"u.",
    "doubled lists as a field of ours": _P2
    + b"}(" + _text("format") + _text("ssl-backbone/1") + _text("input") + LISTS + b"u.",
    "a list nested a million deep": _P2 + DEEP + b".",
    "numbers that collide as keys": _P2 + KEYS + b"u.",
    "millions of sets": b"\x80\x04](" + b"\x8f" * 6_000_000 + b"e.",
    "millions of calls": _P2
    + _name("collections.OrderedDict") + b"q\x000](" + b"h\x00)R" * 3_000_000 + b"e.",
    "a huge frame": b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"].",
    "bytes of 2^62": b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b".",
    "a memo of 2^32": _P2 + b"]r\xff\xff\xff\xff.",
    "a foreign class": _P2 + _called("__main__.Args", LISTS) + b".",
    "names that grow": _P2
    + _text("n" * 100_000) + b"q\x000" + b"}h\x00" * 400 + b"}" + b"s" * 400 + b".",
}  # fmt: skip
"""Pickles by name; each is also put into a legacy and a zip file."""

FILES: dict[str, bytes] = {
    **{f"{name}, pickle": program for name, program in PROGRAMS.items()},
    **{f"{name}, legacy": _legacy(program) for name, program in PROGRAMS.items()},
    **{f"{name}, zip": _zip(program) for name, program in PROGRAMS.items()},
    "a deflated zip bomb": _zip(bytes(300_000_000), compression=zipfile.ZIP_DEFLATED),
    "a deflated pickle": _zip(_P2 + b"].", compression=zipfile.ZIP_DEFLATED),
    "a tensor of 1e12 values": _expanded_tensor(10**12),
    "safetensors, a header of 2^60": struct.pack("<Q", 2**60) + b"{" + bytes(100),
    "safetensors, deep lists": _safetensors(b'{"a":' + b"[" * 1_000_000),
    "safetensors, many lists": _safetensors(b'{"a":[' + b"[]," * 9_000_000 + b"[]]}"),
    "safetensors, huge sizes": _safetensors(
        {"a": {"dtype": "F32", "shape": [2**40] * 60, "data_offsets": [0, 400]}}
    ),
    "safetensors, a million sizes": _safetensors(
        {"a": {"dtype": "F32", "shape": [2**40] * 1_000_000, "data_offsets": [0, 400]}}
    ),
}
"""Whole files by name."""


def _sparse(start: bytes, size: int, end: bytes = b"") -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("wb") as file:
            file.write(start)
            file.truncate(size)
            file.seek(size - len(end))
            file.write(end)

    return write


SPARSE: dict[str, Callable[[Path], None]] = {
    "zeros": _sparse(b"", 20 * 10**9),
    "a line of 6 GB": _sparse(b"V", 6 * 10**9, b"\n."),
    "a zip without an end": _sparse(b"PK\x03\x04", 20 * 10**9),
    "a safetensors header of 19 GB": _sparse(
        struct.pack("<Q", 19 * 10**9) + b'{"a"', 20 * 10**9
    ),
    "millions of places in a large file": _sparse(
        b"\x80\x04N" + b"".join(b"r" + struct.pack("<I", i) for i in range(1_000_000)) * 12,
        20 * 10**9,
    ),
    "a truncated legacy file": _sparse(_legacy(_P2 + b"}.")[:-3], 20 * 10**9),
}  # fmt: skip
"""Functions that write files which claim far more than the disk holds."""
