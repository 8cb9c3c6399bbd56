"""Snapshots of a run: the network before it, at every pause and at the end."""

from pathlib import Path
from typing import Any

import pytest
import torch

import pretrain.loop
from pretrain.__main__ import main
from pretrain.command import parse
from pretrain.data.listing import find_images
from pretrain.loop import train
from pretrain.run import Job, prepare
from pretrain.running.processes import Process

CPU = Process(device=torch.device("cpu"))


def words(images: Path, out: Path, *options: str) -> list[str]:
    small = ["--batch-size", "10", "--bn-splits", "2", "--epochs", "2"]
    return ["moco/smoke", "--data", str(images), "--out", str(out), *small, *options]


def load(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(file, weights_only=True)
    return content


def test_every_epoch_is_exported_and_the_last_is_the_backbone(
    image_folder: Path, tmp_path: Path
) -> None:
    assert main(words(image_folder, tmp_path / "run", "--snapshot-epochs", "1")) == 0
    files = sorted((tmp_path / "run" / "snapshots").iterdir())
    assert [file.name for file in files] == ["epoch0000.pt", "epoch0001.pt", "epoch0002.pt"]
    contents = [load(file) for file in files]
    assert [content["made_by"]["epochs"] for content in contents] == [0, 1, 2]
    end = load(tmp_path / "run" / "backbone.pt")["state_dict"]
    same = [torch.equal(c["state_dict"]["conv1.weight"], end["conv1.weight"]) for c in contents]
    assert same == [False, False, True]


def test_a_run_killed_at_a_snapshot_writes_it_again(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = words(image_folder, tmp_path, "--snapshot-epochs", "1")
    command, images = parse(arguments[0], arguments[1:]), find_images(image_folder)
    written: list[int] = []

    def write(job: Job, steps: int) -> None:
        written.append(steps)
        if written == [0, 2]:
            raise KeyboardInterrupt

    monkeypatch.setattr(pretrain.loop, "write_snapshot", write)
    with pytest.raises(KeyboardInterrupt):
        train(prepare("moco/smoke", command, CPU, images))
    assert train(prepare("moco/smoke", command, CPU, images)) == 4
    assert written == [0, 2, 0, 2, 4]


@pytest.mark.slow
def test_a_finished_run_that_is_started_again_writes_the_encoder_file_it_lacks(
    image_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert main(words(image_folder, out)) == 0
    log, encoder = (out / "metrics.jsonl").read_bytes(), (out / "encoder.pt").read_bytes()
    backbone = (out / "backbone.pt").read_bytes()
    (out / "encoder.pt").unlink()
    assert main(words(image_folder, out)) == 0
    assert (out / "encoder.pt").read_bytes() == encoder
    assert (out / "backbone.pt").read_bytes() == backbone
    assert (out / "metrics.jsonl").read_bytes() == log
