"""Stage files: bits that come back are the bits that went, or nothing comes back."""

import errno
import os
from pathlib import Path

import pytest
import torch

from transfer.running.stages import load_stage, save_stage

STAGE = {"weights": torch.randn(3, 4).double(), "converged": torch.tensor([True, False])}


def test_tensors_come_back_bit_for_bit(tmp_path: Path) -> None:
    save_stage(tmp_path / "new" / "a.stage", STAGE)
    found = load_stage(tmp_path / "new" / "a.stage")
    assert found is not None
    assert found.keys() == STAGE.keys()
    assert all(torch.equal(found[name], STAGE[name]) for name in STAGE)


def test_an_absent_stage_is_none(tmp_path: Path) -> None:
    assert load_stage(tmp_path / "a.stage") is None


@pytest.mark.parametrize("length", [0, 10, 32, 33, 150, -1])
def test_a_torn_stage_is_not_believed(tmp_path: Path, length: int) -> None:
    path = tmp_path / "a.stage"
    save_stage(path, STAGE)
    path.write_bytes(path.read_bytes()[:length])
    assert load_stage(path) is None


@pytest.mark.parametrize("position", [0, 31, 40, -1])
def test_a_stage_with_an_altered_byte_is_not_believed(tmp_path: Path, position: int) -> None:
    path = tmp_path / "a.stage"
    save_stage(path, STAGE)
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    assert load_stage(path) is None


def test_a_full_disk_leaves_the_earlier_stage_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.stage"
    save_stage(path, STAGE)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_stage(path, {"weights": torch.zeros(1)})
    assert load_stage(path) is not None
    assert [file.name for file in tmp_path.iterdir()] == ["a.stage"]
