"""Matches of boxes to objects, and samples of them."""

import torch

from transfer.detection.torchvision_engine.regions import (
    BACKGROUND,
    NEITHER,
    OBJECT,
    match,
    sample_positives_and_negatives,
)

IOU = torch.tensor(
    [
        [0.80, 0.20, 0.50, 0.00, 0.10],
        [0.10, 0.25, 0.60, 0.00, 0.29],
    ]
)


def test_thresholds_part_objects_background_and_neither() -> None:
    objects, labels = match(IOU, below=0.3, above=0.7)
    assert objects[:3].tolist() == [0, 1, 1]
    assert labels.tolist() == [OBJECT, BACKGROUND, NEITHER, BACKGROUND, BACKGROUND]


def test_an_overlap_on_the_upper_threshold_is_an_object() -> None:
    assert match(torch.tensor([[0.5, 0.499]]), below=0.5, above=0.5)[1].tolist() == [1, 0]


def test_the_best_box_of_an_object_counts_however_little_it_overlaps() -> None:
    labels = match(IOU, below=0.3, above=0.7, best_too=True)[1]
    assert labels.tolist() == [OBJECT, BACKGROUND, OBJECT, BACKGROUND, BACKGROUND]


def test_boxes_that_are_equally_best_all_count() -> None:
    labels = match(torch.tensor([[0.2, 0.2, 0.1]]), below=0.3, above=0.7, best_too=True)[1]
    assert labels.tolist() == [OBJECT, OBJECT, BACKGROUND]


def test_all_is_background_where_there_is_no_object() -> None:
    assert match(torch.zeros(0, 4), below=0.3, above=0.7, best_too=True)[1].tolist() == [0] * 4


def test_positives_fill_their_share_and_negatives_the_rest() -> None:
    positive = torch.arange(100) < 40
    some, others = sample_positives_and_negatives(
        positive, ~positive, num_samples=32, positive_share=0.25
    )
    assert (len(some), len(others)) == (8, 24)
    assert positive[some].all()
    assert not positive[others].any()


def test_negatives_take_the_place_of_missing_positives() -> None:
    positive = torch.arange(100) < 3
    some, others = sample_positives_and_negatives(
        positive, ~positive, num_samples=32, positive_share=0.5
    )
    assert (len(some), len(others)) == (3, 29)


def test_no_box_is_drawn_twice() -> None:
    positive = torch.arange(50) % 2 == 0
    some, others = sample_positives_and_negatives(
        positive, ~positive, num_samples=200, positive_share=0.5
    )
    assert sorted(torch.cat([some, others]).tolist()) == list(range(50))
