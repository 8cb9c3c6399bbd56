"""Frozen features and the heads trained on them, on pretend CUDA tensors."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from pretrain.running.host_memory import image_memory
from tests.fake_cuda.pretend import CUDA, on_cuda, pretend_cuda
from tests.fake_cuda.watch import Watch, allowed_waits
from tests.pretrain.pixels.photographs import as_jpeg, photograph
from transfer.datasets.images import Images, image_files
from transfer.encoders.encoder import Encoder, InputFormat
from transfer.frozen import crops, extraction, few_shot_heads, nearest, network
from transfer.frozen.crops import crop_batches
from transfer.frozen.feature_cache import Features
from transfer.frozen.feature_file import UnfinishedRows
from transfer.frozen.few_shot_heads import Problem, train_together
from transfer.frozen.nearest import knn_scores
from transfer.frozen.network import forward, in_bfloat16
from transfer.frozen.probe_training import Labels, ProbeTraining
from transfer.frozen.running_probe import HeadOptimizer, new_heads
from transfer.frozen.transforms import EvalTransform, Normalization


@pytest.fixture
def folder(tmp_path: Path) -> Images:
    """Four small photo-like images of different sizes."""
    names = [f"{seed}.jpg" for seed in range(4)]
    for seed, name in enumerate(names):
        (tmp_path / name).write_bytes(as_jpeg(photograph(20, 24 + seed, seed)))
    return image_files(tmp_path, names, range(4), [*"abcd"])


POOL = Features(torch.ones(20, 16), torch.arange(20) % 2)


@pytest.fixture(autouse=True)
def the_device_is_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let functions that choose the device choose CUDA."""
    for module in (nearest, few_shot_heads, crops, extraction, network):
        monkeypatch.setattr(module, "device", lambda: CUDA)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_features_are_float32_within_the_sync_budget(
    small_backbone: Encoder, precision: str
) -> None:
    frozen = small_backbone.network()
    if precision == "bfloat16":
        frozen = in_bfloat16(frozen)
    raw = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
    normalize = Normalization(small_backbone.input, torch.device("cpu"))
    with pretend_cuda():
        frozen.to(CUDA, memory_format=torch.channels_last)
        with Watch() as watch:
            features = forward(frozen, normalize(raw))
    assert (features.dtype, features.device, features.shape) == (torch.float32, CUDA, (4, 512))
    assert watch.waits == allowed_waits("features")


@pytest.mark.parametrize("optimizer", ["sgd", "lars"])
def test_a_step_of_linear_heads_waits_as_often_as_its_budget_says(optimizer: str) -> None:
    rates = (0.1, 1.0, 10.0)
    training = ProbeTraining(learning_rates=rates, steps=10, optimizer=optimizer)  # type: ignore[arg-type]
    heads = new_heads(rates, num_classes=5, width=16, std=0.01, seed=0)
    with pretend_cuda():
        heads_on_cuda = HeadOptimizer(heads, training, CUDA)
        features, labels = on_cuda(torch.ones(8, 16)), on_cuda(torch.zeros(8, dtype=torch.int64))
        with Watch() as watch:
            losses = heads_on_cuda.step(features, labels, 0.3)
    assert (losses.dtype, losses.device, losses.shape) == (torch.float32, CUDA, (3,))
    assert watch.faults == []
    assert watch.waits == allowed_waits("step of linear heads")


@pytest.mark.parametrize("labels", ["classes", "rotations"])
@pytest.mark.parametrize("in_memory", [False, True])
def test_batches_of_crops_wait_nowhere(in_memory: bool, labels: Labels, folder: Images) -> None:
    training = ProbeTraining(learning_rates=(1.0,), labels=labels, crop_px=8)
    with pretend_cuda(), image_memory(1.0 * in_memory):
        batches = crop_batches(folder, training, 0, 4, range(3))
        with Watch():
            next(batches)
        normalize = Normalization(InputFormat(), CUDA)
        with Watch() as watch:
            crops, classes = next(batches)
            pixels = normalize(crops)
    assert (pixels.dtype, pixels.device, pixels.shape) == (torch.float32, CUDA, (4, 3, 8, 8))
    assert (classes.dtype, classes.device, classes.shape) == (torch.int64, CUDA, (4,))
    assert pixels.is_contiguous(memory_format=torch.channels_last)
    assert watch.faults == []
    assert watch.waits == allowed_waits("crops")


def test_features_are_written_batch_by_batch(
    small_backbone: Encoder, folder: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []

    def note(owner: object, name: str) -> None:
        function = getattr(owner, name)

        def noted(*arguments: object) -> object:
            log.append(name)
            return function(*arguments)

        monkeypatch.setattr(owner, name, noted)

    monkeypatch.setattr(extraction, "IMAGES_PER_BATCH", 1)
    note(extraction, "forward")
    note(UnfinishedRows, "write")
    path, transform = tmp_path / "entry.npy", EvalTransform(resize_px=32, crop_px=32)
    with pretend_cuda(), Watch() as watch:
        extraction.extract({path: small_backbone}, folder, transform, "")
    assert log == ["forward", "write"] * 4
    assert watch.faults == []
    assert path.exists()


def few_shot_waits(iterations: int) -> tuple[Watch, list[Tensor]]:
    problems = [Problem(torch.arange(10) + shift, seed=shift) for shift in range(2)]
    with pretend_cuda(), Watch() as watch:
        trained = train_together(
            POOL, problems, num_classes=2, iterations=iterations, learning_rate=0.1, batch_size=4
        )
        return watch, list(trained)


def test_training_of_few_shot_heads_waits_as_often_as_its_budget_says_however_long_it_is() -> None:
    watch, (weight, bias) = few_shot_waits(1)
    assert weight.device == bias.device == CUDA
    assert watch.faults == []
    assert watch.waits == few_shot_waits(3)[0].waits == allowed_waits("few-shot heads")


def test_each_part_of_the_queries_waits_as_often_as_its_budget_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nearest, "QUERIES_PER_CHUNK", 8)
    with pretend_cuda(), Watch() as watch:
        votes = knn_scores(POOL, torch.ones(8, 16), num_classes=2, num_neighbors=5, temperature=0.1)
    assert votes.device.type == "cpu"
    assert watch.faults == []
    assert watch.waits == allowed_waits("nearest neighbors")
