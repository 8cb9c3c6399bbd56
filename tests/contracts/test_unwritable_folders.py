"""Commands refuse folders that they cannot write to, before they do anything."""

from collections.abc import Callable
from pathlib import Path

import pytest

import benchmarks.figures
import benchmarks.run_all
import benchmarks.tables
import transfer.__main__

NONE = ("--ckpt", "file", "--data", "none")
COMMANDS: dict[str, tuple[Callable[[list[str]], int], tuple[str, ...]]] = {
    "transfer": (transfer.__main__.main, ("cifar10_knn", *NONE)),
    "run_all": (benchmarks.run_all.main, NONE),
    "run_all --demo": (benchmarks.run_all.main, ("--demo",)),
    "snapshots": (benchmarks.run_all.main, ("--snapshots", "none")),
    "tables": (benchmarks.tables.main, ()),
    "figures": (benchmarks.figures.main, ()),
}
TASKS = ("transfer", "run_all", "snapshots")
"""Commands with folders for results and for unfinished work."""


@pytest.mark.parametrize(
    ("command", "option"),
    [
        *((command, option) for command in TASKS for option in ("--results", "--runs")),
        ("run_all --demo", "--runs"),
        ("tables", "--results"),
        ("figures", "--results"),
    ],
)
def test_a_folder_that_cannot_be_written_is_refused_with_status_2_before_any_work(
    command: str,
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    previous = sorted(tmp_path.rglob("*"))
    main, args = COMMANDS[command]
    for location in ("file", "file/below", "link", "link/below"):
        assert main([*args, option, location]) == 2
        assert f"error: {option} {location}: cannot be written (" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == previous


@pytest.mark.parametrize("option", ["--results", "--runs"])
def test_a_plan_needs_no_folder_that_can_be_written(
    option: str,
    tmp_path: Path,
    checkpoint: Path,
    small_data: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "gone")
    args = ["--ckpt", str(checkpoint), "--data", str(small_data), "--tasks", "cifar10_knn"]
    assert benchmarks.run_all.main([*args, "--plan", option, str(link)]) == 0
    output = capsys.readouterr()
    assert f"note: {option} {link}: cannot be written (" in output.err
    assert "cifar10_knn" in output.out
