"""The whole command runs on a CPU, so that it does not rot where there is no GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def lines(*words: str) -> list[dict[str, object]]:
    """Return the lines of the command on a CPU; nothing else may be among them."""
    command = [sys.executable, "-m", "transfer.checks", "--device", "cpu", *words]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_every_check_passes_or_says_why_it_cannot_run_on_a_cpu(tmp_path: Path) -> None:
    answers = [line for line in lines("--folder", str(tmp_path)) if "status" in line]
    listed = [line["check"] for line in lines("--list")]
    assert [answer["check"] for answer in answers] == listed
    for answer in answers:
        assert answer["status"] in ("passed", "measured", "skipped"), answer
        assert (answer["status"] == "skipped") == bool(answer["reason"])
    skipped = {str(answer["reason"]) for answer in answers if answer["status"] == "skipped"}
    assert all("not installed" in reason or "needs CUDA" in reason for reason in skipped)
