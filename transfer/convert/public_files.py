"""Checkpoint files that their authors publish, recognized by the beginning of a published hash.

The hashes and their sources: MoCo's are the md5 column of the README of github.com/facebookresearch
/moco; torchvision's are the part of the file names behind the dash, sha256, at
download.pytorch.org/models (torchvision/models/resnet.py, for the older files of before 2021).
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

MOCO = "README of github.com/facebookresearch/moco"
TORCHVISION = "torchvision's file names"


@dataclass(frozen=True, kw_only=True)
class PublicFile:
    """One published file."""

    file: str
    what: str
    """Network and training, for people."""
    algorithm: Literal["md5", "sha256"]
    digest: str
    """First hex digits of the hash, as many as are published."""
    source: str
    recipe: str = ""
    """Recipe of `python -m pretrain --list` for this training; empty if there is none."""


def moco(file: str, what: str, digest: str, recipe: str = "") -> PublicFile:
    """Return one of the files of MoCo's authors."""
    return PublicFile(
        file=file, what=what, algorithm="md5", digest=digest, source=MOCO, recipe=recipe
    )


def torchvision(network: str, digest: str, weights: str, recipe: str = "") -> PublicFile:
    """Return one of torchvision's supervised networks."""
    return PublicFile(
        file=f"{network}-{digest}.pth",
        what=f"torchvision's {network}, supervised, {weights}",
        algorithm="sha256",
        digest=digest,
        source=TORCHVISION,
        recipe=recipe,
    )


V1, OLD, V2 = "weights IMAGENET1K_V1", "weights of before 2021", "weights IMAGENET1K_V2"
PUBLIC_FILES = (
    moco("moco_v1_200ep_pretrain.pth.tar", "MoCo v1, 200 epochs", "b251726a", "moco/in1k-r50-v1"),
    moco("moco_v2_200ep_pretrain.pth.tar", "MoCo v2, 200 epochs", "59fd9945", "moco/in1k-r50-v2"),
    moco("moco_v2_800ep_pretrain.pth.tar", "MoCo v2, 800 epochs", "a04e12f8"),
    torchvision("resnet18", "f37072fd", V1),
    torchvision("resnet18", "5c106cde", OLD),
    torchvision("resnet34", "b627a593", V1),
    torchvision("resnet34", "333f7ec4", OLD),
    torchvision("resnet50", "0676ba61", V1, "supervised/in1k-r50"),
    torchvision("resnet50", "19c8e357", OLD, "supervised/in1k-r50"),
    torchvision("resnet50", "11ad3fa6", V2),
    torchvision("resnet101", "63fe2227", V1),
    torchvision("resnet101", "5d3b4d8f", OLD),
    torchvision("resnet101", "cd907fc2", V2),
    torchvision("resnet152", "394f9c45", V1),
    torchvision("resnet152", "b121ed2d", OLD),
    torchvision("resnet152", "f82ba261", V2),
)


def public_file(md5: str, sha256: str) -> PublicFile | None:
    """Return the published file with these hashes; None if it is not known."""
    digests = {"md5": md5, "sha256": sha256}
    fitting = (f for f in PUBLIC_FILES if digests[f.algorithm].startswith(f.digest))
    return next(fitting, None)


def recognize_file(path: Path) -> PublicFile | None:
    """Return the published file that a file is, by its content; None if it is not known."""
    digests = []
    for algorithm in ("md5", "sha256"):
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, algorithm).hexdigest())
    return public_file(md5=digests[0], sha256=digests[1])


def public_file_sentence(known: PublicFile) -> str:
    """Return what the file is, and how its recipe is declared."""
    found = f"{known.what} ({known.algorithm} {known.digest}..., {known.source})"
    if known.recipe:
        return f"{found}; declare it with --as {known.recipe}"
    return f"{found}; no recipe here trains this network, so there is nothing to declare"
