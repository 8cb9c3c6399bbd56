"""The cached description of a checkpoint is that of its file."""

import os
from pathlib import Path

import pytest

import benchmarks.planning.checkpoints
from benchmarks.planning.checkpoints import Origin, inspect_checkpoint
from transfer.backbone import Backbone, BackboneError, load_backbone, with_heads


def same(one: Backbone, other: Backbone) -> bool:
    names = ("name", "arch", "stem", "input", "made_by", "source", "file_sha256", "sha256")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def test_a_file_is_read_once(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = load_backbone(checkpoint, name="a")
    origin, twin = Origin(ckpt=checkpoint, name="a"), Origin(ckpt=checkpoint, random=True)
    assert same(inspect_checkpoint(origin, tmp_path), expected)
    inspect_checkpoint(twin, tmp_path)
    monkeypatch.delattr(benchmarks.planning.checkpoints, "load")
    again = inspect_checkpoint(origin, tmp_path)
    assert same(again, expected)
    assert again.state_dict == {}
    assert same(inspect_checkpoint(twin, tmp_path), expected.random_twin())


def test_some_heads_of_a_file_are_remembered_as_they_are_loaded(
    four_heads: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origins = [Origin(ckpt=four_heads, name=name, heads=(2, 0)) for name in ("a", None)]
    whole = load_backbone(four_heads)
    found = [inspect_checkpoint(origin, tmp_path) for origin in origins]
    monkeypatch.delattr(benchmarks.planning.checkpoints, "load")
    assert [backbone.name for backbone in found] == ["a-heads2+0", "loocpp-heads2+0"]
    assert same(found[1], with_heads(whole, (2, 0)))
    assert same(inspect_checkpoint(origins[1], tmp_path), found[1])


def test_a_full_disk_only_forgets(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(benchmarks.planning.checkpoints, "write_json", full)
    origin = Origin(ckpt=checkpoint, name="a")
    assert same(inspect_checkpoint(origin, tmp_path), load_backbone(checkpoint, name="a"))


def test_a_file_that_changed_is_read_again(checkpoint: Path, tmp_path: Path) -> None:
    origin = Origin(ckpt=checkpoint, name="a")
    inspect_checkpoint(origin, tmp_path)
    checkpoint.write_bytes(b"torn")
    os.utime(checkpoint, (1, 1))
    with pytest.raises(BackboneError):
        inspect_checkpoint(origin, tmp_path)


def test_the_file_is_named_as_it_is_given_now(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"
    monkeypatch.chdir(checkpoint.parent)
    assert inspect_checkpoint(Origin(ckpt=Path(checkpoint.name)), runs).file == checkpoint.name
    assert inspect_checkpoint(Origin(ckpt=checkpoint), runs).file == str(checkpoint)
