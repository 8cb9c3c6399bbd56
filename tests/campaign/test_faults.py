"""Faults of machines: how the end of a damaged command is judged."""

import json
import random
from pathlib import Path

import pytest
import torch

from tests.campaign import damage
from tests.campaign.faults import FAULTS
from tests.campaign.outcome import differences, outcome
from tests.campaign.processes import Running
from tests.campaign.subjects import SUBJECTS, Places
from tests.campaign.trial import Undisturbed

REASON = "failed: a process that loads images was killed by SIGKILL, most likely memory ran out\n"
RESULT = "cifar10_knn  top1 23.67 %  ->  results/records/a.json\n"


def ended(tmp_path: Path, *ends: tuple[int, str]) -> Running:
    """Return commands that have ended with these statuses and outputs; none is started."""
    run = Running(tmp_path / "log")
    for pid, (status, text) in enumerate(ends):
        run.leaders.append(pid)
        run.statuses[pid], run.outputs[pid] = status, text.encode()
    return run


@pytest.mark.parametrize("ends", [((1, REASON), (0, RESULT)), ((0, RESULT), (1, REASON))])
def test_the_reason_is_looked_for_in_the_output_of_the_command_that_failed(
    tmp_path: Path, ends: tuple[tuple[int, str], ...]
) -> None:
    assert damage.wrong_reason(ended(tmp_path, *ends), damage.KILLED) == ""


def test_each_command_that_failed_must_say_why(tmp_path: Path) -> None:
    run = ended(tmp_path, (1, REASON), (1, "Killed\n"), (0, RESULT))
    assert damage.wrong_reason(run, damage.KILLED).startswith("[1, 1, 0] without the reason")
    assert damage.wrong_reason(ended(tmp_path, (1, REASON)), damage.NEVER) != ""


def test_a_run_over_many_cells_says_why_one_failed_before_it_lists_the_tables(
    tmp_path: Path,
) -> None:
    tables = "".join(f"table  {number}.md\n" for number in range(20))
    run = ended(tmp_path, (1, f"cifar10_knn  {REASON}{tables}4 cells, 1 failed, 2 s\n"))
    assert damage.wrong_reason(run, damage.KILLED) == ""


def test_a_file_cut_short_or_filled_with_zeros_is_a_difference(tmp_path: Path) -> None:
    record = tmp_path / "results/records/a/knn.json"
    weights, log = tmp_path / "run/backbone.pt", tmp_path / "run/metrics.jsonl"
    for file in (record, weights):
        file.parent.mkdir(parents=True)
    record.write_text(json.dumps({"metrics": {"top1": 50.0}, "details": {}}))
    torch.save({"state_dict": {"w": torch.ones(3)}}, weights)
    log.write_text('{"step": 1, "loss": 0.5}\n')
    before = outcome(tmp_path)
    for file in (record, weights, log):
        content = file.read_bytes()
        size = len(content)
        for torn in (b"", content[: size // 2], bytes(size), content[: size // 2] + bytes(size)):
            file.write_bytes(torn)
            assert file.name in differences(before, outcome(tmp_path))
        file.write_bytes(content)
    assert differences(before, outcome(tmp_path)) == ""


def test_every_kind_of_fault_damages_known_commands() -> None:
    for fault in FAULTS.values():
        assert len(set(fault.subjects)) > 1
        assert set(fault.subjects) <= SUBJECTS.keys()


def test_folders_become_read_only_and_writable_again_but_nothing_behind_a_link(
    tmp_path: Path,
) -> None:
    data, file = tmp_path / "data", tmp_path / "out/below/file"
    file.parent.mkdir(parents=True)
    data.mkdir()
    file.touch()
    (tmp_path / "out/link").symlink_to(data)
    modes = {path: path.stat().st_mode for path in tmp_path.rglob("*")}
    damage.set_writable(tmp_path / "out", writable=False)
    assert not any(path.stat().st_mode & 0o222 for path in (file, file.parent, tmp_path / "out"))
    assert data.stat().st_mode == modes[data]
    damage.set_writable(tmp_path / "out", writable=True)
    assert all(path.stat().st_mode & 0o200 for path in modes)


def test_files_are_damaged_kind_by_kind_and_never_the_data(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number}.JPEG").write_bytes(b"image")
    (tmp_path / "record.json").write_bytes(b"{}")
    (tmp_path / "small-data.json").write_bytes(b"{}")
    (tmp_path / "lock").touch()
    drawn = [damage._draw_file(random.Random(seed), tmp_path) for seed in range(40)]
    names = [file.name for file in drawn if file is not None]
    assert 10 < names.count("record.json") < 30
    assert not {"lock", "small-data.json"} & set(names)


def test_a_command_that_ended_before_the_damage_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = damage.Attempt(
        subject="SVM",
        expected=Undisturbed(duration_s=0.0, parts={}),
        places=Places(inputs=tmp_path / "inputs", out=tmp_path / "out"),
        draw=random.Random(0),
    )
    monkeypatch.setattr(damage.Attempt, "commands", lambda *_: ())
    assert damage.disturb(attempt, lambda *_: True, damage.NEVER) is None
