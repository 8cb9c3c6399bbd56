"""Open a checkpoint of any format and list its contents, without executing any of it.

The first bytes decide the format, never the file name. A pickle is opened by a process of its own
only (child.py), which may die of it; the numbers of tensors are read here, from the mapped file.
"""

import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from transfer.convert.architectures import BackboneError
from transfer.convert.messages import escape, shorten
from transfer.convert.safetensors_file import is_safetensors, read_safetensors
from transfer.convert.stored import Opaque, Storage, StoredTensor, copy_values

MAX_NAME = 400
"""Longest name of a tensor, in characters."""
PATIENCE_S = 600
"""Most seconds for a pickle; its process may compute for a tenth of that."""
ROOT = Path(__file__).parents[2]
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


class NeedsCodeError(BackboneError):
    """Error for a pickle that only code execution could load."""


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
    if is_safetensors(data):
        return _of_safetensors(data)
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
        return _of_safetensors(data)
    with tempfile.TemporaryFile() as numbers:
        answer = _ask_child(path, numbers.fileno())
        inside = numbers.seek(0, os.SEEK_END)
        found = mmap.mmap(numbers.fileno(), 0, access=mmap.ACCESS_READ) if inside else b""
    return _Answered(answer, data, memoryview(found)).contents()


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


def _of_safetensors(data: memoryview) -> Contents:
    tree = read_safetensors(data)
    own = isinstance(tree.get("state_dict"), dict)
    named = tree["state_dict"] if own else tree
    prefix = "state_dict." if own else ""
    tensors = {escape(prefix + name): tensor for name, tensor in named.items()}
    if too_long := [name for name in tensors if len(name) >= MAX_NAME]:
        raise BackboneError(f"the name of a tensor is too long: {shorten(too_long[0])}")
    return Contents(tree if own else None, tensors, {}, {})


def _ask_child(path: Path, descriptor: int) -> Mapping[str, Any]:
    """Return the answer of the process that opens a pickle; BackboneError if it refuses or dies."""
    search = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    # -S: no package is installed as far as the child can see
    words = [sys.executable, "-S", "-m", "transfer.convert.child", str(path.absolute())]
    try:
        done = subprocess.run(
            [*words, str(descriptor)],
            capture_output=True,
            pass_fds=[descriptor],
            start_new_session=True,  # Ctrl-C is the parent's to hear
            timeout=PATIENCE_S,
            env=os.environ | {"PYTHONPATH": search},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BackboneError(
            f"reading it takes more than {PATIENCE_S} s; it may be hostile"
        ) from error
    except OSError as error:
        raise BackboneError(f"no process to read it can be started ({error})") from error
    if done.returncode or not done.stdout:
        raise BackboneError(f"{_why(done.returncode, done.stderr)}; it may be damaged or hostile")
    answer: dict[str, Any] = json.loads(done.stdout)
    if "refused" in answer:
        raise (NeedsCodeError if answer.get("needs_code") else BackboneError)(answer["refused"])
    return answer


def _why(status: int, errors: bytes) -> str:
    if status == -signal.SIGXCPU:
        return "reading it takes more processor time than any checkpoint needs"
    if b"MemoryError" in errors or status in (-signal.SIGKILL, -signal.SIGABRT):
        return "reading it takes more memory than any checkpoint needs"
    return f"the process that read it ended with status {status}"


class _Answered:
    """The child's answer, and the bytes that it speaks of."""

    def __init__(self, answer: Mapping[str, Any], data: memoryview, inside: memoryview) -> None:
        self.answer = answer
        self.storages = [
            Storage(
                inside if one["inside"] else data,
                one["start"],
                one["num_values"],
                getattr(torch, one["dtype"]),
                crc=one["crc"],
                byte_order=one["byte_order"],
            )
            for one in answer["storages"]
        ]

    def contents(self) -> Contents:
        """Return the contents; BackboneError for tensors of one name, or without a name."""
        opaque = {name: Opaque(path, holds) for name, path, holds in self.answer["opaque"]}
        tensors: dict[str, StoredTensor] = {}
        for name, fields in self.answer["tensors"]:
            if len(name) >= MAX_NAME:
                raise BackboneError(f"the name of a tensor is too long: {shorten(name)}")
            if name in tensors:
                raise BackboneError(
                    f"two tensors are called {shorten(name)}; expected distinct names"
                )
            tensors[name] = self.tensor(fields)
        for name, thing in opaque.items():
            if thing.holds_numbers and not tensors:
                raise NeedsCodeError(needs_code(thing.path))
            if name in tensors:
                raise BackboneError(
                    f"a tensor and an object of {shorten(thing.path)} are both called "
                    f"{shorten(name)}; expected distinct names"
                )
        values = dict(self.answer["values"])
        known = tuple(self.answer["configurations"])
        return Contents(self.node(self.answer["tree"]), tensors, values, opaque, known)

    def tensor(self, fields: list[Any]) -> StoredTensor:
        """Return a tensor of storage, first value, shape, strides and class."""
        index, first, shape, strides, kind = fields
        storage, sizes, steps = self.storages[index], tuple(shape), tuple(strides)
        return StoredTensor(
            storage.dtype, sizes, lambda: copy_values(storage, first, sizes, steps), kind
        )

    def node(self, node: Any) -> Any:
        """Return a part of an own file's tree."""
        if isinstance(node, list):
            return [self.node(one) for one in node]
        if not isinstance(node, dict):
            return node
        if TENSOR in node:
            return self.tensor(node[TENSOR])
        return {key: self.node(value) for key, value in node.items()}


TENSOR = "\0tensor"
"""Key that marks a tensor in the tree; see child.py."""


def needs_code(path: str) -> str:
    """Return the sentence on a class or function that would have to be called."""
    return (
        f"the pickle names {shorten(path)}, which is neither a tensor nor plain data: the file "
        f"needs code execution to load, and untrusted pickles are never executed. Where you "
        f"trust its source, load it there and save only model.state_dict()"
    )
