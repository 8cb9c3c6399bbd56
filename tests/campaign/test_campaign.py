"""The campaign itself: it goes on where it was, and sees a result that differs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.campaign.campaign import read_trials
from tests.campaign.outcome import differences, outcome
from tests.campaign.subjects import ROOT, SUBJECTS, Places
from tests.campaign.trial import Trial

CHEAP = "tables,make-corruptions,curves,pre-training"


def trial(number: int, *, kind: str = "SIGTERM to the command", problem: str = "") -> Trial:
    return Trial(
        number=number,
        seed=0,
        subject="tables",
        kind=kind,
        share=0.5,
        in_time=True,
        statuses=[[75], [0]],
        problem=problem,
        traceback=False,
        wall_s=1.0,
    )


def test_a_line_of_the_log_that_a_kill_has_cut_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"{trial(0).line()}\n{trial(1).line()}\n{trial(2).line()[:40]}")
    assert read_trials(log) == [trial(0), trial(1)]


def test_one_changed_bit_of_a_tensor_or_a_metric_is_a_difference(tmp_path: Path) -> None:
    weights, record = tmp_path / "run/backbone.pt", tmp_path / "results/records/a/knn.json"
    for file in (weights, record):
        file.parent.mkdir(parents=True)
    torch.save({"state_dict": {"w": torch.ones(3)}}, weights)
    record.write_text(json.dumps({"metrics": {"top1": 50.0}, "details": {}, "wall_s": 1.0}))
    before = outcome(tmp_path)
    torch.save({"state_dict": {"w": torch.ones(3).nextafter(torch.zeros(3))}}, weights)
    record.write_text(json.dumps({"metrics": {"top1": 50.0}, "details": {}, "wall_s": 2.0}))
    assert differences(before, outcome(tmp_path)) == "different: run/backbone.pt"
    record.rename(record.with_name("other.json"))
    found = differences(before, outcome(tmp_path))
    assert found.startswith("missing: results/records/a/knn.json; surplus: ")


def test_a_surplus_entry_of_the_cache_is_no_difference_but_a_surplus_record_is() -> None:
    assert differences({}, {"runs/cache/features/a.npy": "1"}) == ""
    assert differences({}, {"results/records/a.json": "1"}) == "surplus: results/records/a.json"
    assert differences({"runs/cache/a.npy": "1"}, {"runs/cache/a.npy": "2"}) != ""


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_trial_writes_into_its_own_folder_only(name: str) -> None:
    places = Places(inputs=Path("/inputs"), out=Path("/out"))
    for command in SUBJECTS[name].commands:
        words = places.words(command)
        for option in ("--out", "--results", "--runs"):
            if option in words:
                assert words[words.index(option) + 1].startswith("/out/")


@pytest.mark.slow
def test_disturbed_commands_end_as_if_undisturbed_and_a_campaign_goes_on(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.campaign", "--folder", str(tmp_path / "campaign")]
    words += ["--subjects", CHEAP]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    log = tmp_path / "campaign" / "trials-seed0.jsonl"
    for kills in (2, 4):
        before = log.read_text() if log.exists() else ""
        done = subprocess.run(
            [*words, "--kills", str(kills)], cwd=ROOT, env=environment, capture_output=True
        )
        assert done.returncode == 0, done.stderr.decode()
        assert log.read_text().startswith(before)
        assert len(read_trials(log)) == kills
