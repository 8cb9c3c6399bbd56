"""Commands that are killed end with the undisturbed result."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign.subjects import ROOT


def campaign(folder: Path, *args: str) -> list[dict[str, object]]:
    """Run a campaign and check that it was survived.

    Return the lines of its log.
    """
    command = [sys.executable, "-m", "tests.campaign", "--folder", str(folder), *args]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    completed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    (log,) = folder.glob("*.jsonl")
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_the_tables_survive_a_kill(tmp_path: Path) -> None:
    (line,) = campaign(tmp_path, "--subjects", "tables", "--kills", "1")
    assert (line["subject"], line["problem"]) == ("tables", "")


@pytest.mark.slow
def test_killed_commands_end_as_if_undisturbed(tmp_path: Path) -> None:
    args = ("--subjects", "tables", "curves", "pre-training")
    assert len(campaign(tmp_path, *args, "--kills", "3")) == 3
