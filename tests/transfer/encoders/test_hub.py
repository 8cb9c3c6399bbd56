"""Weights by address, from a local server that speaks the hub's calls."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.transfer.encoders.hub_server import COMMIT, GATED, REPO, hub
from transfer.encoders.architectures import BackboneError
from transfer.encoders.encoder import default_name
from transfer.encoders.hub import address_of, local_file, local_network
from transfer.encoders.options import EncoderOptions
from transfer.encoders.resnets import build_resnet

pytest.importorskip("huggingface_hub")
CACHED = Path(f"/cache/models--lab--mae-small/snapshots/{COMMIT}")


def test_address_of_a_cached_file_has_the_commit() -> None:
    assert address_of(CACHED / "sub/model.pt") == f"hf://{REPO}@{COMMIT}/sub/model.pt"
    assert address_of(CACHED) == f"hf:{REPO}@{COMMIT}"
    assert address_of("/cache/model.pt") == ""


def test_row_is_named_after_the_repository() -> None:
    assert default_name(CACHED / "pytorch_model.bin") == "mae-small"
    assert default_name(CACHED / "jcl-r50.pth") == "jcl-r50"
    assert EncoderOptions(encoder=f"hf:{CACHED}").label == f"hf:{REPO}"


def test_other_paths_stay_as_they_are() -> None:
    assert local_file(Path("runs/hf/model.pt")) == Path("runs/hf/model.pt")
    assert local_network("hf:folder") == "hf:folder"


@pytest.mark.parametrize("text", ["hf://lab/mae-small/model.pt", "hf://lab@main/model.pt"])
def test_address_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(BackboneError, match=r"expected hf://ORG/REPO@REVISION/FILE"):
        local_file(Path(text))


def ask(endpoint: str, cache: Path, *addresses: str, offline: bool = False) -> list[str]:
    """Return the result for each address."""
    completed = asked(endpoint, cache, *addresses, offline=offline)
    return [json.loads(line) for line in completed.stdout.splitlines()]


def asked(
    endpoint: str, cache: Path, *addresses: str, offline: bool = False
) -> subprocess.CompletedProcess[str]:
    """Ask for each address in a new process, since settings are read once per process."""
    code = """
import json, sys
from pathlib import Path
from transfer.encoders.architectures import BackboneError
from transfer.encoders.hub import local_file, local_network
for address in sys.argv[1:]:
    try:
        found = local_file(Path(address)) if address.startswith("hf:/") else local_network(address)
        print(json.dumps(str(found)))
    except BackboneError as error:
        print(json.dumps(f"refused: {error}"))
"""
    env = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(cache), "HF_HUB_DISABLE_XET": "1"}
    env |= {"HF_HUB_OFFLINE": "1"} if offline else {}
    return subprocess.run(
        [sys.executable, "-c", code, *addresses],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )


def test_file_is_cached_and_works_without_network(tmp_path: Path) -> None:
    address = f"hf://{REPO}@main/sub/model.pt"
    with hub({"sub/model.pt": b"weights"}) as endpoint:
        (path,) = ask(endpoint, tmp_path, address)
    assert Path(path).read_bytes() == b"weights"
    assert address_of(path) == f"hf://{REPO}@{COMMIT}/sub/model.pt"
    assert ask(endpoint, tmp_path, address, offline=True) == [path]


def test_network_gets_its_configs_alone(tmp_path: Path) -> None:
    files = {"config.json": b"{}", "model.safetensors": b"weights", "modeling.py": b"code"}
    with hub(files) as endpoint:
        (encoder,) = ask(endpoint, tmp_path, f"hf:{REPO}@main")
    folder = Path(encoder.removeprefix("hf:"))
    assert address_of(folder) == f"hf:{REPO}@{COMMIT}"
    assert [path.name for path in folder.iterdir()] == ["config.json"]


def test_refusals_say_what_to_do(tmp_path: Path) -> None:
    with hub({"model.pt": b"weights"}) as endpoint:
        answers = ask(
            endpoint,
            tmp_path,
            f"hf://{REPO}@main/other.pt",
            f"hf://{REPO}@v2/model.pt",
            f"hf://{GATED}@main/model.pt",
            "hf://lab/absent@main/model.pt",
        )
    (unreachable,) = ask(endpoint, tmp_path, f"hf://{REPO}@main/new.pt")
    parts = ["no such file", "no such revision", "gated", "no such repository", "HF_HOME"]
    for answer, part in zip([*answers, unreachable], parts, strict=True):
        assert answer.startswith("refused: hf://")
        assert part in answer


@pytest.mark.parametrize("address", [f"hf://{REPO}@main/new.pt", f"hf:{REPO}@main"])
def test_no_connection_is_one_sentence(tmp_path: Path, address: str) -> None:
    with hub({}) as endpoint:
        pass  # nobody listens any more
    completed = asked(endpoint, tmp_path, address)
    assert "the hub does not answer" in completed.stdout
    assert completed.stderr == "", "huggingface_hub writes a line for each further try"


@pytest.mark.slow
def test_run_by_address_stores_the_commit(tmp_path: Path) -> None:
    torch.manual_seed(0)
    torch.save(build_resnet("resnet18", "imagenet").state_dict(), tmp_path / "r18.pth")
    address = f"hf://{REPO}@main/r18.pth"
    with hub({"r18.pth": (tmp_path / "r18.pth").read_bytes()}) as endpoint:
        env = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hf")}
        env |= {"HF_HUB_DISABLE_XET": "1"}
        options = ["--data", str(tmp_path / "data"), "--schedule", "smoke"]

        def run(*words: str) -> None:
            subprocess.run([sys.executable, *words], env=env, cwd=tmp_path, check=True)

        run("-m", "transfer", "generate-data", "--data", str(tmp_path / "data"))
        run("-m", "transfer", "inspect", address)
        run("-m", "transfer", "cifar10_knn", "--ckpt", address, *options)
    (file,) = (tmp_path / "results" / "records" / "r18").glob("cifar10_knn*seed0.json")
    record = json.loads(file.read_text())
    assert record["request"]["checkpoint"]["ckpt"] == f"hf://{REPO}@{COMMIT}/r18.pth"
    assert record["backbone"]["source"].startswith(f"hf://{REPO}@{COMMIT}/r18.pth: ")
