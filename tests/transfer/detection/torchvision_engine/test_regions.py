"""Regions sampled among proposals and objects."""

import torch

from tests.transfer.detection.small_samples import small_samples
from transfer.detection.recipe import COCO_FPN
from transfer.detection.torchvision_engine.regions import sample_regions, select_foreground

LEVELS = 5
PROPOSALS = torch.tensor([[8.0, 12.0, 56.0, 69.0], [0.0, 0.0, 5.0, 5.0], [90.0, 60.0, 99.0, 90.0]])


def test_objects_are_among_the_regions_and_know_their_class() -> None:
    sample = small_samples(1, num_classes=LEVELS)[0]
    regions = sample_regions(PROPOSALS, sample, COCO_FPN, LEVELS)
    (on_objects,) = select_foreground([regions], LEVELS)
    assert sorted(on_objects.objects.tolist()) == [0, 0, 1, 2]  # one proposal, three objects
    torch.testing.assert_close(on_objects.classes, sample.classes[on_objects.objects])


def test_all_others_are_background_the_last_class() -> None:
    sample = small_samples(1, num_classes=LEVELS)[0]
    regions = sample_regions(PROPOSALS, sample, COCO_FPN, LEVELS)
    background = regions.boxes[regions.classes == LEVELS]
    assert sorted(background.tolist()) == PROPOSALS[1:].tolist()
