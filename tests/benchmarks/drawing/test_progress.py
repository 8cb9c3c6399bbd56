"""Curves during pre-training: of snapshots, and of the logs of runs."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.drawing import FIGURES
from benchmarks.drawing.figure import Drawn, LinePanel
from benchmarks.drawing.logs import LogError, keep, read_logs, read_run
from benchmarks.figures import main, read_material
from tests.benchmarks.drawing.figure_records import snapshot, training_log

MOCO = {
    "instance_discrimination": [3.0, 1.0],
    "consistency": [0.1, 0.5],
    "instance_accuracy": [10.0, 90.0],
}


def drawn(results: Path, figure: str) -> Drawn:
    return FIGURES[figure].draw(read_material(results))


def variant(results: Path, ending: str, scores: dict[int, float], **changes: Any) -> None:
    run = f"fig2{ending}" + changes.pop("again", "")
    for epoch, score in scores.items():
        snapshot(results, run, f"simaffinity/cifar10-fig2{ending}", epoch, score, **changes)


def test_variants_stand_in_the_papers_order_with_a_point_per_snapshot(tmp_path: Path) -> None:
    variant(tmp_path, "-without-ts", {0: 10.0, 5: 20.0, 10: 30.0})
    variant(tmp_path, "", {0: 10.0, 5: 40.0, 10: 60.0})
    (picture,) = drawn(tmp_path, "uniclr/fig2a").pictures
    (panel,) = picture.panels
    assert isinstance(panel, LinePanel)
    assert [line.label for line in panel.lines] == ["SimAffinity", "w/o T&S"]
    assert [(p.x, p.y) for p in panel.lines[0].points] == [(0, 10), (5, 40), (10, 60)]
    assert "Not run: w/o T, w/o S." in picture.caption


@pytest.mark.parametrize(
    ("last", "words"),
    [(30.0, "the paper's order: SimAffinity, w/o T&S."), (90.0, "the paper has another order: ")],
)
def test_the_caption_says_whether_the_order_is_the_papers(
    tmp_path: Path, last: float, words: str
) -> None:
    variant(tmp_path, "-without-ts", {0: 10.0, 10: last})
    variant(tmp_path, "", {0: 10.0, 10: 60.0})
    (picture,) = drawn(tmp_path, "uniclr/fig2a").pictures
    assert words in " ".join(picture.caption)


def test_runs_of_other_lengths_are_another_picture(tmp_path: Path) -> None:
    variant(tmp_path, "", {0: 10.0, 10: 60.0})
    variant(tmp_path, "-without-s", {0: 10.0, 10: 60.0}, settings={"epochs": 200})
    assert len(drawn(tmp_path, "uniclr/fig2a").pictures) == 2


def test_two_runs_of_a_variant_become_a_mean(tmp_path: Path) -> None:
    variant(tmp_path, "", {0: 10.0, 10: 60.0})
    variant(tmp_path, "", {0: 12.0, 10: 64.0}, again="b")
    (picture,) = drawn(tmp_path, "uniclr/fig2a").pictures
    (panel,) = picture.panels
    assert isinstance(panel, LinePanel)
    assert [(p.y, p.num_runs) for p in panel.lines[0].points] == [(11, 2), (62, 2)]


def test_a_run_that_goes_on_is_said(tmp_path: Path) -> None:
    variant(tmp_path, "", {0: 10.0, 5: 40.0})
    (picture,) = drawn(tmp_path, "uniclr/fig2a").pictures
    assert "Runs that had not ended, epochs: SimAffinity 5 of 10." in picture.caption


def test_logs_become_a_panel_per_metric(tmp_path: Path) -> None:
    training_log(tmp_path, "moco", "moco/cifar10-cpu", MOCO)
    training_log(tmp_path, "co2", "co2/cifar10-cpu", MOCO)
    (picture,) = drawn(tmp_path, "co2/fig3").pictures
    assert len(picture.panels) == 3
    panel = picture.panels[2]
    assert isinstance(panel, LinePanel)
    assert [line.label for line in panel.lines] == ["MoCo", "MoCo + CO2"]
    assert [(p.x, p.y) for p in panel.lines[0].points] == [(2.5, 10), (7.5, 90)]


def test_one_method_alone_is_no_figure(tmp_path: Path) -> None:
    training_log(tmp_path, "moco", "moco/cifar10-cpu", MOCO)
    assert drawn(tmp_path, "co2/fig3") == Drawn()


def test_a_log_without_the_consistency_loss_is_said(tmp_path: Path) -> None:
    training_log(tmp_path, "moco", "moco/cifar10-cpu", {"instance_discrimination": [3.0, 1.0]})
    training_log(tmp_path, "co2", "co2/cifar10-cpu", MOCO)
    (problem,) = drawn(tmp_path, "co2/fig3").problems
    assert "the log of moco has no consistency" in problem
    assert "--config.consistency-temperature" in problem


def run_folder(folder: Path, checkpoint: Path, steps: int = 2) -> Path:
    """The folder of a run of two steps that has ended."""
    folder.mkdir()
    content = torch.load(checkpoint, weights_only=True)
    settings = {"epochs": 1, "arch": "resnet18"}
    content["made_by"] = {"method": "moco", "recipe": "r", "steps": steps, "settings": settings}
    torch.save(content, folder / "backbone.pt")
    lines = [{"step": i, "epoch": i / 2, "loss": 1 / 3, "learning_rate": 0.1} for i in (1, 2)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)
    return folder


def test_a_kept_log_is_read_back(tmp_path: Path, checkpoint: Path) -> None:
    log = read_run(run_folder(tmp_path / "run", checkpoint), "moco")
    keep(log, tmp_path / "results")
    (again,), warnings = read_logs(tmp_path / "results")
    assert not warnings
    assert again.made_by["settings"] == {"epochs": 1, "arch": "resnet18"}
    assert [line["loss"] for line in again.lines] == pytest.approx([1 / 3] * 2, rel=1e-5)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda run: run.joinpath("metrics.jsonl").unlink(), "no metrics.jsonl"),
        (lambda run: run.joinpath("backbone.pt").unlink(), "has not ended"),
        (lambda run: run.joinpath("metrics.jsonl").write_text('{"step": 1, "ep'), "line 1 is torn"),
        (
            lambda run: run.joinpath("metrics.jsonl").write_text('{"step": 1, "epoch": 0.5}\n'),
            "ends at step 1, but the run had 2",
        ),
    ],
)
def test_a_log_that_is_not_whole_is_refused(
    damage: Any, words: str, tmp_path: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_folder(tmp_path / "run", checkpoint)
    damage(run)
    with pytest.raises(LogError, match=words):
        read_run(run, "moco")
    (tmp_path / "results").mkdir()
    assert main(["--results", str(tmp_path / "results"), "--logs", str(run)]) == 2
    assert words in capsys.readouterr().err
    assert list((tmp_path / "results").iterdir()) == []


def test_a_foreign_file_among_the_logs_is_said(tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "a.json").write_text('{"format": "other"}')
    logs, warnings = read_logs(tmp_path)
    assert logs == ()
    assert "not a log of pre-training" in warnings[0]
