"""Every task: exact metrics on solved data, and a record."""

import re
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import one_hot

from tests.transfer.detection.solved import solved_detection
from tests.transfer.encoders.test_projector import encoder_file
from tests.transfer.segmentation.solved import solved_segmentation
from transfer.cells.cell import Cell, deviations
from transfer.cells.execution import evaluate
from transfer.cells.request import Settings
from transfer.datasets.catalog import DATASETS
from transfer.datasets.imagenet.imagenet_c import KINDS
from transfer.encoders.encoder import Encoder
from transfer.encoders.opening import load_backbone
from transfer.frozen.feature_cache import Predictions
from transfer.record import Record, protocol_hash, read_record
from transfer.tasks import TASKS, reading_of
from transfer.tasks.detection import Detection
from transfer.tasks.few_shot import FewShot, LowShotKNN, TrialScores
from transfer.tasks.neighbors import NearestImages, Neighbors
from transfer.tasks.robustness import CorruptionEval, accuracies
from transfer.tasks.segmentation import PixelTraining, SegmentationInContext, TwoSizes
from transfer.tasks.task import Task
from transfer.tasks.view_statistics import ImageStatistics, ViewStatistics


def solved(task: Task, folder: Path, *, right: bool) -> Any:
    """Ten images of ten classes, all right or all wrong.

    In VOC's form where the task asks it.
    """
    if isinstance(task, Detection):
        return solved_detection(task, folder, right=right)
    if isinstance(task, PixelTraining):
        return solved_segmentation(folder, right=right)
    if isinstance(task, SegmentationInContext):
        masks = solved_segmentation(folder, right=right)
        return TwoSizes(masks, masks)
    labels = torch.arange(10)
    scores = one_hot(labels if right else labels.roll(1), 10).float()
    if isinstance(task, FewShot | LowShotKNN):
        return TrialScores({5: scores.expand(3, 10, 10), 10: scores.expand(3, 10, 10)}, labels)
    if isinstance(task, CorruptionEval):
        cells = tuple((kind, severity) for kind in KINDS for severity in (1, 3) for _ in labels)
        times = 2 * len(KINDS)
        scores, labels = scores.repeat(times, 1), labels.repeat(times)
        return Predictions(scores, labels, {"top1": accuracies(scores, labels, cells)})
    if isinstance(task, ViewStatistics):
        cosines = torch.full((10, 3), float(right))
        return ImageStatistics({"feature": cosines, "embedding": cosines}, {})
    if isinstance(task, NearestImages):
        return Neighbors(labels, torch.full((10, 8), right))
    if task.datasets() == ("voc07",):
        return Predictions(scores, 2 * one_hot(labels, 10) - 1)
    return Predictions(scores, labels)


def test_a_solved_set_scores_100_and_all_wrong_scores_0(tmp_path: Path) -> None:
    offenders = []
    for key, task in TASKS.items():
        best, worst = (
            task.metrics(solved(task, Path(mkdtemp(dir=tmp_path)), right=right))
            for right in (True, False)
        )
        # average precision over ten wrong objects is not 0
        if list(best.values()) != pytest.approx([100.0] * len(best)) or (
            not key.startswith("voc07") and worst[next(iter(worst))] != 0.0
        ):
            offenders.append((key, best, worst))
    assert offenders == []


def test_every_schedule_has_a_hash_of_its_own_unless_nothing_changes() -> None:
    offenders = []
    for key, task in TASKS.items():
        for schedule in ("paper", "short", "smoke"):
            second, task_id = task.at_schedule(schedule), reading_of(key)[0]
            same = protocol_hash(task_id, second) == protocol_hash(task_id, task)
            offenders += [(key, schedule)] * (same != (second == task))
    assert offenders == []


def test_a_task_names_catalogued_data_and_a_versioned_protocol() -> None:
    named = re.compile(r".+/\d+")
    offenders = [
        key
        for key, task in TASKS.items()
        if not set(task.datasets()) <= set(DATASETS) or not named.fullmatch(task.protocol)
    ]
    assert offenders == []


def test_no_two_tasks_write_the_same_record() -> None:
    names = [(reading_of(key)[0], task.protocol) for key, task in TASKS.items()]
    assert len(set(names)) == len(names)


@pytest.fixture
def small_encoder(small_backbone: Encoder, tmp_path: Path) -> Encoder:
    """The small backbone with a projector, which some tasks need."""
    return load_backbone(encoder_file(small_backbone, tmp_path / "encoder.pt"))


FIRST_OF_CLASS = {type(task): key for key, task in reversed(TASKS.items())}
"""One task of each class, which every test run evaluates."""


@pytest.mark.parametrize(
    "key",
    [
        key if key in FIRST_OF_CLASS.values() else pytest.param(key, marks=pytest.mark.slow)
        for key in TASKS
    ],
)
def test_a_tiny_run_ends_in_a_record(key: str, small_encoder: Encoder, settings: Settings) -> None:
    cell = Cell.with_backbone(task=key, backbone=small_encoder, seed=0, settings=settings)
    record = evaluate(cell)
    assert isinstance(record, Record)
    assert read_record(cell.path) == record
    assert record.departures == deviations(cell)
    assert all(0 <= value <= 100 for value in record.metrics.values())


@pytest.mark.parametrize(
    "key", [key for kind, key in FIRST_OF_CLASS.items() if not kind.trains_backbone]
)
def test_a_tiny_run_of_an_encoder_ends_in_a_record(key: str, settings: Settings) -> None:
    layers = nn.Conv2d(3, 16, 4, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    encoder = Encoder.from_module(
        nn.Sequential(*layers),
        size_px=32,
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        maps=lambda network, images: network.get_submodule("0")(images),
    )
    if "no projector" in TASKS[key].unsupported_reason(encoder):  # no projector
        key += "@feature"
    record = evaluate(Cell.with_backbone(task=key, backbone=encoder, seed=0, settings=settings))
    assert isinstance(record, Record)
    assert record.backbone["sha256"] == encoder.sha256
    assert all(0 <= value <= 100 for value in record.metrics.values())
