"""Images classified by a whole network that is trained alone or beside others, and stopped."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torchvision.transforms.v2.functional import pil_to_tensor

from pretrain.running import stop
from pretrain.running.errors import NotFiniteError
from pretrain.running.processes import Process
from transfer.datasets.catalog import open_split
from transfer.datasets.images import Images
from transfer.encoders.encoder import Encoder
from transfer.finetuning import classification, loop
from transfer.finetuning.classification import (
    Classifier,
    FineTuning,
    predict_scores,
    train_rates,
    training_samples,
)
from transfer.finetuning.state import Training
from transfer.finetuning.stream import Stream
from transfer.frozen.transforms import EvalTransform, normalize_pixels

CPU = Process(device=torch.device("cpu"))
COURSE = FineTuning(
    iterations=5,
    milestones=(3, 4),
    decay=0.2,
    learning_rate=0.01,
    batch_size=4,
    precision="float32",
    head_factor=10.0,
    sgd_momentum=0.9,
    weight_decay=1e-4,
    crop_px=32,
)
RATES = (0.01, 0.1)
DIVERGING = 1e30


@pytest.fixture(scope="module")
def images(small_data: Path) -> Images:
    return open_split("cars", small_data, "train").subset(range(12))


Train = Callable[..., list[tuple[Classifier, Any]]]


@pytest.fixture(scope="module")
def train(small_backbone: Encoder, images: Images) -> Train:
    """Return a function that trains a small backbone in a folder, for each rate side by side."""

    def trained(folder: Path, *rates: float) -> list[tuple[Classifier, Any]]:
        courses = {f"{rate:g}": replace(COURSE, learning_rate=rate) for rate in rates}
        return train_rates(small_backbone, images, courses, seed=0, work=folder, process=CPU)

    return trained


def test_the_loop_is_plain_sgd_on_the_same_crops(
    train: Train,
    small_backbone: Encoder,
    images: Images,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # norms over four values make a rounding grow with each step: float64 and a small rate
    monkeypatch.setattr(classification, "Classifier", lambda *words: Classifier(*words).double())
    ((found, _),) = train(tmp_path, 1e-4)
    network = small_backbone.network().double().train().requires_grad_(True)
    head = torch.nn.Linear(512, 6)
    torch.nn.init.normal_(head.weight, std=0.01, generator=torch.Generator().manual_seed(0))
    torch.nn.init.zeros_(head.bias)
    head.double()
    form = small_backbone.input
    mean, std = (torch.tensor(v)[:, None, None].double() for v in (form.mean, form.std))
    groups = [{"params": network.parameters()}, {"params": head.parameters()}]
    sgd = torch.optim.SGD(groups, lr=0.01, momentum=0.9, weight_decay=1e-4)
    samples = training_samples(images, 32, seed=0)
    generator = torch.Generator().manual_seed(0)  # the loop's order of images
    order = [i for _ in range(2) for i in torch.randperm(12, generator=generator).tolist()]
    for step, rate in enumerate((1e-4, 1e-4, 1e-4, 2e-5, 4e-6)):
        for group, factor in zip(sgd.param_groups, (1, 10), strict=True):
            group["lr"] = rate * factor
        (batch,) = samples.batch([(n, order[n]) for n in range(4 * step, 4 * step + 4)])
        sgd.zero_grad()
        scores = head(network((batch.pixels / 255 - mean) / std)).float()  # a loss in float32
        F.cross_entropy(scores, batch.labels).backward()
        sgd.step()
    torch.testing.assert_close(found.layers[1].weight, head.weight)
    statistics = found.get_buffer("layers.0.bn1.running_mean")
    torch.testing.assert_close(statistics, network.get_buffer("bn1.running_mean"))


def test_scores_are_those_of_the_network_in_eval_mode(
    small_backbone: Encoder, images: Images
) -> None:
    classifier = Classifier(small_backbone, 6, seed=0).eval()
    transform = EvalTransform(resize_px=37, crop_px=32)
    with torch.no_grad():
        scores = predict_scores(classifier, images, transform, small_backbone.input)
        raw = pil_to_tensor(transform.pixels(images[4][0]))
        one = normalize_pixels(raw, small_backbone.input)[None]
        expected = classifier.layers(one)[0]
    # twenty layers in float32, alone and in a batch: 512 eps of the largest score
    atol = 512 * torch.finfo(torch.float32).eps * float(expected.abs().max())
    torch.testing.assert_close(scores[4], expected, rtol=0, atol=atol)


def assert_same_bits(one: Classifier, other: Classifier) -> None:
    assert not one.training
    state = other.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in one.state_dict().items())


References = dict[float, tuple[Classifier, Any]]


@pytest.fixture(scope="module")
def alone(train: Train, tmp_path_factory: pytest.TempPathFactory) -> References:
    """Trainings of each rate by itself."""
    folder = tmp_path_factory.mktemp("alone")
    return {rate: train(folder, rate)[0] for rate in RATES}


def test_weights_and_losses_are_those_of_trainings_alone(
    train: Train, tmp_path: Path, alone: References
) -> None:
    for rate, (classifier, summary) in zip(RATES, train(tmp_path, *RATES), strict=True):
        reference, expected = alone[rate]
        assert_same_bits(classifier, reference)
        assert (summary.losses, summary.curve) == (expected.losses, expected.curve)


@contextmanager
def stopped_at(check: int) -> Iterator[None]:
    """Within it a request to stop comes before this check, counted from 1."""
    answers = iter([*[False] * (check - 1), True])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stop, "is_requested", lambda: next(answers))
        with pytest.raises(stop.Stopped):
            yield


def test_a_stopped_training_goes_on_to_the_same_bits_beside_others_too(
    train: Train, tmp_path: Path, alone: References
) -> None:
    """Also from checkpoints that differ, and from that of a training alone."""
    with stopped_at(2):
        train(tmp_path / "together", *RATES)
    with stopped_at(3):
        train(tmp_path / "alone", RATES[1])
    for begun in ("together", "alone"):
        for rate, (classifier, _) in zip(RATES, train(tmp_path / begun, *RATES), strict=True):
            assert_same_bits(classifier, alone[rate][0])


def test_a_rate_that_diverged_does_not_drag_a_resumed_group_back(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: References
) -> None:
    with stopped_at(4):
        train(tmp_path, DIVERGING, RATES[0])
    made: list[int] = []
    step = loop.step

    def counted(stream: Stream, training: Training, *rest: Any) -> None:
        made.append(training.iteration)
        step(stream, training, *rest)

    monkeypatch.setattr(loop, "step", counted)
    (_, error), (classifier, _) = train(tmp_path, DIVERGING, RATES[0])
    assert made == [4]
    assert isinstance(error, NotFiniteError)
    assert_same_bits(classifier, alone[RATES[0]][0])


def test_a_group_that_diverged_as_a_whole_is_tried_again(train: Train, tmp_path: Path) -> None:
    for _ in range(2):
        for _, error in train(tmp_path, DIVERGING, 2 * DIVERGING):
            assert "a loss is not finite" in str(error)
        notes = list(tmp_path.glob("*/diverged.txt"))
        assert len(notes) == 2
        for note in notes:
            note.write_text("old words")


def test_the_number_of_networks_follows_from_the_memory_of_a_gpu(
    small_backbone: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, two = Process(device=torch.device("cuda")), Process(num_processes=2, device=CPU.device)
    values = sum(tensor.numel() for tensor in small_backbone.state_dict.values())
    free = int(3.5 * 16 * values / classification.FREE_SHARE)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 2 * free))
    count = classification.number_at_once
    assert count(0, small_backbone, gpu) == 3
    assert count(5, small_backbone, gpu) == 5
    assert (count(0, small_backbone, CPU), count(4, small_backbone, CPU)) == (1, 4)
    assert count(4, small_backbone, two) == 1
