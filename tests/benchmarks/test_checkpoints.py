"""What is remembered of a checkpoint is what it is."""

import os
from pathlib import Path

import pytest

import benchmarks.checkpoints
from benchmarks.checkpoints import looked_at, twin_looked_at
from transfer.backbone import Backbone, BackboneError, load_backbone, random_twin


def same(one: Backbone, other: Backbone) -> bool:
    names = ("name", "arch", "stem", "input", "made_by", "source", "file_sha256", "sha256")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def test_a_file_is_read_once(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = load_backbone(checkpoint, name="a")
    assert same(looked_at(checkpoint, "a", tmp_path), expected)
    twin = twin_looked_at(checkpoint, tmp_path)
    monkeypatch.delattr(benchmarks.checkpoints, "load_backbone")
    again = looked_at(checkpoint, "a", tmp_path)
    assert same(again, expected)
    assert again.state_dict == {}
    assert same(twin, random_twin(expected))


def test_a_full_disk_only_forgets(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(benchmarks.checkpoints, "write_json", full)
    assert same(looked_at(checkpoint, "a", tmp_path), load_backbone(checkpoint, name="a"))


def test_another_version_remembers_nothing(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at(checkpoint, "a", tmp_path)
    monkeypatch.setattr(benchmarks.checkpoints, "VERSION", 2)
    looked_at(checkpoint, "a", tmp_path)
    assert len(list((tmp_path / "cache" / "checkpoints").glob("*.json"))) == 2


def test_a_file_that_changed_is_read_again(checkpoint: Path, tmp_path: Path) -> None:
    looked_at(checkpoint, "a", tmp_path)
    checkpoint.write_bytes(b"torn")
    os.utime(checkpoint, (1, 1))
    with pytest.raises(BackboneError):
        looked_at(checkpoint, "a", tmp_path)
