"""Files and networks on the Hugging Face hub, by address.

Weights are hf://ORG/REPO@REVISION/FILE, networks hf:ORG/REPO@REVISION. huggingface_hub downloads
them once into its cache; the paths in the cache contain repository and commit. Everything else uses
these paths and needs no internet connection. A revision is a branch, a tag or a commit.

No code of a repository is executed: a pickle is read like any other checkpoint, and transformers
builds a network from its config.
"""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from transfer.encoders.architectures import BackboneError

FILE = re.compile(r"hf:/{1,2}([\w.-]+/[\w.-]+)@([^/]+)/(.+)")
NETWORK = re.compile(r"hf:([\w.-]+/[\w.-]+)@([^/]+)")
CACHED = re.compile(r".*/models--([\w.-]+?)--([\w.-]+)/snapshots/([0-9a-f]{7,40})(?:/(.+))?")
OF_NETWORK = ("config.json", "preprocessor_config.json")
"""Files of a repository that define its network and input images."""


def local_file(path: Path) -> Path:
    """Return the path of a hub file in the cache.

    Other paths are unchanged. Raises BackboneError for a malformed address, without internet
    connection or permission, or if the repository, revision or file does not exist.
    """
    text = path.as_posix()
    if not text.startswith("hf:/"):
        return path
    if (address := FILE.fullmatch(text)) is None:
        example = "hf://timm/resnet50.a1_in1k@main/model.safetensors"
        raise BackboneError(f"--ckpt {text}: expected hf://ORG/REPO@REVISION/FILE, as in {example}")
    repo, revision, file = address.groups()
    return _download(
        f"hf://{repo}@{revision}/{file}",
        lambda hub: hub.hf_hub_download(repo, file, revision=revision),
    )


def local_network(encoder: str) -> str:
    """Return hf:FOLDER in the cache for hf:ORG/REPO@REVISION.

    Other encoders are unchanged. Raises BackboneError as in `local_file`.
    """
    address = NETWORK.fullmatch(encoder)
    if address is None or Path(encoder.removeprefix("hf:")).exists():
        return encoder
    repo, revision = address.groups()
    folder = _download(
        encoder,
        lambda hub: hub.snapshot_download(repo, revision=revision, allow_patterns=[*OF_NETWORK]),
    )
    return f"hf:{folder}"


def address_of(path: Path | str) -> str:
    """Return the hub address, with commit, of a path in the cache.

    Empty for other paths.
    """
    match = CACHED.fullmatch(Path(path).absolute().as_posix())
    if match is None:
        return ""
    org, repo, commit, file = match.groups()
    return f"hf://{org}/{repo}@{commit}/{file}" if file else f"hf:{org}/{repo}@{commit}"


def _download(address: str, download: Callable[[Any], str]) -> Path:
    """Return the path of a download; raises BackboneError with the library's reason if it fails."""
    hub = optional_library("huggingface_hub", address, "hub")
    try:
        return Path(download(hub))
    except (OSError, ValueError) as error:  # an offline machine has only the files of the cache
        raise BackboneError(f"{address}: {' '.join(str(error).split())}") from error


def optional_library(name: str, needed_by: str, extra: str) -> Any:
    """Return a library; raises BackboneError with the command that installs it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise BackboneError(
            f"{needed_by} needs {name}, not installed: pip install 'ssl-benchmark[{extra}]'"
        ) from error
