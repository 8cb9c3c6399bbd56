"""The campaign itself: it goes on where it was, and sees an end or a result that is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign.processes import Running
from tests.campaign.subjects import ROOT


def campaign(folder: Path, *words: str) -> list[dict[str, object]]:
    """Run a campaign that must be survived; return the lines of its log."""
    command = [sys.executable, "-m", "tests.campaign", "--folder", str(folder), *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (log,) = folder.glob("*.jsonl")
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_the_tables_survive_a_kill(tmp_path: Path) -> None:
    (line,) = campaign(tmp_path, "--subjects", "tables", "--kills", "1")
    assert (line["subject"], line["problem"]) == ("tables", "")


@pytest.mark.slow
def test_killed_commands_end_as_if_undisturbed_and_a_campaign_goes_on(tmp_path: Path) -> None:
    words = ("--subjects", "tables,make-corruptions,curves,pre-training")
    first = campaign(tmp_path, *words, "--kills", "2")
    assert campaign(tmp_path, *words, "--kills", "4")[:2] == first


@pytest.mark.slow
def test_the_faults_of_machines_are_survived(tmp_path: Path) -> None:
    assert campaign(tmp_path, "--subjects", "make-corruptions", "--faults", "1")


def ended(tmp_path: Path, *ends: tuple[int, str]) -> Running:
    """Return commands that have ended with these statuses and outputs; none is started."""
    run = Running(tmp_path / "log")
    for pid, (status, text) in enumerate(ends):
        run.leaders.append(pid)
        run.statuses[pid], run.outputs[pid] = status, text.encode()
    return run
