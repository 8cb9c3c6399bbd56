"""Checkpoint files that their authors publish (public_files.yaml), recognized by their hashes."""

import hashlib
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


def recognize_file(path: Path) -> PublicFile | None:
    """Return the published file that a file is, by its content; None if it is not known."""
    digests = {}
    for algorithm in ("md5", "sha256"):
        with path.open("rb") as file:
            digests[algorithm] = hashlib.file_digest(file, algorithm).hexdigest()
    fitting = (f for f in PUBLIC_FILES if digests[f.algorithm].startswith(f.digest))
    return next(fitting, None)


def public_file_sentence(known: PublicFile) -> str:
    """Return what the file is, and which recipe its results are compared with."""
    found = f"{known.what} ({known.algorithm} {known.digest}..., {known.source})"
    if known.recipe:
        return f"{found}; compared as {known.recipe} without --as"
    return f"{found}; no recipe here trains this network, so there is nothing to declare"
