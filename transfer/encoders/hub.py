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
CONNECTION_ERRORS = ("ConnectError", "ConnectTimeout", "ConnectionError", "ProxyError")
"""Names of httpx's and requests' errors; versions of huggingface_hub use one or the other."""
UNREACHABLE = (
    "it is not in the cache, and the hub does not answer. Download it on a machine with internet "
    "access that shares this cache (HF_HOME), or pass the path of a file"
)


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
        (repo, revision, file),
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
        (repo, revision, OF_NETWORK[0]),
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


def _download(address: str, file: tuple[str, str, str], download: Callable[[Any], str]) -> Path:
    """Return the path of a download; raises BackboneError with advice if it fails.

    file: repository, revision and name of the file, or of one of the files.
    """
    hub = optional_library("huggingface_hub", address, "hub")
    from huggingface_hub import errors

    if problem := _connection_problem(hub, *file):
        raise BackboneError(f"{address}: {UNREACHABLE} ({problem})")
    advice: dict[type[Exception], str] = {  # subclasses first
        errors.GatedRepoError: "the repository is gated: accept its terms on the hub, and log in "
        "with: hf auth login",
        errors.RevisionNotFoundError: "the repository has no such revision",
        errors.RepositoryNotFoundError: "no such repository, or a private one: log in with: hf "
        "auth login",
        errors.LocalEntryNotFoundError: UNREACHABLE,
        errors.EntryNotFoundError: "the repository has no such file",
    }
    try:
        return Path(download(hub))
    except (OSError, ValueError) as error:
        reasons = (text for kind, text in advice.items() if isinstance(error, kind))
        reason = next(reasons, " ".join(str(error).split()))
        raise BackboneError(f"{address}: {reason}") from error


def _connection_problem(hub: Any, repo: str, revision: str, file: str) -> str:
    """Return why there is no connection to the hub; empty if there is one, or a cached file.

    For a file that is not in the cache, huggingface_hub itself tries to connect six times, which
    takes 24 s, or several minutes if a firewall drops the packets. A slow answer is no error here.
    """
    if isinstance(hub.try_to_load_from_cache(repo, file, revision=revision), str):
        return ""
    try:
        hub.get_hf_file_metadata(hub.hf_hub_url(repo, file, revision=revision))
    except Exception as error:  # the download reports all others
        if type(error).__name__ in CONNECTION_ERRORS:
            return " ".join(str(error).split()) or type(error).__name__
    return ""


def optional_library(name: str, needed_by: str, extra: str) -> Any:
    """Return a library; raises BackboneError with the command that installs it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise BackboneError(
            f"{needed_by} needs {name}, not installed: pip install 'ssl-benchmark[{extra}]'"
        ) from error
