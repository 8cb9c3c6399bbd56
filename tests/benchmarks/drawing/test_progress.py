"""Curves during pre-training: of snapshots, and of the logs of runs."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.drawing.logs import read_logs, read_run, save_log
from benchmarks.figures import main
from benchmarks.results.contents import read_contents
from benchmarks.results.overview import curve_files
from tests.benchmarks.drawing.figure_records import (
    caption_of,
    drawn,
    line_panels,
    snapshot,
    training_log,
)

MOCO = {
    "instance_discrimination": [3.0, 1.0],
    "consistency": [0.1, 0.5],
    "instance_accuracy": [10.0, 90.0],
}


def variant(results: Path, ending: str, scores: dict[int, float], **changes: Any) -> None:
    run = f"fig2{ending}" + changes.pop("again", "")
    for epoch, score in scores.items():
        snapshot(results, run, f"simaffinity/cifar10-fig2{ending}", epoch, score, **changes)


def test_the_caption_says_which_lines_are_surely_apart(tmp_path: Path) -> None:
    for location, (last, number, args) in enumerate(
        (
            (30.0, 500, "significantly different: SimAffinity above w/o T&S"),
            (90.0, 500, "significantly different: w/o T&S above SimAffinity"),
            (56.0, 500, "significantly different: none"),
            (56.0, 50_000, "significantly different: SimAffinity above w/o T&S"),
            (30.0, None, "significantly different: none"),
        )
    ):
        folder, details = tmp_path / str(location), {"num_test": number}
        variant(folder, "-without-ts", {0: 10.0, 10: last}, details=details)
        variant(folder, "", {0: 10.0, 10: 60.0}, details=details)
        assert args in caption_of(folder, "uniclr/fig2a")


def test_a_curve_holds_the_metrics_of_all_its_snapshots(tmp_path: Path) -> None:
    run = ("loocpp", "loocpp/cifar10-cpu")
    snapshot(tmp_path, *run, 0, 0.0)
    snapshot(tmp_path, *run, 1, 50.0, details={"head_entropy_bits": 1.5})
    snapshot(tmp_path, *run, 2, 0.0)
    (text,) = curve_files(read_contents(tmp_path).snapshots).values()
    rows = ["epoch,top1,head_entropy_bits", "0,0.0000,", "1,50.0000,1.5000", "2,0.0000,"]
    assert text.splitlines() == rows


def test_runs_of_a_variant_are_averaged(tmp_path: Path) -> None:
    variant(tmp_path, "", {0: 10.0, 10: 60.0})
    variant(tmp_path, "", {0: 12.0, 10: 64.0}, again="-b")
    (panel,) = line_panels(tmp_path, "uniclr/fig2a")
    assert [(p.y, p.num_runs) for p in panel.series[0].points] == [(11, 2), (62, 2)]
    training_log(tmp_path, "moco", "moco/cifar10-cpu", {"instance_discrimination": [3.0, 1.0]})
    training_log(tmp_path, "co2", "co2/cifar10-cpu", MOCO)
    _, (problem,) = drawn(tmp_path, "co2/fig3")
    assert "the log of moco has no consistency" in problem
    assert "--consistency-temperature" in problem


def test_a_log_that_is_kept_under_two_names_counts_once(tmp_path: Path) -> None:
    training_log(tmp_path, "co2", "co2/cifar10-cpu", MOCO)
    for name in ("moco", "moco-again"):
        training_log(tmp_path, name, "moco/cifar10-cpu", MOCO)
    panels = line_panels(tmp_path, "co2/fig3")
    assert {p.num_runs for panel in panels for line in panel.series for p in line.points} == {1}


def test_readings_stand_at_the_middle_of_their_steps_or_where_they_were_measured(
    tmp_path: Path,
) -> None:
    ends = [0.2, 0.4, 0.46]
    both: dict[str, list[float]] = {name: [0.0, 1.0, 2.0] for name in MOCO}
    for name in ("moco", "co2"):
        training_log(tmp_path, name, f"{name}/cifar10-cpu", both)
        path = tmp_path / "training" / f"{name}.json"
        content = json.loads(path.read_text())
        content["metrics"] |= {"step": [100 * e for e in ends], "epoch": ends}
        content["made_by"]["steps"] = 46
        path.write_text(json.dumps(content))
    loss, consistency, _ = line_panels(tmp_path, "co2/fig3")
    middles = [0.1, 0.3, 0.43]
    assert [p.x for p in loss.series[0].points] == pytest.approx(middles)
    assert [p.y for p in loss.series[0].points] == [0, 1, 2]
    moco, co2 = consistency.series
    assert [p.x for p in moco.points] == pytest.approx(ends)
    assert [p.x for p in co2.points] == pytest.approx(middles)
    # many readings become means at the middle of their part
    both = {name: [float(i) for i in range(100)] for name in MOCO}
    for name in ("moco", "co2"):
        training_log(tmp_path, name, f"{name}/cifar10-cpu", both)
    points = line_panels(tmp_path, "co2/fig3")[0].series[0].points
    assert len(points) == 50
    assert (points[0].x, points[0].y) == pytest.approx((0.1, 0.5))


def run_folder(folder: Path, checkpoint: Path, steps: int = 2) -> Path:
    """The folder of a run of two steps that has ended."""
    folder.mkdir()
    content = torch.load(checkpoint, weights_only=True)
    settings = {"epochs": 1, "arch": "resnet18"}
    content["made_by"] = {"method": "moco", "recipe": "r", "steps": steps, "settings": settings}
    torch.save(content, folder / "backbone.pt")
    write_lines(folder, [{"step": i, "epoch": i / 2, "loss": 1 / 3} for i in (1, 2)])
    return folder


def write_lines(run: Path, lines: Sequence[dict[str, float]]) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run / "metrics.jsonl").write_text(text)


def test_stored_log_is_read_only_if_complete(
    tmp_path: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_folder(tmp_path / "run", checkpoint)
    numbers = {"a": math.nan, "b": math.inf, "c": 1}
    write_lines(run, [{"step": i, "epoch": i / 2} | numbers for i in (1, 2)])
    save_log(read_run(run, "moco"), tmp_path / "results")
    (log,), warnings = read_logs(tmp_path / "results")
    assert not warnings
    assert log.made_by["settings"] == {"epochs": 1, "arch": "resnet18"}
    assert list(log.lines) == [{"step": 1, "epoch": 0.5, "c": 1}, {"step": 2, "epoch": 1, "c": 1}]
    values = [math.nan, *map(float, range(9))]
    training_log(tmp_path, "moco", "moco/cifar10-cpu", {"loss": values})
    (log,), _ = read_logs(tmp_path)
    assert [line.get("loss") for line in log.lines] == [None, *values[1:]]
    path = tmp_path / "training" / "moco.json"
    cut = json.loads(path.read_text())
    cut["metrics"] = {name: column[:9] for name, column in cut["metrics"].items()}
    for text, args in (
        (json.dumps(cut), "ends at step 9, but the run had 10"),
        ('{"format": "other"}', "moco.json"),
    ):
        path.write_text(text)
        assert read_logs(tmp_path)[0] == ()
        assert main(["--results", str(tmp_path), "--list"]) == 0
        assert args in capsys.readouterr().err


def test_a_log_that_is_not_whole_is_refused_and_leaves_nothing(
    tmp_path: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, results = run_folder(tmp_path / "run", checkpoint), tmp_path / "results"
    log, backbone = run / "metrics.jsonl", run / "backbone.pt"
    results.mkdir()
    damages: tuple[tuple[Callable[[], object], str], ...] = (
        (
            lambda: log.write_text('{"step": 1, "epoch": 0.5}\n'),
            "ends at step 1, but the run had 2",
        ),
        (lambda: log.write_text('{"step": 1, "ep'), "line 1 is incomplete"),
        (lambda: log.write_text(""), "ends at step 0, but the run had 2"),
        (backbone.unlink, "no backbone.pt"),
        (log.unlink, "no metrics.jsonl"),
    )
    for damage, args in damages:
        damage()
        assert main(["--results", str(results), "--logs", str(run)]) == 2
        assert args in capsys.readouterr().err
        assert list(results.iterdir()) == []
