"""The command line: exit status, and equal results after a kill."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from transfer.__main__ import main
from transfer.tasks import TASKS

SLOW_TASK = "transfer_linear/dtd"
Capture = pytest.CaptureFixture[str]


def words(checkpoint: Path, data: Path, folder: Path, task: str = SLOW_TASK) -> list[str]:
    return [
        *(task, "--ckpt", str(checkpoint), "--data", str(data), "--schedule", "smoke"),
        *("--results", str(folder / "results"), "--runs", str(folder / "runs")),
    ]


def record(folder: Path) -> dict[str, object]:
    (path,) = (folder / "results").rglob("*.seed0.json")
    content: dict[str, object] = json.loads(path.read_text())
    return content


REFUSED: dict[str, tuple[list[str], str]] = {
    "unknown task": (["nosuch"], "unknown task 'nosuch'. Did you mean "),
    "outside the results": ([SLOW_TASK, "--name=../outside"], "--name '../outside'"),
    "file of a reserved name": ([SLOW_TASK, "--ckpt=tables.pth"], "choose another --name"),
    "a task that it cannot do": (["cifar10_view_statistics"], "projector"),
    "an unknown recipe": (
        [SLOW_TASK, "--trained-with=nosuch/recipe"],
        "this recipe has no published number",
    ),
    "a recipe of no paper": (
        [SLOW_TASK, "--trained-with=moco/smoke"],
        "this recipe has no published number",
    ),
    "no recipe": ([SLOW_TASK, "--trained-with=moco"], "expected a recipe such as"),
    "absent data": ([SLOW_TASK, "--data=nowhere"], "dtd"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_request_exits_with_2_and_no_record(
    case: str, checkpoint: Path, small_data: Path, tmp_path: Path, capsys: Capture
) -> None:
    (task, *remaining), message = REFUSED[case]
    assert main([*words(checkpoint, small_data, tmp_path, task), *remaining]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.seed0.json"))


def test_columns_of_the_list_are_separate(capsys: Capture) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    expected = [[key, task.protocol] for key, task in TASKS.items()]
    assert [line.split()[:2] for line in lines] == expected


def test_excerpts_are_announced_by_name(capsys: Capture) -> None:
    assert main(["register-subset"]) == 2
    assert "no dataset given" in capsys.readouterr().err


def test_data_sets_are_checked_and_announced_by_their_keys(
    small_data: Path, capsys: Capture
) -> None:
    where = ["--data", str(small_data)]
    assert main(["check-data", "cifar10", "dtd", *where]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line] == ["data", "cifar10", "dtd"]
    for command in ("check-data", "register-subset"):
        assert main([command, "cifar1", *where]) == 2
        assert "unknown dataset 'cifar1'. Did you mean cifar10" in capsys.readouterr().err


def test_a_dry_run_writes_nothing(
    checkpoint: Path, small_data: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert main([*words(checkpoint, small_data, tmp_path), "--dry-run"]) == 0
    assert "steps 24 instead of 5000" in capsys.readouterr().out
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_a_killed_run_started_again_ends_as_if_undisturbed(
    checkpoint: Path, small_data: Path, tmp_path: Path
) -> None:
    assert main(words(checkpoint, small_data, tmp_path / "whole")) == 0
    command = [sys.executable, "-m", "transfer", *words(checkpoint, small_data, tmp_path / "cut")]
    quick = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    process = subprocess.Popen(command, env=quick, stderr=subprocess.DEVNULL)
    saved = tmp_path / "cut" / "runs" / "cache"
    while process.poll() is None and not list(saved.rglob("*.npy")):
        time.sleep(0.05)
    time.sleep(1.0)  # now it extracts the next split, or trains
    process.kill()
    process.wait()
    subprocess.run(command, env=quick, check=True, stderr=subprocess.DEVNULL)
    cut, whole = record(tmp_path / "cut"), record(tmp_path / "whole")
    assert cut["metrics"] == whole["metrics"]
    assert cut["details"] == whole["details"]


def test_old_names_of_options_are_accepted_with_a_hint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([SLOW_TASK, "--as=nosuch/recipe", f"--ckpt={tmp_path / 'absent.pth'}"]) == 2
    assert "note: --as is now --trained-with" in capsys.readouterr().err
    assert main(["describe-data", "nosuch", "--data", str(tmp_path)]) == 2
    assert "note: describe-data is now register-subset" in capsys.readouterr().err
