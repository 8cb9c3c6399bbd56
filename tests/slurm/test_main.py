"""python -m slurm: one command as a job."""

from pathlib import Path

import pytest

from slurm.__main__ import main


def test_a_wrong_request_exits_with_2(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no sbatch here
    found = [main(words) for words in ([], ["--nodes", "0", "--", "true"], ["--", "true"])]
    assert found == [2, 2, 2]
