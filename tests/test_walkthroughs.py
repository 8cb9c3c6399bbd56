"""The README's commands as printed, and the walk-throughs in a code copy."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from transfer.record import STATE

ROOT = Path(__file__).parents[1]
NEW_FILE = re.compile(r"`([\w/]+\.(?:py|yaml))`:\n\n```(?:python|yaml)\n(.*?)```", re.S)
EDIT = re.compile(r"In `([\w/.]+)`:\n\n((?:```diff\n.*?```\n\n)+)", re.S)
COMMANDS = re.compile(r"```bash\n(.*?)```", re.S)
PREPARED = (
    "python -m transfer generate-data --data runs/small",
    "python -m pretrain jcl/smoke --data runs/small/pretrain --out runs/jcl-smoke --steps 2",
)

FREEZE = "python -m tests.contracts.frozen"
CONTRACTS = "tests/contracts tests/docs tests/benchmarks/planning tests/pretrain tests/transfer"
"""Packages with tests over all tasks, datasets and methods."""
CHOSEN = "frozen or reference or suite or test_tasks or test_imports or every_method or catalog"
"""Contract tests of these packages.

Tests with a case per task, dataset or method run only the new case.
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the code and its tests, without results."""
    for room in ("pretrain", "transfer", "benchmarks", "slurm", "docs", "tests"):
        shutil.copytree(ROOT / room, tmp_path / room)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "results").mkdir()
    return tmp_path


def follow(copy: Path, text: str) -> int:
    """Write the new files and the edits of a walk-through.

    Return their number.
    """
    files, edits = NEW_FILE.findall(text), EDIT.findall(text)
    for name, content in files:
        assert not (copy / name).exists()
        (copy / name).write_text(content)
    for name, blocks in edits:
        for block in re.findall(r"```diff\n(.*?)```", blocks, re.S):
            previous = "".join(line[1:] + "\n" for line in block.splitlines() if line[0] == " ")
            replacement = "".join(line[1:] + "\n" for line in block.splitlines())
            content = (copy / name).read_text()
            assert previous in content, f"{name} has no {previous!r}"
            (copy / name).write_text(content.replace(previous, replacement))
    return len(files) + len(edits)


def run(copy: Path, command: str) -> str:
    """Return a command's output in the copy."""
    program, *args = shlex.split(command)
    assert program == "python"
    completed = subprocess.run(
        [sys.executable, *args],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


@pytest.mark.slow
def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    output = re.findall(r"`python ([^`]*runs/small[^`]*)`", (ROOT / "README.md").read_text())
    output.sort(key=lambda command: "generate-data" not in command)
    assert len(output) == 5
    for command in output:
        args = shlex.split(command.replace("runs/", f"{tmp_path}/runs/"))
        if "--ckpt" in args:
            args += ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
        subprocess.run([sys.executable, *args], cwd=ROOT, check=True, capture_output=True)
    records = (tmp_path / "results" / "records" / "jcl-smoke").glob("*.json")
    assert len([path for path in records if not path.name.endswith(STATE)]) == 3


HOWTO = ROOT / "docs" / "howto"
WALKTHROUGHS = (
    ("add_a_task.md", 2, "nearest_mean", "cifar10_nearest_mean"),
    ("add_a_dataset.md", 3, "stl10", "stl10  generated  5"),
    ("add_a_paper.md", 1, "published", "mine_table1.md"),
    ("add_a_method.md", 4, "align_uniform", "align_uniform/smoke"),
)


def test_every_walkthrough_fits_the_files_that_it_changes(copy: Path) -> None:
    for page, steps, *_ in WALKTHROUGHS:
        assert follow(copy, (HOWTO / page).read_text()) == steps


@pytest.mark.slow
@pytest.mark.parametrize(("page", "steps", "new", "expected_text"), WALKTHROUGHS)
def test_walkthrough_works_as_printed(
    page: str, steps: int, new: str, expected_text: str, copy: Path
) -> None:
    text = (HOWTO / page).read_text()
    if "runs/small" in text:
        for command in PREPARED:
            run(copy, command)
    assert follow(copy, text) == steps
    printed = [
        run(copy, command) for block in COMMANDS.findall(text) for command in block.splitlines()
    ]
    assert any(expected_text in output for output in printed)
    assert f"`{FREEZE}`" in text
    run(copy, FREEZE)
    tests = f"python -m pytest -q -n0 -p no:cacheprovider {CONTRACTS}"
    run(copy, f"{tests} -k '{new} or (not tiny and ({CHOSEN}))'")
