"""Prediction of an image's rotation: LooC, arXiv:2008.05659, section 4 and Table 1.

A linear classifier of four rotations on the frozen backbone. It learns from crops that are flipped
and then rotated by a uniformly drawn multiple of 90 degrees, and is scored on every test image in
all four rotations. The paper names no settings for it; those of its ImageNet-100 probe are used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from transfer.backbone import Backbone
from transfer.frozen.features import Features, Predictions
from transfer.frozen.pass_hours import probe_hours
from transfer.frozen.probe_training import ProbeTraining
from transfer.frozen.transforms import QUARTER_TURNS, EvalTransform
from transfer.running.folders import Folders
from transfer.running.measured_rates import ASSUMED, Rates
from transfer.running.option_ranges import length_fraction
from transfer.tasks.task import Classification, Task

if TYPE_CHECKING:
    from transfer.datasets.images import Images
    from transfer.galleries.tile import Tile


@dataclass(frozen=True)
class Prepared:
    """Input of a run."""

    backbone: Backbone
    train: Images
    test: Features
    """Features of all test images in one rotation after the other; the label is the rotation."""


@dataclass(frozen=True, kw_only=True)
class RotationProbe(Classification, Task):
    """Linear probe of four rotations on ImageNet-100."""

    heading: ClassVar[str] = "Linear probes"
    primary_metric: ClassVar[str] = "acc"

    dataset: str = "in100"
    protocol: str = "looc-2020/1"
    learning_rate: float = 30.0
    epochs: float = 200.0
    batch_size: int = 256
    sgd_momentum: float = 0.9
    weight_decay: float = 0.0
    margin_px: int = 32
    """Short side of the test image minus the crop, for a crop of 224 px; in proportion for other
    crops."""

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol at the length of a schedule."""
        if schedule == "smoke":
            return replace(self, epochs=self.epochs / 50, batch_size=32)
        if schedule == "paper":
            return self
        return replace(self, epochs=self.epochs * length_fraction(schedule))

    def gpu_hours(self, backbone: Backbone, rates: Rates = ASSUMED) -> float:
        """Return the estimated hours on one GPU, on the published counts of images."""
        return probe_hours(backbone, self.dataset, epochs=self.epochs, rates=rates)

    def prepare(self, backbone: Backbone, folders: Folders) -> Prepared:
        """Return the training images and the features of the test images in each rotation."""
        import torch

        from transfer.frozen.features import frozen_features, open_images

        upright = EvalTransform.center(self.crop_px, self.margin_px)
        positions = [
            frozen_features(
                backbone, self.dataset, "test", replace(upright, turns=quarters), folders
            ).features
            for quarters in range(QUARTER_TURNS)
        ]
        labels = torch.arange(QUARTER_TURNS).repeat_interleave(len(positions[0]))
        train = open_images(self.dataset, "trainval", folders)
        return Prepared(backbone, train, Features(torch.cat(positions), labels))

    def run(self, prepared: Prepared, folders: Folders, seed: int) -> Predictions:
        """Train, then return the scores of the test split with the last weights."""
        from transfer.frozen.linear_heads import train_and_score

        training = ProbeTraining(
            learning_rates=(self.learning_rate,),
            batch_size=self.batch_size,
            epochs=self.epochs,
            decays=("step",),
            sgd_momentum=self.sgd_momentum,
            weight_decay=self.weight_decay,
            labels="rotations",
            crop_px=self.crop_px,
        )
        return train_and_score(
            prepared.backbone, prepared.train, training, prepared.test, seed, folders.work
        )

    def metrics(self, predictions: Predictions) -> dict[str, float]:
        """Return accuracy in percent."""
        from transfer.metrics import top1

        return {"acc": top1(predictions.scores, predictions.labels)}

    def gallery(self, predictions: Predictions, folders: Folders) -> list[Tile]:
        """Return turned test images about whose rotation the classifier is most wrong."""
        from transfer.galleries.mistakes import turned_mistakes

        images = self.test_images(folders)
        return turned_mistakes(images, predictions.scores, predictions.labels)


TASKS = {"rotation4_linear": RotationProbe()}
