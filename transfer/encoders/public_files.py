"""Published checkpoint files (public_files.yaml), recognized by their hashes."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pretrain.running.reading import read_yaml, retry_reads


@dataclass(frozen=True, kw_only=True)
class PublicFile:
    """One published file."""

    file: str
    description: str
    """Network and training, as readable text."""
    algorithm: str
    """md5 or sha256."""
    digest: str
    """First hex digits of the hash, as many as are published."""
    source: str
    """Where the hash is published."""
    recipe: str = ""
    """Recipe of `python -m pretrain --list` for this training; empty if none."""


PUBLIC_FILES = tuple(PublicFile(**row) for row in read_yaml(Path(__file__).with_suffix(".yaml")))


def file_digests(path: Path) -> dict[str, str]:
    """Return md5 and sha256 digests of a file, reading it once."""
    hashes = {name: hashlib.new(name, usedforsecurity=False) for name in ("md5", "sha256")}
    with path.open("rb") as file:
        while chunk := retry_reads(path, lambda: file.read(2**22)):
            for file_hash in hashes.values():
                file_hash.update(chunk)
    return {name: file_hash.hexdigest() for name, file_hash in hashes.items()}


def recognize(digests: Mapping[str, str]) -> PublicFile | None:
    """Return the published file with these digests, or None."""
    return next((f for f in PUBLIC_FILES if digests[f.algorithm].startswith(f.digest)), None)


def public_file_sentence(public_file: PublicFile) -> str:
    """Describe the file and the recipe that its results are compared with."""
    digest = f"{public_file.algorithm} {public_file.digest}..."
    text = f"{public_file.description} ({digest}, {public_file.source})"
    if public_file.recipe:
        return f"{text}; compared as {public_file.recipe} without --trained-with"
    return f"{text}; no recipe here trains this network, so there is nothing to declare"
