"""Curves during pre-training: of snapshots, and of the logs of runs."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.drawing.logs import read_logs, read_run, save_log
from benchmarks.figures import list_lines, main
from benchmarks.results.contents import read_contents
from benchmarks.results.overview import curve_files
from benchmarks.results.records import read_results
from tests.benchmarks.drawing.figure_records import (
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
    assert drawn(tmp_path, "co2/fig3") is None
    text = "\n".join(list_lines(tmp_path, read_results(tmp_path)))
    assert "its log (trained with --consistency-temperature), stored with --logs" in text


def test_readings_stand_at_the_end_of_their_steps(tmp_path: Path) -> None:
    for name in ("moco", "co2"):
        training_log(tmp_path, name, f"{name}/cifar10-cpu", MOCO)
    loss, *_ = line_panels(tmp_path, "co2/fig3")
    assert [(p.x, p.y) for p in loss.series[0].points] == [(5.0, 3.0), (10.0, 1.0)]


def test_many_readings_become_means(tmp_path: Path) -> None:
    many = {name: [float(i) for i in range(100)] for name in MOCO}
    for name in ("moco", "co2"):
        training_log(tmp_path, name, f"{name}/cifar10-cpu", many)
    points = line_panels(tmp_path, "co2/fig3")[0].series[0].points
    assert len(points) == 50
    assert (points[0].x, points[0].y) == pytest.approx((0.15, 0.5))


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


def test_stored_log_is_that_of_the_run(tmp_path: Path, checkpoint: Path) -> None:
    run = run_folder(tmp_path / "run", checkpoint)
    numbers = {"a": math.nan, "b": math.inf, "c": 1}
    write_lines(run, [{"step": 1, "epoch": 0.5} | numbers, {"step": 2, "epoch": 1, "d": 3}])
    save_log(read_run(run, "moco"), tmp_path)
    (log,) = read_logs(tmp_path)
    assert log.made_by["settings"] == {"epochs": 1, "arch": "resnet18"}
    assert list(log.lines) == [{"step": 1, "epoch": 0.5, "c": 1}, {"step": 2, "epoch": 1, "d": 3}]


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
        (lambda: log.write_text('{"step": 1, "ep'), "ends at step 0, but the run had 2"),
        (lambda: log.write_text(""), "ends at step 0, but the run had 2"),
        (backbone.unlink, "no backbone.pt"),
        (log.unlink, "no metrics.jsonl"),
    )
    for damage, args in damages:
        damage()
        assert main(["--results", str(results), "--logs", str(run)]) == 2
        assert args in capsys.readouterr().err
        assert list(results.iterdir()) == []
