"""Images classified by a whole network that is trained, and stopped."""

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
    Crops,
    FineTuning,
    fine_tune,
    predict_scores,
    training_samples,
)
from transfer.finetuning.state import Training
from transfer.finetuning.stream import Samples, Stream
from transfer.frozen.transforms import EvalTransform, Normalization

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


@pytest.fixture(scope="module")
def images(small_data: Path) -> Images:
    return open_split("cars", small_data, "train").subset(range(12))


Train = Callable[..., tuple[Classifier, dict[str, Any]]]


@pytest.fixture(scope="module")
def train(small_backbone: Encoder, images: Images) -> Train:
    """Return a function that trains a small backbone in a folder."""

    def trained(folder: Path, rate: float) -> tuple[Classifier, dict[str, Any]]:
        course = replace(COURSE, learning_rate=rate)
        options = {"name": "all", "seed": 0, "work": folder, "process": CPU}
        return fine_tune(small_backbone, images, course, **options)  # type: ignore[arg-type]

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
    result, _ = train(tmp_path, 1e-4)
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
    torch.testing.assert_close(result.layers[1].weight, head.weight)
    statistics = result.get_buffer("layers.0.bn1.running_mean")
    torch.testing.assert_close(statistics, network.get_buffer("bn1.running_mean"))


def test_scores_are_those_of_the_network_in_eval_mode(
    small_backbone: Encoder, images: Images
) -> None:
    classifier = Classifier(small_backbone, 6, seed=0).eval()
    transform = EvalTransform(resize_px=37, crop_px=32)
    with torch.no_grad():
        scores = predict_scores(classifier, images, transform, small_backbone.input)
        raw = pil_to_tensor(transform.pixels(images[4][0]))
        item = Normalization(small_backbone.input, CPU.device)(raw[None])
        expected = classifier.layers(item)[0]
    # twenty layers in float32, alone and in a batch: 512 eps of the largest score
    atol = 512 * torch.finfo(torch.float32).eps * float(expected.abs().max())
    torch.testing.assert_close(scores[4], expected, rtol=0, atol=atol)


@pytest.fixture
def deterministic() -> Iterator[None]:
    """Use deterministic algorithms, which also fill uninitialized memory with NaN."""
    torch.use_deterministic_algorithms(mode=True)
    yield
    torch.use_deterministic_algorithms(mode=False)


@pytest.mark.usefixtures("deterministic")
def test_an_overflow_in_the_first_step_of_float16_leaves_no_trace(
    small_backbone: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(*, as_on_gpu: bool) -> Classifier:
        classifier, course = Classifier(small_backbone, 6, seed=0), replace(COURSE, crop_px=8)
        course = replace(course, precision="float16", milestones=(), learning_rate=1e-4)
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "is_cuda", as_on_gpu)
            optimizer = classifier.optimizer(course)
        training = Training(
            network=classifier.train(), optimizer=optimizer, schedule=course, folder=tmp_path
        )
        training.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30, backoff_factor=2**-10)
        samples: Samples[Crops] = Samples(4, lambda pairs: [])
        stream = Stream(samples=samples, schedule=course, seed=0, process=CPU)
        for _ in range(4):
            loop.step(stream, training, classifier, [[crops]])
        return classifier

    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (4, 3, 8, 8), dtype=torch.uint8, generator=generator)
    crops = Crops(pixels=pixels, labels=torch.arange(4))
    expected = trained(as_on_gpu=False)
    assert_same_bits(trained(as_on_gpu=True).eval(), expected)
    bias = expected.get_parameter("layers.1.bias")  # it starts with zeros
    assert bias.isfinite().all()
    assert bias.any()


def assert_same_bits(item: Classifier, other: Classifier) -> None:
    assert not item.training
    state = other.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in item.state_dict().items())


@contextmanager
def stopped_at(check: int) -> Iterator[None]:
    """Request a stop before this check, counted from 1."""
    answers = iter([*[False] * (check - 1), True])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stop, "is_requested", lambda: next(answers))
        with pytest.raises(stop.Stopped):
            yield


def test_stopped_training_goes_on_to_the_same_bits(train: Train, tmp_path: Path) -> None:
    expected, undisturbed = train(tmp_path / "undisturbed", 0.1)
    with stopped_at(3):
        train(tmp_path, 0.1)
    result, resumed = train(tmp_path, 0.1)
    assert_same_bits(result, expected)
    for name in ("losses", "curve"):
        assert resumed[name] == undisturbed[name]


def test_training_that_diverges_is_an_error_at_each_start(train: Train, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(NotFiniteError, match="a loss is not finite"):
            train(tmp_path, 1e30)
