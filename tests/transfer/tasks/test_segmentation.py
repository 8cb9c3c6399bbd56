"""The segmentation task: what it refuses, what it tells, and where its rates are tried."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import jaccard_score

from transfer.backbone import Backbone, BackboneError, random_backbone
from transfer.cell import Cell, Place, departures, evaluate, finished
from transfer.datasets.catalog import open_segmented
from transfer.datasets.images import DataError
from transfer.datasets.segmented import IGNORED, read_mask, write_mask
from transfer.datasets.voc_masks import FOLDER
from transfer.finetune import NotFiniteError
from transfer.tasks import EXTRA, TASKS
from transfer.tasks.segmentation import Segmentation
from transfer.training.options import TrainingOptions

KEY = "voc12_seg_fcn"
CPU = TrainingOptions(gpus=1)


def cell(backbone: Backbone, place: Place, data: Path, options: TrainingOptions = CPU) -> Cell:
    place = replace(place, data=data, training=options)
    return Cell(key=KEY, backbone=backbone, seed=0, place=place)


@pytest.mark.parametrize(
    ("arch", "stem", "why"),
    [("resnet18", "cifar", "the cifar stem"), ("resnet18-heads4", "imagenet", "one head")],
)
def test_backbones_without_a_stride_of_16_or_with_many_heads_are_refused(
    arch: str, stem: str, why: str, place: Place, tmp_path: Path
) -> None:
    backbone = random_backbone(arch=arch, stem=stem, seed=0)  # type: ignore[arg-type]
    asked = cell(backbone, place, tmp_path)
    with pytest.raises(BackboneError, match=why):
        asked.task.prepare(backbone, asked.folders)


def test_an_altered_recipe_is_told_in_one_sentence(small_backbone: Backbone, place: Place) -> None:
    paper = replace(place, schedule="paper")
    options = TrainingOptions(gpus=1, iterations=300, image_px=129)
    assert departures(cell(small_backbone, paper, place.data, options)) == [
        "recipe: crop_px 129 instead of 513, iterations 300 instead of 33069, "
        "milestones (210, 270) instead of (23148, 29762)"
    ]


def test_broken_masks_stop_a_run_before_it_starts(
    small_backbone: Backbone,
    place: Place,
    small_detection_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = tmp_path / "data"
    shutil.copytree(small_detection_data / FOLDER, data / FOLDER)
    shutil.copy(small_detection_data / "small-data.json", data)
    unknown, other_size, missing, *_ = sorted((data / FOLDER / "SegmentationClass").iterdir())
    write_mask(unknown, np.full_like(read_mask(unknown), 77))
    write_mask(other_size, read_mask(other_size)[:-1])
    missing.unlink()
    monkeypatch.setattr(Segmentation, "prepare", lambda *_: pytest.fail("the run has started"))
    with pytest.raises(DataError, match="3 images are missing, too many or unusable") as told:
        evaluate(cell(small_backbone, place, data))
    lines = [line for line in str(told.value).splitlines() if "SegmentationClass/" in line]
    whys = ((unknown, "unknown ids 77"), (other_size, "its image has"), (missing, "missing"))
    for line, (file, why) in zip(sorted(lines), sorted(whys, key=lambda w: w[0].stem), strict=True):
        assert f"JPEGImages/{file.stem}.jpg" in line
        assert file.name in line
        assert why in line


@pytest.mark.slow
def test_the_record_tells_how_and_its_miou_is_scikit_learns_on_the_saved_predictions(
    small_backbone: Backbone, small_detection_data: Path, place: Place
) -> None:
    asked = cell(small_backbone, place, small_detection_data)
    record = evaluate(asked)
    details = record.details
    assert (record.engine, details["norm"], details["tensors_placed"]) == (
        *("mmsegmentation", "BN", 120),
    )
    assert max(details["largest_difference_of_maps"].values()) < 1e-6
    assert finished(asked) == record
    split = open_segmented("voc12_seg", small_detection_data, "test")
    truth = np.concatenate([split.mask(i).ravel() for i in range(len(split))])
    folder = asked.folders.work / details["predictions"]
    files = [folder / f"{Path(split.name(i)).stem}.png" for i in range(len(split))]
    guess = np.concatenate([read_mask(file).ravel() for file in files])
    kept = truth != IGNORED
    expected = 100 * jaccard_score(truth[kept], guess[kept], average=None, labels=range(21))
    found = [details["IoU_per_class"][name] for name in split.class_names]
    assert found == pytest.approx(expected.tolist())
    assert record.metrics["mIoU"] == pytest.approx(float(expected.mean()))


@pytest.mark.slow
def test_learning_rates_are_tried_on_held_out_training_images(
    small_backbone: Backbone,
    small_detection_data: Path,
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[tuple[str, int, int]] = []
    plain = Segmentation.trained

    def noted(self: Segmentation, prepared: object, part: object, *rest: object) -> object:
        done = plain(self, prepared, part, *rest)  # type: ignore[arg-type]
        used.append((str(rest[-1]), len(part.train), len(part.test)))  # type: ignore[attr-defined]
        return done

    monkeypatch.setattr(Segmentation, "trained", noted)
    options = replace(CPU, learning_rates=(0.01, 0.001))
    record = evaluate(cell(small_backbone, place, small_detection_data, options))
    assert used == [("rate-0.01", 70, 30), ("rate-0.001", 70, 30), ("all", 100, 40)]
    assert set(record.details["held_out_mIoU"]) == {"0.01", "0.001"}
    assert record.details["learning_rate"] in (0.01, 0.001)
    assert any("learning_rates" in line for line in record.departures)


def test_a_rate_that_diverges_is_left_out_and_only_divergence_is_an_error(
    small_backbone: Backbone, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(self: Segmentation, *rest: object) -> object:
        if rest[-2] == 9.0:
            raise NotFiniteError("iteration 3: a loss is not finite")
        return SimpleNamespace(overlap=SimpleNamespace(mean=40.0))

    monkeypatch.setattr(Segmentation, "trained", trained)
    prepared: Any = SimpleNamespace(held_out=object())
    options = replace(CPU, learning_rates=(9.0, 0.01))
    asked = cell(small_backbone, place, place.data, options)
    assert isinstance(asked.task, Segmentation)
    assert asked.task.tried(prepared, asked.folders, 0) == {0.01: 40.0}
    with pytest.raises(NotFiniteError, match="all of the learning rates"):
        replace(asked.task, learning_rates=(9.0,)).tried(prepared, asked.folders, 0)


@pytest.mark.parametrize(("gpus", "expected"), [(0, 1), (6, 4), (8, 8)])
def test_its_processes_divide_the_batch(
    gpus: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    task = TASKS[KEY]
    assert isinstance(task, Segmentation)
    assert task.num_processes(TrainingOptions()) == expected
    assert task.asked(TrainingOptions()) == task


def test_a_single_rate_is_the_recipes(small_backbone: Backbone, place: Place) -> None:
    options = replace(CPU, learning_rates=(0.02,))
    task = cell(small_backbone, place, place.data, options).task
    assert isinstance(task, Segmentation)
    assert (task.recipe.learning_rate, task.learning_rates) == (0.02, ())


@pytest.mark.slow
def test_a_single_learning_rate_is_not_tried(
    small_backbone: Backbone, small_detection_data: Path, place: Place
) -> None:
    options = replace(CPU, learning_rates=(0.02,))
    record = evaluate(cell(small_backbone, place, small_detection_data, options))
    assert (record.details["learning_rate"], record.details["held_out_mIoU"]) == (0.02, {})


def test_both_readings_are_named() -> None:
    protocols = {key: {**TASKS, **EXTRA}[key].protocol for key in (KEY, f"{KEY}@moco")}
    assert list(protocols.values()) == ["co2-2021/1", "moco-2020/1"]
