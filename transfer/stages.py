"""Finished stages of a long computation: written whole, believed only when intact."""

import hashlib
import os
from pathlib import Path

import safetensors.torch
from torch import Tensor

DIGEST_BYTES = 32


def save_stage(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors whole or not at all, behind their SHA-256: temporary file, fsync, rename."""
    content = safetensors.torch.save(tensors)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(hashlib.sha256(content).digest() + content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def load_stage(path: Path) -> dict[str, Tensor] | None:
    """The tensors of a finished stage; None if it is absent, torn or altered: compute it again."""
    try:
        stored = path.read_bytes()
    except FileNotFoundError:
        return None
    digest, content = stored[:DIGEST_BYTES], stored[DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        return None
    return safetensors.torch.load(content)
