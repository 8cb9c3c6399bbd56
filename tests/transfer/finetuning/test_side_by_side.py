"""Networks that train side by side have the bits of networks that train alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pretrain.running import stop
from pretrain.running.processes import Process
from transfer.backbone import Backbone
from transfer.datasets.catalog import open_split
from transfer.datasets.images import Images
from transfer.finetuning import loop, side_by_side
from transfer.finetuning.classification import (
    Classifier,
    FineTuning,
    TrainingSamples,
    train,
    train_rates,
)
from transfer.finetuning.loop import Job
from transfer.finetuning.state import Training, TrainingSummary
from transfer.running.not_finite import NotFiniteError

CPU = Process(device=torch.device("cpu"))
COURSE = FineTuning(
    iterations=4,
    milestones=(2, 3),
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


Result = tuple[list[Classifier], list[TrainingSummary | NotFiniteError]]


def together(
    backbone: Backbone, images: Images, folder: Path, rates: tuple[float, ...] = RATES
) -> Result:
    classifiers = [Classifier(backbone, 6, seed=0) for _ in rates]
    summaries = train_rates(
        classifiers,
        images,
        [replace(COURSE, learning_rate=rate) for rate in rates],
        seed=0,
        folders=[folder / f"{rate:g}" for rate in rates],
        process=CPU,
        names=[f"{rate:g}" for rate in rates],
    )
    return classifiers, summaries


def alone(
    backbone: Backbone, images: Images, folder: Path, rate: float
) -> tuple[Classifier, TrainingSummary]:
    classifier = Classifier(backbone, 6, seed=0)
    course = replace(COURSE, learning_rate=rate)
    place = folder / f"{rate:g}"
    summary = train(classifier, images, course, seed=0, folder=place, process=CPU, name=f"{rate:g}")
    return classifier, summary


def assert_same_bits(one: Classifier, other: Classifier) -> None:
    assert not one.training
    state = other.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in one.state_dict().items())


@pytest.fixture(scope="module")
def references(
    images: Images, tmp_path_factory: pytest.TempPathFactory, small_backbone: Backbone
) -> dict[float, tuple[Classifier, TrainingSummary]]:
    folder = tmp_path_factory.mktemp("alone")
    return {rate: alone(small_backbone, images, folder, rate) for rate in RATES}


References = dict[float, tuple[Classifier, TrainingSummary]]


def test_weights_and_losses_are_those_of_trainings_alone(
    small_backbone: Backbone, images: Images, tmp_path: Path, references: References
) -> None:
    classifiers, summaries = together(small_backbone, images, tmp_path)
    for rate, classifier, summary in zip(RATES, classifiers, summaries, strict=True):
        reference, expected = references[rate]
        assert_same_bits(classifier, reference)
        assert isinstance(summary, TrainingSummary)
        assert (summary.losses, summary.curve) == (expected.losses, expected.curve)


def test_a_stopped_group_goes_on_to_the_same_bits(
    small_backbone: Backbone,
    images: Images,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    references: References,
) -> None:
    answers = iter([False, True])
    with monkeypatch.context() as patch:
        patch.setattr(stop, "is_requested", lambda: next(answers))
        with pytest.raises(stop.Stopped):
            together(small_backbone, images, tmp_path)
    for rate, classifier in zip(RATES, together(small_backbone, images, tmp_path)[0], strict=True):
        assert_same_bits(classifier, references[rate][0])


def test_runs_whose_checkpoints_differ_meet_on_the_way(
    small_backbone: Backbone,
    images: Images,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    references: References,
) -> None:
    answers = iter([False, False, True])
    with monkeypatch.context() as patch:
        patch.setattr(stop, "is_requested", lambda: next(answers))
        with pytest.raises(stop.Stopped):
            alone(small_backbone, images, tmp_path, RATES[1])
    for rate, classifier in zip(RATES, together(small_backbone, images, tmp_path)[0], strict=True):
        assert_same_bits(classifier, references[rate][0])


def test_a_rate_that_diverges_leaves_the_others(
    small_backbone: Backbone, images: Images, tmp_path: Path, references: References
) -> None:
    rates = (DIVERGING, RATES[0])
    classifiers, summaries = together(small_backbone, images, tmp_path, rates)
    assert isinstance(summaries[0], NotFiniteError)
    assert_same_bits(classifiers[1], references[RATES[0]][0])


def test_a_rate_that_diverged_does_not_drag_a_resumed_group_back(
    small_backbone: Backbone,
    images: Images,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    references: References,
) -> None:
    rates = (DIVERGING, RATES[0])
    answers = iter([False, False, True])
    with monkeypatch.context() as patch:
        patch.setattr(stop, "is_requested", lambda: next(answers))
        with pytest.raises(stop.Stopped):
            together(small_backbone, images, tmp_path, rates)
    made: list[int] = []
    step = loop.step

    def counted(job: Job, training: Training, *rest: Any) -> None:
        made.append(training.iteration)
        step(job, training, *rest)

    monkeypatch.setattr(side_by_side, "step", counted)
    classifiers, summaries = together(small_backbone, images, tmp_path, rates)
    assert made == [3]
    assert isinstance(summaries[0], NotFiniteError)
    assert "a loss is not finite" in str(summaries[0])
    assert_same_bits(classifiers[1], references[RATES[0]][0])


def test_a_group_that_diverged_as_a_whole_is_tried_again(
    small_backbone: Backbone, images: Images, tmp_path: Path
) -> None:
    rates = (DIVERGING, 2 * DIVERGING)
    _, summaries = together(small_backbone, images, tmp_path, rates)
    assert all(isinstance(one, NotFiniteError) for one in summaries)
    notes = list(tmp_path.glob("*/diverged.txt"))
    assert len(notes) == 2
    for note in notes:
        note.write_text("old words")
    _, summaries = together(small_backbone, images, tmp_path, rates)
    assert all("a loss is not finite" in str(one) for one in summaries)


def test_the_number_of_networks_follows_from_the_memory_of_a_gpu(
    small_backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, two = Process(device=torch.device("cuda")), Process(num_processes=2, device=CPU.device)
    values = sum(tensor.numel() for tensor in small_backbone.state_dict.values())
    free = int(3.5 * 16 * values / side_by_side.FREE_SHARE)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 2 * free))
    count = side_by_side.number_at_once
    assert count(0, small_backbone, gpu) == 3
    assert count(5, small_backbone, gpu) == 5
    assert (count(0, small_backbone, CPU), count(4, small_backbone, CPU)) == (1, 4)
    assert count(4, small_backbone, two) == 1


def test_networks_of_different_streams_are_refused(
    small_backbone: Backbone, images: Images, tmp_path: Path
) -> None:
    classifiers = [Classifier(small_backbone, 6, seed=0) for _ in RATES]
    competitors = [
        side_by_side.Competitor(
            network=classifier,
            optimizer=classifier.optimizer(COURSE),
            course=replace(COURSE, iterations=iterations),
            folder=tmp_path / str(iterations),
            name=str(iterations),
        )
        for classifier, iterations in zip(classifiers, (4, 5), strict=True)
    ]
    samples = TrainingSamples(images, 32, seed=0)
    with pytest.raises(ValueError, match="2 streams"):
        side_by_side.train_side_by_side(competitors, samples, seed=0, process=CPU)
