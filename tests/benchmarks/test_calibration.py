"""A calibration run on a stand-in: a small file with a made reference number."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import benchmarks.cluster.arrays
import benchmarks.execution.calibration
import benchmarks.report
import benchmarks.run_all
import transfer.encoders.public_files
from benchmarks.execution.calibration import KnownNumber, Reference, write_calibration
from benchmarks.planning.plan import PlannedCell
from benchmarks.results.calibration import calibration_line
from benchmarks.run_all import main
from tests.synthetic_records import page, record
from transfer.cells.checked_data import fingerprint
from transfer.encoders.encoder import random_backbone
from transfer.encoders.opening import load_backbone
from transfer.encoders.public_files import PUBLIC_FILES, PublicFile
from transfer.record import protocol_hash
from transfer.tasks import TASKS, reading_of

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
    monkeypatch.setattr(transfer.encoders.public_files, "PUBLIC_FILES", (known,))
    return file


def publish(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    made = {"key": "cifar10_fewshot", "metric": "acc_5shot", "data": "generated"}
    known = {"stand_in.pth": (KnownNumber(value=value, source=SOURCE, **made),)}
    monkeypatch.setattr(benchmarks.execution.calibration, "known_numbers", lambda: known)


def calibrate(file: Path, data: Path, tmp_path: Path, *more: str) -> int:
    words = ["--calibrate", "--ckpt", str(file), "--data", str(data)]
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
    publish(monkeypatch, measured + 0.4)  # twice the deviation is 0.6
    assert calibrate(stand_in, small_data, tmp_path) == 0
    content = written(tmp_path)
    (number,) = content["numbers"]
    assert number["within"]
    assert (number["source"], number["tolerance"]) == (SOURCE, 0.6)
    assert content["sha256"] == hashlib.sha256(stand_in.read_bytes()).hexdigest()
    line = calibration_line(tmp_path / "results")
    assert line.startswith("Calibrated: this installation reproduced A stand-in (stand_in.pth) on ")
    assert f"cifar10_fewshot acc_5shot {measured:.2f} against" in line
    pages = list((tmp_path / "results" / "tables").glob("*.md"))
    assert len(pages) > 20
    assert [path for path in pages if line not in path.read_text().splitlines()] == []


REFERENCE = Reference(
    file=PUBLIC_FILES[1],
    numbers=(
        KnownNumber(key="voc07_svm", metric="mAP", value=50.0, source=SOURCE),
        KnownNumber(key="in1k_linear@moco", metric="top1", value=60.0, source=SOURCE),
    ),
)


BACKBONE = random_backbone(arch="resnet18", stem="cifar", seed=0)


def measure(results: Path, key: str, value: float, **changes: Any) -> None:
    """Write the record of a task of the checkpoint under its protocol."""
    task, paper = reading_of(key)[0], protocol_hash(reading_of(key)[0], TASKS[key])
    cell = {"task": task, "protocol": TASKS[key].protocol, "hash": paper, "paper_hash": paper}
    hardware = {"accelerator": "A GPU", "machine": "x86_64"}
    cell |= {"sha256": BACKBONE.sha256, "finished": "2026-01-02T00:00:00Z"}
    record(results / "records", value, **cell | {"content": {"hardware": hardware}} | changes)


def line_of(results: Path) -> str:
    """The tables' line after a calibration with the records that are there."""
    write_calibration(results, REFERENCE, BACKBONE)
    return calibration_line(results)


def test_the_tolerance_decides(tmp_path: Path) -> None:
    for ours, start, end in (
        (50.7, "Calibrated: ", "50.70 against 50.0, within 0.8"),
        (50.9, "Not calibrated: ", "50.90 against 50.0, not within 0.8"),
    ):
        measure(tmp_path, "voc07_svm", ours)
        line = line_of(tmp_path)
        assert line.startswith(start)
        assert line.endswith(f": voc07_svm mAP {end} ({SOURCE}).")
        assert "(moco_v2_200ep_pretrain.pth.tar) on 2026-01-02, A GPU" in line


def test_a_number_on_other_data_or_by_another_protocol_does_not_count(tmp_path: Path) -> None:
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"small": "generated"}, "generated data"),
        ({"tolerated": 500}, "500 missing"),
        ({"hash": "other"}, "protocol is changed"),
        ({"hash": "old", "paper_hash": "old"}, "protocol is changed"),
        ({"schedule": "short"}, "protocol is changed"),
        ({"sha256": "0" * 64}, "no number of MoCo v2, 200 epochs"),
    )
    for number, (changes, why) in enumerate(cases):
        results = tmp_path / str(number)
        measure(results, "voc07_svm", 50.0, **changes)
        line = line_of(results)
        assert line.startswith("Not calibrated: ")
        assert why in line


def test_the_mean_holds_each_seed_once_and_one_engine(tmp_path: Path) -> None:
    measure(tmp_path, "voc07_svm", 10.0, engine="another")
    measure(tmp_path, "voc07_svm", 49.8, seed=1, finished="2026-01-03T00:00:00Z")
    measure(tmp_path, "voc07_svm", 50.2, finished="2026-01-04T00:00:00Z")
    assert "mAP 50.00 against" in line_of(tmp_path)


def test_on_a_cluster_the_same_command_writes_the_comparison_when_all_is_there(
    stand_in: Path,
    small_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    publish(monkeypatch, 50.0)
    monkeypatch.setattr(benchmarks.execution.calibration, "update_tables", lambda *_, **__: True)
    monkeypatch.setattr(benchmarks.report, "update_report", lambda *_, **__: True)
    monkeypatch.setattr(benchmarks.run_all, "finish_run", lambda _, failed, *__: int(bool(failed)))
    submitted: list[str] = []

    def submit(rows: list[PlannedCell], *_: Any) -> None:
        submitted.extend(row.cell.key for row in rows if row.state == "run")

    monkeypatch.setattr(benchmarks.cluster.arrays, "submit_cells", submit)
    monkeypatch.setattr(benchmarks.run_all, "cluster", lambda: SimpleNamespace(warnings=lambda: []))
    results = tmp_path / "results"
    assert calibrate(stand_in, small_data, tmp_path, "--slurm") == 0
    assert submitted == ["cifar10_fewshot"]
    assert "calibration.json is written by the same command, given again" in capsys.readouterr().out
    assert not (results / "calibration.json").exists()
    data: dict[str, Any] = {"small": "generated", "tolerated": 0, "counts": {}}
    data |= {"fingerprint": fingerprint("cifar10", small_data, tmp_path)}
    sha256 = load_backbone(stand_in).sha256
    content: dict[str, Any] = {"data": {"cifar10": data}, "hardware": {}}
    content["request"] = {"options": {}, "input": {}}
    stored = {"backbone": "stand_in", "sha256": sha256, "content": content}
    measure(results, "cifar10_fewshot", 50.1, **stored)
    assert calibrate(stand_in, small_data, tmp_path, "--slurm") == 0
    assert submitted == ["cifar10_fewshot"]  # nothing more
    assert "acc_5shot 50.10 against 50.0" in calibration_line(results)


def test_a_damaged_calibration_is_said_and_no_failure(tmp_path: Path) -> None:
    record(tmp_path, 86.0)
    for content in ("{", "[]", '{"format": "other"}', '{"format": 1}'):
        (tmp_path / "calibration.json").write_text(content)
        assert "Not calibrated: calibration.json cannot be read" in page(tmp_path)
