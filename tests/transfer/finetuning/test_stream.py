"""The order of images, and that neither processes nor interruptions change it."""

from itertools import chain, islice
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch

from pretrain.running.processes import Process
from tests.transfer.detection.tiny_training import tiny_recipe, tiny_scenes
from transfer.datasets.expected import DataError
from transfer.datasets.scenes import Scenes
from transfer.detection import samples as detection_samples
from transfer.detection.detector import Sample
from transfer.detection.detectron2_engine import silence_known_warnings
from transfer.finetuning.stream import (
    Stream,
    batches_of_items,
    shuffled_indices,
    single_samples,
)

ALONE = Process(device=torch.device("cpu"))


def one_of(num_processes: int, rank: int) -> Process:
    return Process(rank=rank, num_processes=num_processes, device=torch.device("cpu"))


def loaded(scenes: Scenes, passes: range) -> list[list[Sample]]:
    """Batches of four."""
    sample = detection_samples.training_sample
    samples = single_samples(scenes, sample, tiny_recipe(), 5, scenes.wide)
    stream = Stream(samples=samples, schedule=tiny_recipe(), seed=5, process=ALONE)
    return list(stream.batches(passes))  # type: ignore[arg-type]


def test_each_turn_shows_every_image_once() -> None:
    turns = [index for _, index in islice(shuffled_indices(11, 0, ALONE), 33)]
    assert [sorted(turns[start : start + 11]) for start in (0, 11, 22)] == [list(range(11))] * 3
    assert turns[:11] != turns[11:22]


def test_processes_deal_the_stream_of_one_among_them() -> None:
    whole = list(islice(shuffled_indices(7, 0, ALONE), 60))
    for rank in range(3):
        assert list(islice(shuffled_indices(7, 0, one_of(3, rank)), 20)) == whole[rank::3]


def test_a_batch_is_wide_or_not_and_loses_no_image() -> None:
    wide = np.array([True, False, True, False, False])
    batches = list(islice(batches_of_items(shuffled_indices(5, 0, ALONE), 3, wide), 10))
    assert all(len({bool(wide[index]) for _, index in batch}) == 1 for batch in batches)
    observed = sorted(position for batch in batches for position, _ in batch)
    assert len(set(observed)) == 30
    assert observed[-1] < 30 + 4  # all but two of each orientation


def test_skipped_passes_open_no_image_and_change_nothing(tmp_path: Path) -> None:
    scenes = tiny_scenes(tmp_path)
    whole = loaded(scenes, range(6))
    sample = detection_samples.training_sample
    with patch.object(detection_samples, "training_sample", wraps=sample) as opened:
        rest = loaded(scenes, range(4, 6))
    assert opened.call_count == 8
    for item, second in zip(chain(*rest), chain(*whole[4:]), strict=True):
        assert torch.equal(item.image, second.image)
        assert torch.equal(item.boxes, second.boxes)


def test_an_image_is_drawn_anew_in_each_turn(tmp_path: Path) -> None:
    scenes = tiny_scenes(tmp_path).subset([0])
    samples = chain(*loaded(scenes, range(3)))
    assert len({tuple(sample.boxes.flatten().tolist()) for sample in samples}) == 4


@pytest.mark.detectron2
def test_the_order_is_that_of_detectron2(monkeypatch: pytest.MonkeyPatch) -> None:
    with silence_known_warnings():
        from detectron2.data.common import AspectRatioGroupedDataset
        from detectron2.data.samplers import TrainingSampler
        from detectron2.utils import comm
    monkeypatch.setattr(comm, "get_rank", lambda: 1)
    monkeypatch.setattr(comm, "get_world_size", lambda: 3)
    wide = np.arange(10) % 3 == 0
    sampler = TrainingSampler(10, seed=4)
    records = ({"width": 2 if wide[i] else 1, "height": 1, "index": i} for i in sampler)
    theirs = islice(AspectRatioGroupedDataset(records, 4), 12)
    ours = islice(batches_of_items(shuffled_indices(10, 4, one_of(3, 1)), 4, wide), 12)
    assert [[index for _, index in batch] for batch in ours] == [
        [record["index"] for record in batch] for batch in theirs
    ]


def test_a_stream_of_no_image_is_an_error() -> None:
    with pytest.raises(DataError, match="no training images"):
        next(shuffled_indices(0, 0, ALONE))
