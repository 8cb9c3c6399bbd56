"""A calibration run on a stand-in: a small file with a made reference number."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import benchmarks.execution.calibration
import transfer.convert.public_files
from benchmarks.execution.calibration import (
    KNOWN_NUMBERS,
    KnownNumber,
    Reference,
    reference_of,
    write_calibration,
)
from benchmarks.pages.calibration import NOT_CALIBRATED, calibration_line
from benchmarks.run_all import main
from tests.synthetic_records import page, record
from transfer.backbone import load_backbone, random_backbone
from transfer.cells.request import Cell, CellSettings
from transfer.convert.public_files import PUBLIC_FILES, PublicFile
from transfer.record import Record
from transfer.tasks import TASKS

SOURCE = "made for this test"


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A foreign file that is known by its hash."""
    backbone = random_backbone(arch="resnet18", stem="cifar", seed=0)
    file = tmp_path / "stand_in.pth"
    torch.save(backbone.state_dict, file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:8]
    known = PublicFile(
        file=file.name, what="A stand-in", algorithm="sha256", digest=digest, source=SOURCE
    )
    monkeypatch.setattr(transfer.convert.public_files, "PUBLIC_FILES", (known,))
    return file


def publish(monkeypatch: pytest.MonkeyPatch, value: float, **changes: Any) -> None:
    """Make a number of the stand-in known."""
    made: dict[str, Any] = {"key": "cifar10_fewshot", "metric": "acc_5shot", "data": "generated"}
    number = KnownNumber(value=value, source=SOURCE, **(made | changes))
    known = {"stand_in.pth": (number,)}
    monkeypatch.setattr(benchmarks.execution.calibration, "KNOWN_NUMBERS", known)


def calibrate(file: Path, data: Path, tmp_path: Path, *more: str) -> int:
    words = ["--calibrate", "--ckpt", str(file), "--data", str(data), "--trust-topology"]
    return main([*words, "--results", str(tmp_path / "results"), "--runs", str(tmp_path), *more])


def written(tmp_path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((tmp_path / "results" / "calibration.json").read_text())
    return content


@pytest.mark.slow
def test_a_reference_is_reproduced_and_every_table_says_so(
    stand_in: Path, small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, 0.0)
    assert calibrate(stand_in, small_data, tmp_path) == 0
    measured = written(tmp_path)["numbers"][0]["ours"]
    assert calibration_line(tmp_path / "results").startswith("Not calibrated: ")
    publish(monkeypatch, measured + 0.4)  # the tolerance is 0.5
    assert calibrate(stand_in, small_data, tmp_path) == 0
    content = written(tmp_path)
    (number,) = content["numbers"]
    assert number["within"]
    assert (number["source"], number["tolerance"]) == (SOURCE, 0.5)
    assert content["sha256"] == hashlib.sha256(stand_in.read_bytes()).hexdigest()
    start = "Calibrated: this installation reproduced A stand-in (stand_in.pth) on "
    pages = list((tmp_path / "results" / "tables").glob("*.md"))
    assert len(pages) > 20
    for text in (path.read_text() for path in pages):
        (line,) = (line for line in text.splitlines() if line.startswith(start))
        assert f"cifar10_fewshot acc_5shot {measured:.2f} against" in line
        assert line.endswith("within 0.5.")


def measured(value: float, **changes: Any) -> Record:
    """The record of a cell of the stand-in, as a run would have written it."""
    fields: dict[str, Any] = {
        "backbone": {"file_sha256": "a" * 64},
        "task": "cifar10_fewshot",
        "protocol": {"name": "looc-2020/1", "hash": "paper", "paper_hash": "paper"},
        "schedule": "paper",
        "seed": 0,
        "engine": "torch",
        "metrics": {"acc_5shot": value},
        "details": {},
        "data": {"cifar10": {"small": ""}},
        "departures": [],
        "wall_s": 1.0,
        "peak_memory_gb": 1.0,
        "hardware": {"accelerator": "A GPU", "machine": "x86_64"},
        "finished": "2026-01-02T00:00:00Z",
    }
    return Record(**(fields | changes))


def line_for(record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The tables' line where the only cell has this record, and 50.0 is published."""
    monkeypatch.setattr(benchmarks.execution.calibration, "finished", lambda cell: record)
    backbone = random_backbone(arch="resnet18", stem="cifar", seed=0)
    settings = CellSettings(data=tmp_path, results=tmp_path, runs=tmp_path)
    cell = Cell(key="cifar10_fewshot", backbone=backbone, seed=0, settings=settings)
    number = KnownNumber(key=cell.key, metric="acc_5shot", value=50.0, source=SOURCE)
    reference = Reference(file=PUBLIC_FILES[1], numbers=(number,))
    write_calibration(tmp_path, reference, [cell])
    return calibration_line(tmp_path)


@pytest.mark.parametrize(
    ("ours", "start", "end"),
    [
        (50.4, "Calibrated: this installation reproduced", "50.40 against 50.0, within 0.5."),
        (50.6, "Not calibrated: this installation did not", "50.60 against 50.0, not within 0.5."),
    ],
)
def test_the_tolerance_decides(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ours: float,
    start: str,
    end: str,
) -> None:
    line = line_for(measured(ours), tmp_path, monkeypatch)
    assert line.startswith(start)
    assert line.endswith(end)
    assert "MoCo v2, 200 epochs (moco_v2_200ep_pretrain.pth.tar) on 2026-01-02, A GPU" in line


@pytest.mark.parametrize(
    "changes",
    [
        {"data": {"cifar10": {"small": "generated"}}},
        {"protocol": {"name": "looc-2020/1", "hash": "other", "paper_hash": "paper"}},
    ],
)
def test_a_number_on_other_data_or_by_another_protocol_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    line = line_for(measured(50.0, **changes), tmp_path, monkeypatch)
    assert line.startswith("Not calibrated: no number of MoCo v2, 200 epochs")


def test_a_long_task_needs_full(
    stand_in: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    publish(monkeypatch, 67.7, key="in1k_linear@moco", metric="top1")
    assert calibrate(stand_in, tmp_path, tmp_path) == 2
    assert "add --full to run it" in capsys.readouterr().err


def test_cheap_tasks_come_first(stand_in: Path) -> None:
    numbers = KNOWN_NUMBERS["moco_v2_200ep_pretrain.pth.tar"]
    reference = Reference(file=PUBLIC_FILES[1], numbers=numbers)
    backbone = load_backbone(stand_in)
    assert reference.keys(backbone, full=False) == ["voc07_svm"]
    assert reference.keys(backbone, full=True)[0] == "voc07_svm"
    assert len(reference.keys(backbone, full=True)) == 3


def test_known_numbers_are_of_known_files_and_tasks() -> None:
    assert set(KNOWN_NUMBERS) <= {known.file for known in PUBLIC_FILES}
    for number in (number for numbers in KNOWN_NUMBERS.values() for number in numbers):
        assert number.key in TASKS
        assert number.source


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--schedule", "smoke"], "at the paper's length"),
        (["--random"], "without --random"),
    ],
)
def test_a_calibration_has_one_file_at_full_length(
    stand_in: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert calibrate(stand_in, tmp_path, tmp_path, *words) == 2
    assert said in capsys.readouterr().err


def test_an_unknown_file_is_refused_with_the_known_ones(checkpoint: Path) -> None:
    with pytest.raises(ValueError, match=r"expected one of moco_v1_200ep"):
        reference_of(checkpoint)


def test_without_a_calibration_every_table_says_so(tmp_path: Path) -> None:
    record(tmp_path, 86.0)
    for name in ("co2_table3.md", "overview.md", "stated.md"):
        assert page(tmp_path, name).splitlines()[2] == NOT_CALIBRATED


@pytest.mark.parametrize("content", ["{", "[]", '{"format": "other"}', '{"format": 1}'])
def test_a_damaged_calibration_is_said_and_no_failure(tmp_path: Path, content: str) -> None:
    (tmp_path / "calibration.json").write_text(content)
    record(tmp_path, 86.0)
    assert "Not calibrated: calibration.json cannot be read" in page(tmp_path)
    assert "could not be read" not in page(tmp_path, "overview.md")
