"""Boxes, matching, sampling, and RoIAlign in half precision."""

import pytest
import torch

from transfer.detection.torchvision_engine.regions import (
    BACKGROUND,
    OBJECT,
    decode,
    match,
    pool,
    pyramid_levels,
    sample_positives_and_negatives,
)


def test_no_box_grows_more_than_from_16_to_1000_px() -> None:
    box = torch.tensor([[0.0, 0.0, 16.0, 16.0]])
    grown = decode(box, torch.tensor([[0.0, 0.0, 99.0, 0.0]]), (1.0, 1.0, 1.0, 1.0))[0]
    assert (grown[2] - grown[0]).item() == pytest.approx(1000)


def test_deltas_of_half_precision_move_in_float32() -> None:
    box = torch.tensor([[1000.0, 0.0, 1001.0, 1.0]])
    moved = decode(box, torch.full((1, 4), 0.25).half(), (1.0, 1.0, 1.0, 1.0))
    assert moved.dtype == torch.float32
    assert ((moved[0, 0] + moved[0, 2]) / 2).item() == pytest.approx(1000.75)


def test_an_overlap_on_the_upper_threshold_is_an_object() -> None:
    assert match(torch.tensor([[0.5, 0.499]]), below=0.5, above=0.5)[1].tolist() == [1, 0]


def test_the_best_boxes_of_an_object_count_however_little_they_overlap() -> None:
    iou = torch.tensor([[0.80, 0.20, 0.50, 0.00, 0.10], [0.10, 0.25, 0.60, 0.00, 0.29]])
    labels = match(iou, below=0.3, above=0.7, allow_low_quality_matches=True)[1]
    assert labels.tolist() == [OBJECT, BACKGROUND, OBJECT, BACKGROUND, BACKGROUND]
    labels = match(
        torch.tensor([[0.2, 0.2, 0.1]]), below=0.3, above=0.7, allow_low_quality_matches=True
    )[1]
    assert labels.tolist() == [OBJECT, OBJECT, BACKGROUND]


def test_sampler_fills_up_with_negatives() -> None:
    for there, samples, share, sampled in [
        (40, 32, 0.25, (8, 24)),
        (3, 32, 0.5, (3, 29)),
        (50, 200, 0.5, (50, 50)),
    ]:
        positive = torch.arange(100) < there
        some, remaining = sample_positives_and_negatives(
            positive, ~positive, num_samples=samples, positive_share=share
        )
        assert (len(set(some.tolist())), len(set(remaining.tolist()))) == sampled
        assert positive[some].all()
        assert not positive[remaining].any()


def test_box_of_224_px_belongs_to_stride_16() -> None:
    sides = torch.tensor([10.0, 56.0, 112.0, 224.0, 448.0, 2000.0])
    boxes = torch.stack([torch.zeros(6), torch.zeros(6), sides, sides], dim=1)
    assert pyramid_levels(boxes, first_level=2, num_levels=4).tolist() == [0, 0, 1, 2, 3, 3]


def test_half_precision_maps_do_not_move_boxes() -> None:
    # x of each pixel's center less 1000; numbers of half precision are 0.5 apart at 1000
    x = (torch.arange(512) + 0.5) * 4 - 1000
    box = torch.tensor([[1001.25, 8.0, 1003.25, 16.0]])
    pooled = pool([x.expand(1, 1, 8, 512).half()], [box], [4], 1)
    assert pooled.dtype == torch.float16
    # 2.25 and its neighbors are whole eighths, with an eps of 2^-10 in float16
    torch.testing.assert_close(pooled[0, 0, 0, 0].item(), 2.25, atol=0.01, rtol=0)
