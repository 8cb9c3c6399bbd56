from pathlib import Path

import pytest
import torch

from pretrain.__main__ import main
from pretrain.running.processes import LaunchError
from pretrain.start import folder_lock


def test_a_second_run_on_a_folder_is_refused(tmp_path: Path) -> None:
    busy = pytest.raises(LaunchError, match=f"{tmp_path}: another process works here")
    with folder_lock(tmp_path), busy, folder_lock(tmp_path):
        pass


@pytest.mark.parametrize("location", ["file", "file/below", "/proc/none/run"])
def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(
            LaunchError, match=rf"{location}/lock: cannot be written.*pass another --out"
        ),
        folder_lock(tmp_path / location),
    ):
        pass


def test_only_partial_files_of_a_kill_are_removed(tmp_path: Path) -> None:
    (tmp_path / "snapshots").mkdir()
    halves = [tmp_path / "checkpoint.pt.1f.unfinished", tmp_path / "snapshots/e.pt.2a.unfinished"]
    for file in (*halves, tmp_path / "checkpoint.pt"):
        file.touch()
    with folder_lock(tmp_path):
        assert not any(file.exists() for file in halves)
        assert (tmp_path / "checkpoint.pt").exists()


@pytest.mark.parametrize("of_gpu", [True, False])
def test_a_run_without_memory_ends_in_one_line_that_names_what_needs_less(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    of_gpu: bool,
) -> None:
    def fails(*_: object) -> None:
        if of_gpu:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nframes")
        torch.empty(2**52, dtype=torch.uint8)

    monkeypatch.setattr("pretrain.start.run", fails)
    assert main(["jcl/smoke", "--data", str(tmp_path), "--out", str(tmp_path / "run")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "llocate" in line
    assert "--checkpoint-activations" in line


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_where_there_is_none_is_refused(
    image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["--data", str(image_folder), "--out", str(tmp_path / "run"), "--device", "cuda"]
    assert main(["jcl/smoke", *args]) == 2
    assert "no CUDA device on this machine" in capsys.readouterr().err
