"""Stage files: bits that come back are the bits that went, or nothing comes back."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from transfer.running.stages import load_stage, save_stage

STAGE = {"weights": torch.randn(3, 4).double(), "converged": torch.tensor([True, False])}


def test_tensors_come_back_bit_for_bit_and_of_a_damaged_file_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.stage"
    assert load_stage(path) is None
    save_stage(path, STAGE)
    found = load_stage(path)
    assert found is not None
    assert found.keys() == STAGE.keys()
    assert all(torch.equal(found[name], STAGE[name]) for name in STAGE)
    whole = path.read_bytes()
    for length in (0, 10, 32, 33, 150, -1):
        path.write_bytes(whole[:length])
        assert load_stage(path) is None, length
    for position in (0, 31, 40, -1):
        content = bytearray(whole)
        content[position] ^= 1
        path.write_bytes(content)
        assert load_stage(path) is None, position


def test_a_full_disk_leaves_the_earlier_stage_and_nothing_else(
    tmp_path: Path, fill_disk: Callable[[str], None]
) -> None:
    path = tmp_path / "a.stage"
    save_stage(path, STAGE)
    fill_disk(str(tmp_path))
    with pytest.raises(OSError, match="No space left"):
        save_stage(path, {"weights": torch.zeros(1)})
    assert load_stage(path) is not None
    assert [file.name for file in tmp_path.iterdir()] == ["a.stage"]
