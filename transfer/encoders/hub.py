"""Files and networks on the Hugging Face hub, by address.

Weights are hf://ORG/REPO@REVISION/FILE, networks hf:ORG/REPO@REVISION. huggingface_hub downloads
them once into its cache; the paths in the cache contain repository and commit. Everything else uses
these paths and needs no internet connection. A revision is a branch, a tag or a commit.

No code of a repository is executed: a pickle is read like any other checkpoint, and transformers
builds a network from its config.
"""

import re
from collections.abc import Callable
from pathlib import Path

from transfer.encoders.architectures import BackboneError

FILE = re.compile(r"hf:/{1,2}([\w.-]+/[\w.-]+)@([^/]+)/(.+)")
NETWORK = re.compile(r"hf:([\w.-]+/[\w.-]+)@([^/]+)")
CACHED = re.compile(r".*/models--([\w.-]+?)--([\w.-]+)/snapshots/([0-9a-f]{7,40})(?:/(.+))?")
ADDRESS_FORMAT = (
    "hf://ORG/REPO@REVISION/FILE, such as hf://timm/resnet50.a1_in1k@main/model.safetensors"
)
OF_NETWORK = ("config.json", "preprocessor_config.json")
"""Files of a repository that define its network and input images."""


def local_file(path: Path) -> Path:
    """Return the path of a hub file in the cache.

    Other paths are unchanged. BackboneError for a malformed address, without internet connection or
    permission, or if the repository, revision or file does not exist.
    """
    text = path.as_posix()
    if not text.startswith("hf:/"):
        return path
    if (address := FILE.fullmatch(text)) is None:
        raise BackboneError(f"--ckpt {text}: expected {ADDRESS_FORMAT}")
    repo, revision, file = address.groups()

    def download() -> Path:
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(repo, file, revision=revision))

    return _with_explained_errors(f"hf://{repo}@{revision}/{file}", download)


def local_network(encoder: str) -> str:
    """Return hf:FOLDER in the cache for hf:ORG/REPO@REVISION.

    Other encoders are unchanged. BackboneError as in `local_file`.
    """
    address = NETWORK.fullmatch(encoder)
    if address is None or Path(encoder.removeprefix("hf:")).exists():
        return encoder
    repo, revision = address.groups()

    def download() -> Path:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(repo, revision=revision, allow_patterns=[*OF_NETWORK]))

    return f"hf:{_with_explained_errors(encoder, download)}"


def address_of(path: Path | str) -> str:
    """Return the hub address, with commit, of a path in the cache.

    Empty for other paths.
    """
    match = CACHED.fullmatch(Path(path).absolute().as_posix())
    if match is None:
        return ""
    org, repo, commit, file = match.groups()
    return f"hf://{org}/{repo}@{commit}/{file}" if file else f"hf:{org}/{repo}@{commit}"


def _with_explained_errors(address: str, download: Callable[[], Path]) -> Path:
    """Return the path of a download; BackboneError with advice if it fails."""
    try:
        from huggingface_hub import errors
    except ImportError as error:
        raise BackboneError(
            f"{address} needs huggingface_hub, which is not installed: pip install "
            "'ssl-benchmark[hub]'"
        ) from error
    try:
        return download()
    except errors.GatedRepoError as error:
        reason = (
            "the repository is gated: accept its terms on the hub, and log in with: hf auth login"
        )
        raise BackboneError(f"{address}: {reason}") from error
    except errors.RevisionNotFoundError as error:
        raise BackboneError(f"{address}: the repository has no such revision") from error
    except errors.RepositoryNotFoundError as error:
        reason = "no such repository, or a private one: log in with: hf auth login"
        raise BackboneError(f"{address}: {reason}") from error
    except errors.LocalEntryNotFoundError as error:
        reason = (
            "it is not in the cache, and the hub does not answer. Download it on a machine with "
            "internet access that shares this cache (HF_HOME), or pass the path of a file"
        )
        raise BackboneError(f"{address}: {reason}") from error
    except errors.EntryNotFoundError as error:
        raise BackboneError(f"{address}: the repository has no such file") from error
    except (OSError, ValueError) as error:
        raise BackboneError(f"{address}: {str(error).splitlines()[0]}") from error
