"""Records of view statistics, and what backbones without a projector are told."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.transfer.encoders.test_projector import encoder_file
from transfer.cells.cell import Cell
from transfer.cells.execution import evaluate
from transfer.cells.request import Settings
from transfer.encoders.encoder import Encoder
from transfer.encoders.opening import load_backbone
from transfer.tasks import TASKS
from transfer.tasks.view_statistics import ImageStatistics, ViewStatistics, histogram

EMBEDDINGS, FEATURES = "cifar10_view_statistics", "cifar10_view_statistics@feature"


def test_every_image_is_counted_once_also_at_the_limits() -> None:
    result = histogram(torch.tensor([-1e-9, 0.0, 0.5, 1.0, 1.0 + 1e-9]), 0.0, 1.0)
    assert (sum(result["counts"]), result["counts"][0], result["counts"][-1]) == (5, 2, 2)
    assert (len(result["edges"]), result["edges"][0], result["edges"][-1]) == (201, 0.0, 1.0)


def test_metric_is_the_cosine_in_percent() -> None:
    task: Any = ViewStatistics(dataset="cifar10")
    embedding = torch.tensor([[0.5, 0.01, 8.0], [0.7, 0.03, 10.0]])
    statistics = {"embedding": embedding, "feature": embedding / 2}
    predictions = ImageStatistics(statistics, {"embedding": 4, "feature": 512})
    details = task.details(predictions)
    assert task.metrics(predictions) == {"mean_cosine": pytest.approx(60.0)}
    assert details["mean_nuclear_norm"] == pytest.approx(9.0)
    assert details["of_features"]["mean_covariance_diagonal"] == pytest.approx(0.01)
    assert (details["space"], details["dim"], details["num_images"]) == ("embedding", 4, 2)


def test_a_backbone_without_projector_is_unfit_for_embeddings_only(checkpoint: Path) -> None:
    backbone = load_backbone(checkpoint)
    assert "need its projector" in TASKS[EMBEDDINGS].unsupported_reason(backbone)
    assert TASKS[FEATURES].unsupported_reason(backbone) == ""


@pytest.mark.slow
def test_features_of_both_tasks_are_those_of_the_same_views(
    small_backbone: Encoder, settings: Settings, tmp_path: Path
) -> None:
    backbone = load_backbone(encoder_file(small_backbone, tmp_path / "encoder.pt"))
    cell = Cell.with_backbone(task=EMBEDDINGS, backbone=backbone, seed=0, settings=settings)
    embeddings = evaluate(cell).details
    features = evaluate(cell.with_request(task=FEATURES)).details
    assert embeddings["of_features"]["histograms"] == features["histograms"]
    assert (embeddings["num_images"], embeddings["num_views"], embeddings["dim"]) == (20, 32, 4)
    assert "of_features" not in features
