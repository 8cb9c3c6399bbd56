"""Files are replaced atomically, and errors explain the obstacle."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch

from pretrain.running.atomic_files import WriteError, load_stage, save_stage, write_whole


def test_a_full_disk_leaves_the_file_before_and_nothing_else(
    tmp_path: Path, fill_disk: Callable[[str], None]
) -> None:
    write_whole(tmp_path / "file", b"before")
    fill_disk(str(tmp_path))
    with pytest.raises(WriteError, match=r"file: cannot be written \(No space left on device\)"):
        write_whole(tmp_path / "file", b"after")
    assert (tmp_path / "file").read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_two_writers_of_a_file_do_not_share_its_unfinished_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sync = tmp_path / "file", os.fsync

    def meanwhile(descriptor: int) -> None:
        # containers on two machines may give their processes the same number
        monkeypatch.setattr(os, "fsync", sync)
        write_whole(path, b"second")
        assert path.read_bytes() == b"second"

    monkeypatch.setattr(os, "fsync", meanwhile)
    write_whole(path, b"the first")
    assert path.read_bytes() == b"the first"
    assert list(tmp_path.iterdir()) == [path]


STAGE = {
    "step": 3,
    "network": {"weights": torch.randn(3, 4).double(), "converged": torch.tensor([True, False])},
    "curve": [[1.5, None]],
}


def test_damaged_stage_counts_as_missing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.stage"
    assert load_stage(path) is None
    save_stage(path, STAGE)
    result = load_stage(path)
    assert result is not None
    torch.testing.assert_close(result, STAGE, rtol=0, atol=0)
    whole = path.read_bytes()
    for length in (0, 10, 32, 33, 150, -1):
        path.write_bytes(whole[:length])
        assert load_stage(path) is None, length
    for position in (0, 31, 40, -1):
        content = bytearray(whole)
        content[position] ^= 1
        path.write_bytes(content)
        assert load_stage(path) is None, position


def test_stages_of_earlier_versions_are_read(tmp_path: Path) -> None:
    path, state = tmp_path / "a.stage", {"bias": torch.arange(3.0)}
    content = safetensors.torch.save(state)
    path.write_bytes(hashlib.sha256(content).digest() + content)
    torch.testing.assert_close(load_stage(path), state)
    torch.save(state, path)
    torch.testing.assert_close(load_stage(path), state)
    path.write_bytes(path.read_bytes()[:-300])
    assert load_stage(path) is None


def test_a_digest_that_begins_like_a_zip_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = SimpleNamespace(digest=lambda: b"PK" + bytes(30))
    monkeypatch.setattr("pretrain.running.atomic_files.hashlib.sha256", lambda _: digest)
    save_stage(tmp_path / "a.stage", {"step": 3})
    assert load_stage(tmp_path / "a.stage") == {"step": 3}
