"""Checkpoint files that their authors publish (public_files.yaml), recognized by their hashes."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml


@dataclass(frozen=True, kw_only=True)
class PublicFile:
    """One published file."""

    file: str
    what: str
    """Network and training, for people."""
    algorithm: str
    """md5 or sha256."""
    digest: str
    """First hex digits of the hash, as many as are published."""
    source: str
    """Place where the hash is published."""
    recipe: str = ""
    """Recipe of `python -m pretrain --list` for this training; empty if there is none."""


PUBLIC_FILES = tuple(
    PublicFile(**row)
    for row in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
)


def file_digests(path: Path) -> dict[str, str]:
    """Return the hex digests of a file by algorithm, "md5" and "sha256"; it is read once."""
    hashes = {name: hashlib.new(name, usedforsecurity=False) for name in ("md5", "sha256")}
    with path.open("rb") as file:
        while chunk := file.read(2**22):
            for each in hashes.values():
                each.update(chunk)
    return {name: each.hexdigest() for name, each in hashes.items()}


def recognize(digests: Mapping[str, str]) -> PublicFile | None:
    """Return the published file with these digests; None if it is not known."""
    fitting = (f for f in PUBLIC_FILES if digests[f.algorithm].startswith(f.digest))
    return next(fitting, None)


def public_file_sentence(known: PublicFile) -> str:
    """Return what the file is, and which recipe its results are compared with."""
    found = f"{known.what} ({known.algorithm} {known.digest}..., {known.source})"
    if known.recipe:
        return f"{found}; compared as {known.recipe} without --trained-with"
    return f"{found}; no recipe here trains this network, so there is nothing to declare"
