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
    recipe: str = ""
    """Recipe of `python -m pretrain --list` for this training; empty if there is none."""


SOURCES = {
    "md5": "README of github.com/facebookresearch/moco",
    "sha256": "torchvision's file names",
}
"""Addresses at which the hashes are published."""
PUBLIC_FILES = tuple(
    PublicFile(
        file=row["file"],
        what=row["what"],
        algorithm=algorithm,
        digest=row[algorithm],
        source=source,
        recipe=row.get("recipe", ""),
    )
    for row in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    for algorithm, source in SOURCES.items()
    if algorithm in row
)


def recognize_file(path: Path) -> PublicFile | None:
    """Return the published file that a file is, by its content; None if it is not known."""
    digests = {}
    for algorithm in SOURCES:
        with path.open("rb") as file:
            digests[algorithm] = hashlib.file_digest(file, algorithm).hexdigest()
    fitting = (f for f in PUBLIC_FILES if digests[f.algorithm].startswith(f.digest))
    return next(fitting, None)


def public_file_sentence(known: PublicFile) -> str:
    """Return what the file is, and how its recipe is declared."""
    found = f"{known.what} ({known.algorithm} {known.digest}..., {known.source})"
    if known.recipe:
        return f"{found}; declare it with --as {known.recipe}"
    return f"{found}; no recipe here trains this network, so there is nothing to declare"
