"""Open a checkpoint of any format and list its contents, without executing any of it.

The first bytes decide the format, never the file name. A pickle is opened by a process of its own
only (child.py), which may die of it; the numbers of tensors are mapped from what it wrote.
"""

import json
import mmap
import os
import re
import signal
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pretrain.running.reading import retry_reads
from transfer.convert import child
from transfer.convert.architectures import BackboneError
from transfer.convert.messages import escape, shorten

JOBLIB = (
    "a file of joblib, or another zlib stream: load it where it was made, and save it by torch.save"
)
_PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf")
"""Starts of gzip, bzip2, xz, zstd and 7z."""
_OTHER_FORMATS = {
    b"version https://git-lfs": "a Git LFS pointer, not the file itself: run `git lfs pull`",
    b"<": "a web page or XML, not a checkpoint: open the link in a browser and save the file",
    **dict.fromkeys(_PACKED, "a compressed archive (gzip, bzip2, xz, zstd or 7z): unpack it first"),
    **dict.fromkeys((b"x\x01", b"x^", b"x\x9c", b"x\xda"), JOBLIB),
    b"\x93NUMPY": "a NumPy array; expected the tensors of a network by name",
    b"\x89HDF": "HDF5 (Keras); convert it to a PyTorch state dict first",
}
FOLDER = (
    "a folder; expected a checkpoint file. One of torch.distributed.checkpoint becomes a file by "
    "dcp_to_torch_save, one of DeepSpeed by its script zero_to_fp32.py; of transformers, name the "
    "model.safetensors in it, with --encoder hf:FOLDER"
)


REBUILDS = re.compile(r"rebuild|reconstruct")
"""Pattern in the names of functions that make a tensor or an array."""
OWN_FIELDS = ("input", "made_by")
MAX_HEADER_BYTES = 2**24
"""Longest header of safetensors; 10,000 tensors take about a tenth."""


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
    """Nested dicts and lists of a file of ours, with its tensors; else None."""
    tensors: dict[str, Tensor]
    """Every tensor, named by the keys that lead to it, joined by dots; mapped, so that values are
    in memory only when they are read."""
    values: dict[str, str | int | float]
    """Plain values, named in the same way, for example {"epoch": 200, "arch": "resnet50"}."""
    opaque: dict[str, Opaque]
    """Objects that are not read, named in the same way; only foreign code could make them."""


def read_file(path: Path) -> Contents:
    """Return the contents of a file; BackboneError if it is not a readable checkpoint."""
    data = _map_file(path)  # until the end: its size counts where memory is limited
    start, num_bytes = data[:4096], len(data)
    # no other format starts like that; the length itself may start with any byte
    header_bytes = int.from_bytes(start[:8], "little")
    if start[8:9] == b"{" and header_bytes <= min(MAX_HEADER_BYTES, num_bytes - 8):
        return _of_safetensors(path)
    for magic, advice in _OTHER_FORMATS.items():
        if start.startswith(magic):
            raise BackboneError(f"this is {advice}")
    if b"joblib.numpy_pickle" in start:
        raise BackboneError(f"this is {JOBLIB}")
    if start[:1] == b"\x08" and any(name in start[:64] for name in (b"pytorch", b"onnx")):
        raise BackboneError("this is ONNX, a graph; save the state dict of the network instead")
    if start[257:262] == b"ustar":
        raise BackboneError("this is a tar archive; unpack it first")
    if start[8:9] == b"{" and not start.startswith((b"\x80", b"PK")):
        return _of_safetensors(path)
    with tempfile.TemporaryFile() as numbers, tempfile.TemporaryFile() as told:
        _run_child(path, numbers, told)
        told.seek(0)
        answer = json.load(told)
        if "refused" in answer:
            raise BackboneError(answer["refused"])
        with safe_open(f"/dev/fd/{numbers.fileno()}", "pt") as stored:
            storages = [stored.get_tensor(str(place)) for place in range(len(stored.keys()))]
    tensors = [_shown(storages[place], *rest) for place, *rest in answer["views"]]

    def mark(node: dict[str, Any]) -> Any:
        return tensors[node[child.TENSOR]] if child.TENSOR in node else node

    try:
        tree = json.loads(answer["tree"], object_hook=mark)
    except (TypeError, LookupError) as error:  # an entry of a name that marks tensors
        raise BackboneError(f"the fields cannot be read ({error}); export it again") from error
    return Contents(
        tree=tree,
        tensors={name: tensors[place] for name, place in answer["tensors"].items()},
        values=answer["values"],
        opaque={name: Opaque(*fields) for name, fields in answer["opaque"].items()},
    )


def _shown(
    storage: Tensor, name: str, shape: Sequence[int], strides: Sequence[int], offset: int
) -> Tensor:
    """Return the tensor of a type that is seen in the bytes (n,) of a storage."""
    numbers = storage.view(getattr(torch, name))
    return numbers.as_strided(shape, strides, numbers.storage_offset() + offset)


def _map_file(path: Path) -> mmap.mmap:
    """Return the bytes of a file, of which only those in use are in memory."""
    try:
        if path.is_dir():
            raise BackboneError(FOLDER)
        if not path.is_file():
            raise BackboneError("no such file; expected a checkpoint file")
        if not path.stat().st_size:
            raise BackboneError("the file is empty; fetch it again")
        # once in whole: an error of the disk would kill a process that has the file mapped
        retry_reads(path, lambda: _read_through(path))
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise BackboneError(f"the file cannot be read ({error.strerror or error})") from error


def _read_through(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        part = bytearray(2**22)
        while file.readinto(part):
            pass


def _of_safetensors(path: Path) -> Contents:
    """Return the contents of safetensors; for our own, the tree that torch.save would store."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        own = metadata.get("format", "").startswith("ssl-backbone")
        # metadata can only hold text, so structured fields of ours are stored as JSON
        structured = {name: json.loads(metadata[name]) for name in OWN_FIELDS} if own else {}
    except (SafetensorError, OSError, MemoryError, *child.DAMAGED) as error:
        raise BackboneError(
            f"the safetensors file is cut off or damaged ({str(error)[:300]}); {child.AGAIN}"
        ) from error
    prefix = "state_dict." if own else ""
    tensors = {escape(prefix + name): tensor for name, tensor in found.items()}
    if too_long := [name for name in tensors if len(name) >= child.MAX_NAME]:
        raise BackboneError(f"the name of a tensor is too long: {shorten(too_long[0])}")
    tree = {**metadata, **structured, "state_dict": found} if own else None
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
    if status == -signal.SIGXCPU:
        raise BackboneError(
            "reading it takes more processor time than any checkpoint needs: damaged, or hostile"
        )
    if status in (-signal.SIGKILL, -signal.SIGABRT):
        raise BackboneError(child.TOO_MUCH)
    if status:
        raise BackboneError(
            f"the process that read it ended with status {status}; it may be damaged or hostile"
        )
