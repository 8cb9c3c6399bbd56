"""Detect the format of a checkpoint file by its first bytes.

The file name does not matter. This module does not import torch, so wrong paths and files that are
not checkpoints are refused quickly.
"""

import re
from pathlib import Path
from typing import Literal

from pretrain.running.reading import retry_reads
from transfer.encoders.architectures import BackboneError
from transfer.encoders.naming import NAMES

FileType = Literal["safetensors", "zip", "legacy", "pickle"]
"""safetensors, torch.save's zip, legacy (torch < 1.6), or a plain pickle."""
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
"""First object of a file written by torch < 1.6."""
FOLDER = (
    "a folder; expected a checkpoint file. Convert a folder of torch.distributed.checkpoint with "
    "dcp_to_torch_save, one of DeepSpeed with zero_to_fp32.py. For transformers, pass its "
    "model.safetensors, with --encoder hf:FOLDER"
)


def file_type(path: Path) -> FileType:
    """Return the format of a checkpoint; raises BackboneError for any other file."""
    try:
        if path.is_dir():
            raise BackboneError(FOLDER)
        if not path.is_file():
            raise BackboneError("no such file. Pass the path of a checkpoint file")
        start, num_bytes = retry_reads(path, lambda: _first_bytes(path)), path.stat().st_size
    except OSError as error:
        raise BackboneError(f"the file cannot be read ({error.strerror or error})") from error
    if not start:
        raise BackboneError("the file is empty. Download or copy it again")
    # a safetensors file starts with the length of its header, which may be any bytes
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") < num_bytes:
        return "safetensors"
    for row in NAMES["formats"]:
        if re.match(row["start"], start.decode("latin1")):
            raise BackboneError(f"this is {row['is']}")
    if start.startswith(b"PK"):
        return "zip"
    if start[:1] not in b"\x80(}]c":
        raise BackboneError(
            f"not a checkpoint: the file starts with {start[:16]!r}. Supported are files of "
            f"torch.save, pickles and safetensors"
        )
    return "legacy" if is_legacy(start) else "pickle"


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4096)


def is_legacy(start: bytes) -> bool:
    """Return whether these first bytes are from torch < 1.6."""
    return LEGACY_MAGIC.to_bytes(10, "little") in start[:32]


def check_is_checkpoint(path: Path) -> None:
    """Raise a BackboneError with the path unless it is a checkpoint."""
    try:
        file_type(path)
    except BackboneError as error:
        raise BackboneError(f"{path}: {error}") from error
