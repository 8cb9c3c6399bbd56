"""benchmarks.verify finds exactly the planted contradictions."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.results.contents import REFERENCE_FOLDER
from benchmarks.verify import main
from tests.synthetic_records import put, record
from transfer.encoders.public_files import PUBLIC_FILES
from transfer.outcomes import per_image
from transfer.record import CONTENT_HASH, protocol_hash, stored_fields
from transfer.tasks import TASKS

LABELS = np.arange(100) % 10
RIGHT = (LABELS < 7) | (np.arange(100) < 3)


def write(folder: Path, key: str = "cifar10_knn", score: float = 0.0, **properties: Any) -> Path:
    task = TASKS[key]
    name = protocol_hash(key, task)
    details = per_image(RIGHT, LABELS) | {
        "num_test": 100,
        "accuracy_per_class": {str(label): 100.0 if label < 7 else 0.0 for label in range(10)},
    }
    properties = {"details": details} | properties
    score = score or 100 * float(RIGHT.mean())
    fields = json.loads(json.dumps(stored_fields(task), default=asdict))
    protocol = {"hash": name, "paper_hash": name, "fields": fields}
    request = {"task": key}
    record(
        folder, score, task=key, protocol=task.protocol, request=request, **protocol, **properties
    )
    (file,) = (folder / "records").rglob(f"{key}*.json")
    return file


def edit(file: Path, change: Callable[[dict[str, Any]], Any], *, rehash: bool = True) -> None:
    content = json.loads(file.read_text())
    change(content)
    if rehash:
        put(file.parent, file.name, {k: v for k, v in content.items() if k != CONTENT_HASH})
    else:
        file.write_text(json.dumps(content))


def plant_class(content: dict[str, Any]) -> None:
    content["details"]["accuracy_per_class"]["3"] = 50.0


PUBLIC = next(one for one in PUBLIC_FILES if one.algorithm == "sha256" and one.recipe)


def plant_recipe(content: dict[str, Any]) -> None:
    content["backbone"]["file_sha256"] = PUBLIC.digest.ljust(64, "0")
    content["declared"] = "jcl/in1k-r50"


KINDS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "metric": (lambda c: c["metrics"].update(top1=71.0), "top1 is 71.0000"),
    "protocol": (lambda c: c["protocol"]["fields"].update(num_neighbors=20), "have the hash"),
    "field": (lambda c: c["protocol"]["fields"].pop("temperature"), "no field 'temperature'"),
    "answers": (
        lambda c: c["details"]["per_image"].update(images=90),
        "number of answers per image differs",
    ),
    "class": (plant_class, "per class"),
    "recipe": (plant_recipe, PUBLIC.file),
}


def test_true_record_is_consistent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path)
    assert main([str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("consistent")
    assert "1 record: 1 consistent" in printed


@pytest.mark.parametrize("kind", KINDS)
def test_planted_contradiction_is_found(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant, part = KINDS[kind]
    edit(write(tmp_path), plant)
    assert main([str(tmp_path), "--quiet"]) == 1
    assert part in capsys.readouterr().out


def test_classes_may_be_counted_over_other_images(tmp_path: Path) -> None:
    """ImageNet-C counts classes over all corruptions, and images over the main ones."""

    def plant(content: dict[str, Any]) -> None:
        plant_class(content)
        content["details"]["classes_counted_over"] = "all corruptions and severities"

    edit(write(tmp_path), plant)
    assert main([str(tmp_path)]) == 0


def test_edited_record_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(write(tmp_path), lambda content: content.update(seed=3), rehash=False)
    assert main([str(tmp_path)]) == 1
    assert "edited" in capsys.readouterr().out


def test_renamed_record_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path)
    file.rename(file.with_name("cifar100_knn.uniclr-2022-1.paper.seed0.json"))
    assert main([str(tmp_path)]) == 1
    assert "its path should end in" in capsys.readouterr().out


def test_two_backbones_of_one_name_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    write(tmp_path, "cifar100_knn", sha256="b" * 64)
    assert main([str(tmp_path)]) == 1
    assert "mine has the weights" in capsys.readouterr().out


def test_trials_that_give_another_mean_or_interval_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = {"trials": {"acc_10shot": [60.0, 62.0]}, "interval95": {"acc_10shot": 1.96}}
    write(tmp_path, "cifar10_fewshot", 61.0, metric="acc_10shot", details=trials)
    assert main([str(tmp_path)]) == 0
    (file,) = (tmp_path / "records").rglob("*.json")
    edit(file, lambda content: content["details"]["interval95"].update(acc_10shot=0.5))
    assert main([str(tmp_path)]) == 1
    assert "its trials give 1.96" in capsys.readouterr().out
    edit(file, lambda content: content["metrics"].update(acc_10shot=70.0))
    assert main([str(tmp_path)]) == 1


def test_ap_is_only_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "coco_det", 40.0, details={})
    assert main([str(tmp_path)]) == 0
    assert "1 stored only" in capsys.readouterr().out


def test_committed_records_have_no_contradiction(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(REFERENCE_FOLDER), "--quiet"]) == 0


def test_missing_folder_ends_with_2(tmp_path: Path) -> None:
    assert main([str(tmp_path / "absent")]) == 2


def test_a_folder_without_records_is_a_wrong_request(tmp_path: Path) -> None:
    write(tmp_path)
    assert main([str(tmp_path / "records")]) == 2
