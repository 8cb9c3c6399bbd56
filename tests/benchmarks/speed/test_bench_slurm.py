"""The cost of scheduling can be measured in any folder."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import benchmarks.speed.bench_slurm
from benchmarks.speed.bench_slurm import Request, bench_array


def test_the_folder_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def submitted(arrays: object, queue: object, folder: Path, where: object) -> list[list[str]]:
        assert folder.parent == tmp_path / "new"
        return [["1"]]

    def ended(jobs: Sequence[str]) -> bool:
        return True

    monkeypatch.setattr(benchmarks.speed.bench_slurm, "submit", submitted)
    monkeypatch.setattr(benchmarks.speed.bench_slurm, "cluster", dict)
    monkeypatch.setattr(benchmarks.speed.bench_slurm, "_all_ended", ended)
    bench_array(Request(cells=1, folder=tmp_path / "new"))
    assert (tmp_path / "new").is_dir()
