"""Linear classification on twelve datasets: LORAC, section 6 and Table II.

Wang et al., arXiv:2108.02696. Linear classifiers are trained on random crops that pass through the
frozen backbone: seven learning rates at once on the train split. The learning rate that is best on
the val split is used to train on train and val together, and the test split is scored once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from transfer.datasets.catalog import DATASETS
from transfer.datasets.folders import Folders
from transfer.encoders.encoder import Encoder
from transfer.finetuning.options import length_fraction
from transfer.frozen.classifier import Metric, class_results
from transfer.frozen.feature_cache import Predictions, open_images
from transfer.frozen.probe_training import ProbeTraining, settings_of
from transfer.frozen.transforms import EvalTransform
from transfer.metrics import mean_per_class, top1
from transfer.tasks.task import CROPS, FrozenTask, TrainingData, too_few_of_a_class

if TYPE_CHECKING:
    from transfer.datasets.images import Images
    from transfer.frozen.linear_heads import Pass

METRICS: dict[str, Metric] = {"mean_per_class": mean_per_class, "top1": top1}
RATES = tuple(round(10 ** (-1 + exponent / 2), 4) for exponent in range(7))
"""Seven learning rates, log-spaced: 0.1, 0.3162, 1, 3.1623, 10, 31.6228, 100."""


@dataclass(frozen=True, kw_only=True)
class LinearTransfer(FrozenTask):
    """LORAC's protocol on one dataset."""

    heading: ClassVar[str] = "Linear transfer"
    supported_options: ClassVar[frozenset[str]] = CROPS

    protocol: str = "lorac-2021/1"
    steps: int = 0
    """Optimizer steps; 0 if `epochs` is given."""
    epochs: float = 0.0
    """Epochs; 0 if `steps` is given."""
    learning_rates: tuple[float, ...] = RATES
    batch_size: int = 256
    sgd_momentum: float = 0.9
    weight_decay: float = 0.0

    @property
    def primary_metric(self) -> str:
        """Return mean_per_class or top1, as the paper reports for the dataset."""
        return DATASETS[self.dataset].metric

    @property
    def shared_pass(self) -> LinearTransfer:
        """Return the task: only the same training of another backbone shares its crops."""
        return self

    def at_schedule(self, schedule: str) -> LinearTransfer:
        """Return the protocol at the length of a schedule."""
        if schedule == "smoke":
            return replace(self, steps=24, epochs=0.0, batch_size=32)
        fraction = length_fraction(schedule)
        steps = max(1, round(self.steps * fraction)) if self.steps else 0
        return replace(self, steps=steps, epochs=self.epochs * fraction)

    def units(self) -> dict[str, float]:
        """Return the number of training crops and of images for extraction."""
        # one training searches the learning rate, another one uses it
        trainval = DATASETS[self.dataset].counts.get("trainval", 0)
        crops = 2 * (self.steps * self.batch_size + self.epochs * trainval)
        return {**super().units(), "crop": crops}

    def extracted(self) -> list[tuple[str, EvalTransform]]:
        """Return the val and test splits, in center crops."""
        transform = EvalTransform(resize_px=round(self.crop_px * 256 / 224), crop_px=self.crop_px)
        return [("val", transform), ("test", transform)]

    def too_few_labels(self, images: Mapping[str, Images]) -> str:
        """Return which class has no val or test images; empty if none."""
        reason, purpose = "", "the metric is a mean over all classes"
        if self.primary_metric == "mean_per_class":
            for split, tested in images.items():
                subject = f"{self.dataset}, {split}"
                reason = reason or too_few_of_a_class(
                    subject, tested, tested.class_names, 1, purpose
                )
        return reason

    def prepare(self, backbone: Encoder, folders: Folders) -> TrainingData:
        """Return images to train on and features to test on."""
        train, trainval = (
            open_images(self.dataset, split, folders) for split in ("train", "trainval")
        )
        val, test = self.features(backbone, folders)
        return TrainingData(backbone, trainval, test, held_out=TrainingData(backbone, train, val))

    def passes(self, prepared: TrainingData, folders: Folders, seed: int) -> Iterator[Pass]:
        """Yield the search for the learning rate, then the training with the best one."""
        from transfer.frozen.linear_heads import Pass

        backbone, held_out = prepared.backbone, cast("TrainingData", prepared.held_out)
        training = settings_of(ProbeTraining, self)
        search = Pass(backbone, held_out.train, training, seed, folders.work)
        yield search
        accuracies = search.heads.accuracies(held_out.test, METRICS[self.primary_metric])
        best = self.learning_rates[accuracies.index(max(accuracies))]
        training = replace(training, learning_rates=(best,))
        yield Pass(backbone, prepared.train, training, seed, folders.work)

    def run(self, prepared: TrainingData, folders: Folders, seed: int) -> Predictions:
        """Choose the learning rate, train on trainval, return test scores.

        Raises NotFiniteError if the final training diverges.
        """
        from transfer.frozen.crops import CROPS_VERSION
        from transfer.frozen.finite import require_converged

        trained = []
        for each in self.passes(prepared, folders, seed):
            each.run()  # the second pass depends on the result of the first
            trained.append(each)
        search, final = trained
        held_out, (rate,) = cast("TrainingData", prepared.held_out), final.training.learning_rates
        accuracies = search.heads.accuracies(held_out.test, METRICS[self.primary_metric])
        best = self.learning_rates.index(rate)
        scores = final.heads.scores(prepared.test.features)[0]
        require_converged(scores, rate)
        details: dict[str, Any] = {
            "learning_rate": rate,
            "crops": CROPS_VERSION,
            "at_grid_edge": best in (0, len(accuracies) - 1),
            "val_accuracy": dict(zip(map(str, self.learning_rates), accuracies, strict=True)),
            **class_results(scores, prepared.test.labels, prepared.train.class_names),
        }
        return Predictions(scores, prepared.test.labels, details)

    def metrics(self, predictions: Predictions) -> dict[str, float]:
        """Return the accuracy in percent, under the name of the metric."""
        metric = METRICS[self.primary_metric]
        return {self.primary_metric: metric(predictions.scores, predictions.labels)}


STEPS = {
    "aircraft": 5_000,
    "birdsnap": 30_000,
    "caltech101": 5_000,
    "cars": 30_000,
    "cifar10": 30_000,
    "cifar100": 30_000,
    "dtd": 5_000,
    "flowers": 5_000,
    "food": 30_000,
    "pets": 5_000,
    "sun397": 30_000,  # the paper states no length; same as for the other large datasets
}
"""Optimizer steps per dataset (LORAC, section 6)."""

TASKS = {
    **{
        f"transfer_linear/{dataset}": LinearTransfer(dataset=dataset, steps=steps)
        for dataset, steps in STEPS.items()
    },
    "transfer_linear/places365": LinearTransfer(dataset="places365", epochs=100.0),
}
