"""The campaign itself: it goes on where it was, and sees an end or a result that is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.campaign.kinds import FAULTS, KILLED, NEVER, Kind
from tests.campaign.outcome import differences, outcome
from tests.campaign.processes import Running
from tests.campaign.subjects import ROOT, SUBJECTS
from tests.campaign.trial import wrong_end

REASON = "failed: a process that loads images was killed by SIGKILL, most likely memory ran out\n"
RESULT = "cifar10_knn  top1 23.67 %  ->  results/records/a.json\n"


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


def test_each_command_that_failed_must_say_why(tmp_path: Path) -> None:
    many = f"cifar10_knn  {REASON}" + "".join(f"table  {n}.md\n" for n in range(20))
    for ends, reason, right in (
        (((1, REASON), (0, RESULT)), KILLED, True),
        (((1, many),), KILLED, True),
        (((1, REASON), (1, "Killed\n"), (0, RESULT)), KILLED, False),
        (((1, REASON),), NEVER, False),
    ):
        problem = wrong_end(ended(tmp_path, *ends), Kind(reason=reason), asked=False)
        assert (problem == "") == right, ends


def test_a_changed_bit_a_torn_file_and_a_surplus_record_are_differences(tmp_path: Path) -> None:
    record = tmp_path / "results/records/a/knn.json"
    weights, log = tmp_path / "run/backbone.pt", tmp_path / "run/metrics.jsonl"
    for file in (record, weights):
        file.parent.mkdir(parents=True)
    record.write_text(json.dumps({"metrics": {"top1": 50.0}, "details": {}, "wall_s": 1.0}))
    torch.save({"state_dict": {"w": torch.ones(3)}}, weights)
    log.write_text('{"step": 1, "loss": 0.5}\n')
    before = outcome(tmp_path)
    record.write_text(json.dumps({"metrics": {"top1": 50.0}, "details": {}, "wall_s": 2.0}))
    assert differences(before, outcome(tmp_path)) == ""
    for file in (record, weights, log):
        content = file.read_bytes()
        size = len(content)
        for torn in (b"", content[: size // 2], bytes(size), content[: size // 2] + bytes(size)):
            file.write_bytes(torn)
            assert file.name in differences(before, outcome(tmp_path))
        file.write_bytes(content)
    torch.save({"state_dict": {"w": torch.ones(3).nextafter(torch.zeros(3))}}, weights)
    assert differences(before, outcome(tmp_path)) == "different: run/backbone.pt"
    assert differences({}, {"results/records/a.json": "1"}) == "surplus: results/records/a.json"
    assert differences({}, {"runs/cache/features/a.npy": "1"}) == ""


def test_every_kind_of_fault_damages_known_commands() -> None:
    assert all(set(fault.subjects) <= SUBJECTS.keys() for fault in FAULTS.values())
