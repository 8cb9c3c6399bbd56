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


def test_the_list_names_each_check_once() -> None:
    listed = lines("--list")
    assert all(line.keys() == {"check", "group", "seconds"} for line in listed)
    assert len({line["check"] for line in listed}) == len(listed) > 50


@pytest.mark.slow
def test_a_chosen_check_prints_its_beginning_and_its_answer(tmp_path: Path) -> None:
    name = "features of resnet18 in float32"
    begin, answer = lines("--only", name, "--folder", str(tmp_path))
    assert begin == {"begin": name}
    assert (answer["check"], answer["status"]) == (name, "passed")
