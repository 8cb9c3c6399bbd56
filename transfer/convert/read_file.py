"""Open a checkpoint of any format and list its contents, without executing any of it.

The first bytes decide the format, never the file name. A pickle is opened by a process of its own
only (child.py), which may die of it; the numbers of tensors are read here, from the mapped file.
"""

import json
import math
import mmap
import os
import re
import signal
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from transfer.convert import child
from transfer.convert.architectures import BackboneError
from transfer.convert.messages import escape, shorten

JOBLIB = (
    "a file of joblib, or another zlib stream: load it where it was made, and save it by torch.save"
)
_OTHER_FORMATS = {
    b"version https://git-lfs": "a Git LFS pointer, not the file itself: run `git lfs pull`",
    b"<": "a web page or XML, not a checkpoint: open the link in a browser and save the file",
    b"\x1f\x8b": "a gzip archive: unpack it first",
    b"BZh": "a bzip2 archive: unpack it first",
    b"\xfd7zXZ": "an xz archive: unpack it first",
    b"\x28\xb5\x2f\xfd": "a zstd archive: unpack it first",
    b"7z\xbc\xaf": "a 7z archive: unpack it first",
    **dict.fromkeys((b"x\x01", b"x^", b"x\x9c", b"x\xda"), JOBLIB),
    b"\x93NUMPY": "a NumPy array; expected the tensors of a network by name",
    b"\x89HDF": "HDF5 (Keras); convert it to a PyTorch state dict first",
}


REBUILDS = re.compile(r"rebuild|reconstruct")
"""Pattern in the names of functions that make a tensor or an array."""
OWN_FIELDS = ("input", "made_by")
MAX_HEADER_BYTES = 2**24
"""Longest header of safetensors; 10,000 tensors take about a tenth."""


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """A tensor of the file; `read` reads its values, so that others take no memory."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    read: Callable[[], Tensor]
    kind: str = ""
    """Module and name of its subclass of Tensor; empty for torch's own."""

    @property
    def num_values(self) -> int:
        """Number of values, the product of the shape."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Opaque:
    """An object of the file that only a class or function of its own could make."""

    path: str
    """Module and name of the class or function."""
    holds_numbers: bool
    """True if tensors or their storages are inside, beside those that also stand elsewhere."""

    @property
    def rebuilds_tensor(self) -> bool:
        """True if it stands for one tensor, by the name of the function."""
        return REBUILDS.search(self.path.rpartition(".")[2]) is not None

    def __str__(self) -> str:
        return f"an object of {shorten(self.path)} and not a plain tensor"


@dataclass(frozen=True)
class Contents:
    """The contents of a file."""

    tree: Any
    """Nested dicts and lists of a file of ours, with tensors as StoredTensor; else None."""
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
    start = bytes(data[:64])
    if _is_safetensors(data):
        return _of_safetensors(path)
    for magic, advice in _OTHER_FORMATS.items():
        if start.startswith(magic):
            raise BackboneError(f"this is {advice}")
    if b"joblib.numpy_pickle" in bytes(data[:4096]):
        raise BackboneError(f"this is {JOBLIB}")
    if start[:1] == b"\x08" and any(name in start for name in (b"pytorch", b"onnx")):
        raise BackboneError("this is ONNX, a graph; save the state dict of the network instead")
    if bytes(data[257:262]) == b"ustar":
        raise BackboneError("this is a tar archive; unpack it first")
    if start[8:9] == b"{" and start[:1] != b"\x80" and not start.startswith(b"PK"):
        return _of_safetensors(path)
    with tempfile.TemporaryFile() as numbers, tempfile.TemporaryFile() as told:
        _run_child(path, numbers, told)
        told.seek(0)
        answer = json.load(told)
        if "refused" in answer:
            raise BackboneError(answer["refused"])
        size = numbers.seek(0, os.SEEK_END)
        found = mmap.mmap(numbers.fileno(), 0, access=mmap.ACCESS_COPY) if size else bytearray(1)

    def mark(node: dict[str, Any]) -> Any:
        return _tensor(found, *node[child.TENSOR]) if child.TENSOR in node else node

    return Contents(
        tree=json.loads(answer["tree"], object_hook=mark),
        tensors={name: _tensor(found, *fields) for name, fields in answer["tensors"].items()},
        values=answer["values"],
        opaque={name: Opaque(*fields) for name, fields in answer["opaque"].items()},
        configurations=tuple(answer["configurations"]),
    )


def _map_file(path: Path) -> memoryview:
    """Return the bytes of a file, of which only those in use are in memory."""
    try:
        if not path.is_file():
            what = _folder_words(path) if path.is_dir() else "no such file"
            raise BackboneError(f"{what}; expected a checkpoint file")
        if path.stat().st_size == 0:
            raise BackboneError("the file is empty; fetch it again")
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise BackboneError(f"the file cannot be read ({error.strerror or error})") from error


def _folder_words(path: Path) -> str:
    """Return what a folder is, and how it becomes a file."""
    if (path / ".metadata").exists():
        return (
            "a folder of torch.distributed.checkpoint, which python -m "
            "torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER FILE makes one file "
            "(dcp_to_torch_save in Python)"
        )
    if any(path.rglob("*zero_pp_rank_*")):
        return "a folder of DeepSpeed, which its script zero_to_fp32.py there makes one file"
    if (path / "config.json").exists():
        return f"a folder of transformers: say --encoder hf:{path} and name its model.safetensors"
    return "a folder"


def _is_safetensors(data: memoryview) -> bool:
    """Return whether a header of a possible length follows; no other format starts like that.

    The length itself may start with any byte, also with those that other formats start with.
    """
    header_bytes = int.from_bytes(data[:8], "little")
    return bytes(data[8:9]) == b"{" and header_bytes <= min(MAX_HEADER_BYTES, len(data) - 8)


def _of_safetensors(path: Path) -> Contents:
    """Return the contents of safetensors; for our own, the tree that torch.save would store."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        own = metadata.get("format", "").startswith("ssl-backbone")
        # metadata can only hold text, so structured fields of ours are stored as JSON
        structured = {name: json.loads(metadata[name]) for name in OWN_FIELDS} if own else {}
    except (SafetensorError, ValueError, LookupError, OSError, MemoryError) as error:
        raise BackboneError(
            f"the safetensors file is cut off or damaged ({str(error)[:300]}); fetch it again and "
            f"compare its size with the source"
        ) from error
    stored = {
        name: StoredTensor(tensor.dtype, tuple(tensor.shape), tensor.clone)
        for name, tensor in found.items()
    }
    prefix = "state_dict." if own else ""
    tensors = {escape(prefix + name): tensor for name, tensor in stored.items()}
    if too_long := [name for name in tensors if len(name) >= child.MAX_NAME]:
        raise BackboneError(f"the name of a tensor is too long: {shorten(too_long[0])}")
    tree = {**metadata, **structured, "state_dict": stored} if own else None
    return Contents(tree, tensors, {}, {})


def _run_child(path: Path, numbers: BinaryIO, told: BinaryIO) -> None:
    """Let a process of its own read a pickle; BackboneError if it dies of it."""
    with warnings.catch_warnings(action="ignore"):  # Python 3.12 warns of threads
        pid = os.fork()
    if pid == 0:
        child.answer(path, numbers, told)
    try:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    if status in (-signal.SIGXCPU, -signal.SIGALRM):
        raise BackboneError(
            "reading it takes more processor time than any checkpoint needs; it may be damaged or "
            "hostile"
        )
    if status in (-signal.SIGKILL, -signal.SIGABRT):
        raise BackboneError(child.TOO_MUCH)
    if status:
        raise BackboneError(
            f"the process that read it ended with status {status}; it may be damaged or hostile"
        )


def _tensor(
    numbers: mmap.mmap | bytearray, place: int, dtype: str, shape: list[int], kind: str
) -> StoredTensor:
    """Return a tensor whose numbers begin at this byte; see child.py."""

    def read() -> Tensor:
        if place < 0:
            raise BackboneError(
                f"a tensor of shape {shorten(tuple(shape))} repeats stored values and would take "
                f"{stored.num_values * stored.dtype.itemsize:,} bytes; save it again with .clone()"
            )
        if not stored.num_values:
            return torch.empty(shape, dtype=stored.dtype)
        flat = torch.frombuffer(numbers, dtype=stored.dtype, count=stored.num_values, offset=place)
        return flat.reshape(shape).clone()

    stored = StoredTensor(getattr(torch, dtype), tuple(shape), read, kind)
    return stored
