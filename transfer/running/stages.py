"""Files of finished stages of a long computation, written whole and verified by a checksum."""

import hashlib
from pathlib import Path

import safetensors.torch
from torch import Tensor

from pretrain.running.atomic_files import write_whole

DIGEST_BYTES = 32


def save_stage(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors of any shape, after their SHA-256, whole or not at all; else WriteError."""
    content = safetensors.torch.save(tensors)
    write_whole(path, hashlib.sha256(content).digest() + content, "--runs")


def load_stage(path: Path) -> dict[str, Tensor] | None:
    """Return the tensors of a finished stage; None if the file is absent, torn or altered."""
    try:
        stored = path.read_bytes()
    except FileNotFoundError:
        return None
    digest, content = stored[:DIGEST_BYTES], stored[DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        return None
    return safetensors.torch.load(content)
