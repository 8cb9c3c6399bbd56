"""python -m slurm: one command as a job."""

from pathlib import Path

import pytest

from slurm.__main__ import main


def test_a_dry_run_prints_what_sbatch_would_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--nodes", "2", "--gpus", "8", "--partition", "gpu", "--dry-run"]
    assert main([*words, "--", "python", "-m", "pretrain", "jcl/smoke"]) == 0
    said = capsys.readouterr().out
    assert "#SBATCH --ntasks-per-node=8" in said
    assert "# runs: python -m pretrain jcl/smoke" in said


def test_a_wrong_request_exits_with_2(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no sbatch here
    found = [main(words) for words in ([], ["--nodes", "0", "--", "true"], ["--", "true"])]
    assert found == [2, 2, 2]
