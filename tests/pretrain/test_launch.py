import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pretrain.launch import LaunchError, folder_lock, join_processes, require_own_folder
from pretrain.running.atomic_files import WriteError

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "a+")
fcntl.flock(file, fcntl.LOCK_EX)
file.write("123 on elsewhere")
file.flush()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_run_on_a_folder_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        first.stdout.readline()
        with (
            pytest.raises(LaunchError, match=r"in use by another run \(process 123 on elsewhere\)"),
            folder_lock(tmp_path),
        ):
            pass
        first.kill()
    with folder_lock(tmp_path):
        assert "123" not in (tmp_path / ".lock").read_text()


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/none/run"])
def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(LaunchError, match=rf"{place} cannot be the folder.*choose another --out"),
        folder_lock(tmp_path / place),
    ):
        pass


def test_a_file_system_without_locks_is_not_taken_for_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(LaunchError, match=r"cannot be locked .*choose an --out on"):
        folder_lock(tmp_path).__enter__()


def test_a_run_notices_that_one_on_another_machine_has_taken_its_folder(tmp_path: Path) -> None:
    with folder_lock(tmp_path):
        require_own_folder(tmp_path)
        (tmp_path / ".lock").write_text("123 on elsewhere\n")
        with pytest.raises(WriteError, match=r"taken by another run \(process 123 on elsewhere\)"):
            require_own_folder(tmp_path)


def test_halves_of_files_that_a_kill_has_left_are_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "snapshots").mkdir()
    halves = [tmp_path / "checkpoint.pt.1f.unfinished", tmp_path / "snapshots/e.pt.2a.unfinished"]
    for file in (*halves, tmp_path / "checkpoint.pt"):
        file.touch()
    with folder_lock(tmp_path):
        assert not any(file.exists() for file in halves)
        assert (tmp_path / "checkpoint.pt").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_where_there_is_none_is_refused() -> None:
    with (
        pytest.raises(LaunchError, match="no CUDA device; use --device cpu"),
        join_processes("cuda"),
    ):
        pass
