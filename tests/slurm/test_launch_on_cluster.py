"""Processes started by srun without python -m slurm, and single-process sessions."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.pretrain.conftest import image_folder
from tests.slurm.pretend_cluster import PretendCluster

__all__ = ["image_folder"]
ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.xdist_group("slurm")]


def start(launcher: tuple[str, ...], images: Path) -> subprocess.CompletedProcess[str]:
    args = ["-m", "pretrain", "moco/smoke", "--data", str(images), "--dry-run"]
    args += ["--out", str(images.parent / "run"), "--device", "cpu"]
    return subprocess.run(
        [*launcher, sys.executable, *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def test_bare_srun_names_the_launchers(pretend: PretendCluster, image_folder: Path) -> None:
    completed = start(("srun", "-n", "2"), image_folder)
    assert completed.returncode == 2, completed.stderr
    lines = [line for line in completed.stderr.splitlines() if line.startswith("error: SLURM_STEP")]
    assert len(lines) == 2
    assert "python -m slurm" in lines[0]
    assert "torchrun" in lines[0]


def test_session_of_an_allocation_is_one_process(
    pretend: PretendCluster, image_folder: Path
) -> None:
    completed = start(("salloc", "-n", "2"), image_folder)
    assert completed.returncode == 0, completed.stderr
    assert "1 x cpu" in completed.stderr
