"""Two learning rates for two groups, and a training resumed that is one undisturbed."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import transfer.datasets.images
from pretrain.running import stop
from pretrain.running.atomic_files import content_hash
from pretrain.running.processes import Process
from transfer.backbone import Backbone
from transfer.datasets.catalog import open_split
from transfer.datasets.images import Images
from transfer.finetuning import classification, loop
from transfer.finetuning.classification import (
    Classifier,
    FineTuning,
    TrainingSamples,
    predict_scores,
    train,
    training_folder,
)
from transfer.frozen.kept_images import with_kept_pixels
from transfer.frozen.transforms import EvalTransform

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


def trained(
    backbone: Backbone,
    images: Images,
    folder: Path,
    course: FineTuning = COURSE,
    dtype: torch.dtype = torch.float32,
) -> Classifier:
    classifier = Classifier(backbone, len(images.class_names), seed=0).to(dtype)
    train(
        classifier,
        images,
        course,
        seed=0,
        folder=folder,
        process=CPU,
        name="test",
    )
    return classifier


def test_every_parameter_is_in_one_group_and_the_head_in_the_second(
    small_backbone: Backbone,
) -> None:
    classifier = Classifier(small_backbone, 6, seed=0)
    backbone, head = classifier.optimizer(COURSE).param_groups
    assert [tuple(p.shape) for p in head["params"]] == [(6, 512), (6,)]
    assert len(backbone["params"]) + 2 == len(list(classifier.parameters()))


def test_the_loop_is_plain_sgd_on_the_same_crops(
    small_backbone: Backbone, images: Images, tmp_path: Path
) -> None:
    # norms over four values make a rounding grow with each step: float64 and a small rate
    slow = replace(COURSE, learning_rate=1e-4)
    found = trained(small_backbone, images, tmp_path, slow, torch.float64)
    network = small_backbone.network().double().train().requires_grad_(True)
    head = torch.nn.Linear(512, 6)
    torch.nn.init.normal_(head.weight, std=0.01, generator=torch.Generator().manual_seed(0))
    torch.nn.init.zeros_(head.bias)
    head.double()
    form = small_backbone.input
    mean, std = (torch.tensor(v)[:, None, None].double() for v in (form.mean, form.std))
    groups = [{"params": network.parameters()}, {"params": head.parameters()}]
    sgd = torch.optim.SGD(groups, lr=0.01, momentum=0.9, weight_decay=1e-4)
    samples = TrainingSamples(images, 32, seed=0)
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


def test_a_training_that_was_stopped_ends_with_the_same_bits(
    small_backbone: Backbone, images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trained(small_backbone, images, tmp_path / "whole")
    answers = iter([False, False, True])
    with monkeypatch.context() as patch:
        patch.setattr(stop, "is_requested", lambda: next(answers))
        with pytest.raises(stop.Stopped):
            trained(small_backbone, images, tmp_path / "parts")
    resumed = trained(small_backbone, images, tmp_path / "parts").state_dict()
    assert all(torch.equal(resumed[name], tensor) for name, tensor in whole.state_dict().items())


def test_kept_images_give_the_same_crops_without_decoding(
    images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [(index, index) for index in range(12)]
    (expected,) = TrainingSamples(images, 32, seed=0).batch(places)
    kept = with_kept_pixels(images, passes=2)
    monkeypatch.setattr(transfer.datasets.images, "decoding", None)
    (found,) = TrainingSamples(kept, 32, seed=0).batch(places)
    assert torch.equal(found.pixels, expected.pixels)


def test_the_number_of_loader_processes_changes_no_bit(
    small_backbone: Backbone, images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = []
    for workers in (0, 2):
        monkeypatch.setattr(loop, "usual_workers", lambda _, workers=workers: workers)
        states.append(trained(small_backbone, images, tmp_path / str(workers)).state_dict())
    assert all(torch.equal(states[0][name], tensor) for name, tensor in states[1].items())


def test_a_training_on_older_crops_starts_anew_and_says_so(
    small_backbone: Backbone,
    images: Images,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def folder(place: Path = tmp_path) -> Path:
        return training_folder(place, "all", small_backbone, images, COURSE, seed=0)

    same = [1, small_backbone.sha256, images.fingerprint, asdict(COURSE), 0]
    older = tmp_path / f"all-{content_hash(same, 12)}"  # as before crops had versions
    older.mkdir()
    found = folder()
    assert found != older
    assert "starts anew on crops/2" in capsys.readouterr().err
    found.mkdir()
    folder()
    folder(tmp_path / "empty")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(classification, "CROPS", "crops/3")
    assert folder() not in (found, older)


def test_scores_are_those_of_the_network_in_eval_mode(
    small_backbone: Backbone, images: Images
) -> None:
    classifier = Classifier(small_backbone, 6, seed=0).eval()
    transform = EvalTransform(resize_px=37, crop_px=32)
    with torch.no_grad():
        scores = predict_scores(classifier, images, transform, small_backbone.input)
        one = transform(images[4][0], small_backbone.input)[None]
        expected = classifier.layers(one)[0]
    # twenty layers in float32, alone and in a batch: 512 eps of the largest score
    atol = 512 * torch.finfo(torch.float32).eps * float(expected.abs().max())
    torch.testing.assert_close(scores[4], expected, rtol=0, atol=atol)
