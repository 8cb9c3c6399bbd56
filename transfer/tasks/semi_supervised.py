"""Fine-tuning of all layers with few labels of ImageNet-1k or CIFAR-10.

CO2 Table 2 (Wei et al., ICLR 2021, arXiv:2010.02217, section 3.3) and LORAC Table III (Wang et al.,
arXiv:2108.02696, section 6.2).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from pretrain.running.processes import tf32_convolutions, this_process
from transfer.datasets.catalog import DATASETS
from transfer.datasets.expected import DataError
from transfer.datasets.folders import Folders
from transfer.datasets.splits import (
    FRACTION_SEED,
    balanced_split,
    draw_balanced_fraction,
    images_per_class,
    write_list,
)
from transfer.encoders.encoder import Encoder
from transfer.finetuning.options import TrainingOptions, length_fraction
from transfer.finetuning.schedule import Precision
from transfer.frozen.classifier import class_results
from transfer.frozen.feature_cache import Predictions, open_images
from transfer.frozen.probe_training import settings_of
from transfer.frozen.transforms import EvalTransform
from transfer.hours import IMAGE_GB
from transfer.metrics import top1
from transfer.tasks.task import CenterCrops, TrainingData, too_few_of_a_class

if TYPE_CHECKING:
    from transfer.datasets.images import Images
    from transfer.finetuning.classification import FineTuning

LISTED_FRACTION = {"in1k_1pct": 0.01, "in1k_10pct": 0.1}
"""Fraction of ImageNet-1k's training images in SimCLR's lists."""


@dataclass(frozen=True, kw_only=True)
class SemiSupervised(CenterCrops):
    """Fine-tuning on few labeled images; the classifier has its own learning rate."""

    heading: ClassVar[str] = "Semi-supervised"
    trains_backbone: ClassVar[bool] = True
    kind: ClassVar[str] = "semi-supervised"
    supported_options: ClassVar[frozenset[str]] = frozenset(
        {"image_memory_gb", "learning_rates", "precision"}
    )

    drawn_share: float = 0.0
    """Fraction of the training images to draw as labeled images.

    Equally many are drawn from each class. 0: the dataset is a published list of labeled images."""
    epochs: float
    """Epochs over the labeled images."""
    head_rates: tuple[float, ...]
    """Learning rates of the classifier.

    Several are compared on held-out labeled images; the best one is used to train on all."""
    head_factor: float
    """Ratio of the classifier's learning rate to the backbone's."""
    milestones: tuple[float, ...] = (0.6, 0.8)
    """Fractions of the training after which both learning rates decay."""
    decay: float = 0.2
    """Factor of both learning rates at a milestone."""
    batch_size: int = 256
    sgd_momentum: float = 0.9
    weight_decay: float = 0.0
    held_out_share: float = 0.2
    """Fraction of the labeled images held out to compare learning rates."""
    precision: Precision = field(default="float32", metadata={"added": True})
    """Precision of training; bfloat16 and float16 use autocast."""

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol at the length of a schedule.

        smoke: one epoch and two of the learning rates.
        """
        if schedule == "smoke":
            rates = self.head_rates[2:5:2] or self.head_rates
            return replace(self, epochs=1.0, batch_size=16, head_rates=rates)
        return replace(self, epochs=self.epochs * length_fraction(schedule))

    def with_options(self, options: TrainingOptions) -> Self:
        """Return the protocol with the user's learning rates and precision.

        Both change the hash.
        """
        return replace(
            self,
            head_rates=options.learning_rates or self.head_rates,
            precision=options.precision or self.precision,
        )

    def with_data(self, data: Path) -> Self:
        """Return the protocol with drawn labels if the published list is missing.

        The fraction of labels is the same. The protocol with drawn images has another name.
        """
        is_listed = self.dataset in LISTED_FRACTION and not self.drawn_share
        if not is_listed or DATASETS[self.dataset].exists_in(data):
            return self
        name, version = self.protocol.split("/")
        fraction = LISTED_FRACTION[self.dataset]
        return replace(
            self, dataset="in1k", drawn_share=fraction, protocol=f"{name}-drawn/{version}"
        )

    def unsupported_reason(self, backbone: Encoder) -> str:
        """Return why a backbone is not supported; empty if it is."""
        if not backbone.is_resnet:
            return (
                f"{backbone.arch} is not supported: this protocol trains all layers with settings "
                "for ResNets. Evaluate it with tasks on frozen features"
            )
        return ""

    def units(self) -> dict[str, float]:
        """Return the number of images of all trainings and of the test."""
        counts = DATASETS[self.dataset].counts
        num_labeled = counts["trainval"] * (self.drawn_share or 1.0)
        searches = len(self.head_rates) if len(self.head_rates) > 1 else 0
        trained = self.epochs * num_labeled * (1 + searches * (1 - self.held_out_share))
        return {f"classifier {self.precision}": trained, "forward": counts["test"]}

    def memory_gb(self, num_processes: int) -> float:
        """Return a lower bound in GB on the memory of one step.

        It counts the activations of a ResNet-50.
        """
        memory = IMAGE_GB["classifier"] * self.batch_size * (self.crop_px / 224) ** 2
        return memory if self.precision == "float32" else memory / 2

    def notes(self) -> list[str]:
        """Return notes on the learning-rate search and on drawn labeled images."""
        lines = []
        if len(self.head_rates) > 1:
            lines.append(
                f"semi-supervised: {len(self.head_rates)} learning rates are compared on held-out "
                "labeled images, then one training uses all labeled images; in one process"
            )
        if self.dataset == "in1k":
            advice = DATASETS[next(iter(LISTED_FRACTION))].how_to_get
            lines.append(
                f"semi-supervised: drawn per class, since the published lists are missing. {advice}"
            )
        return lines

    def extracted(self) -> list[tuple[str, EvalTransform]]:
        """Return nothing: the whole network is trained."""
        return []

    def too_few_images_of_a_class(self, images: Images) -> str:
        """Return which class has too few images to draw or to hold some out; empty if none."""
        rates, minimum, purpose = self.head_rates, 0, ""
        if 0 < self.drawn_share < 1:
            minimum = images_per_class(images, self.drawn_share)
            purpose = f"{100 * self.drawn_share:g} % of the labels are {minimum} images per class"
        elif len(rates) > 1:
            minimum = 2
            purpose = (
                f"{len(rates)} learning rates are compared on held-out images of each class. A "
                f"single one needs none: --learning-rates {rates[len(rates) // 2]:g}"
            )
        split = f"{self.dataset}, trainval"
        if not minimum:
            return ""
        return too_few_of_a_class(split, images, images.class_names, minimum, purpose)

    def prepare(self, backbone: Encoder, folders: Folders) -> TrainingData:
        """Return the labeled images and the test images.

        Raises DataError if a class has too few images to draw, or none to hold out.
        """
        labeled = open_images(self.dataset, "trainval", folders)
        if reason := self.too_few_images_of_a_class(labeled):
            raise DataError(reason)
        if self.drawn_share:
            labeled = draw_balanced_fraction(labeled, self.drawn_share)
        return TrainingData(backbone, labeled, open_images(self.dataset, "test", folders))

    def run(self, prepared: TrainingData, folders: Folders, seed: int) -> Predictions:
        """Train on all labeled images and return the test scores.

        If several learning rates are given, they are compared first on held-out labeled images.
        """
        from transfer.finetuning.schedule import search_learning_rates
        from transfer.frozen.crops import CROPS_VERSION
        from transfer.frozen.image_cache import with_cached_pixels

        crops = self.epochs * len(self.head_rates) * len(prepared.train)
        labeled = with_cached_pixels(prepared.train, crops)
        held_out: dict[float, float] = {}
        if len(self.head_rates) > 1:
            # derived from the rarest class, so that every class keeps images to learn from
            smallest = int(np.bincount(labeled.label_array).min())
            num_held_out = max(1, round(self.held_out_share * smallest))
            train, val = (
                balanced_split(labeled, split, val_per_class=num_held_out)
                for split in ("train", "val")
            )
            parts = TrainingData(prepared.backbone, train, val)

            def score(rate: float) -> float:
                predictions = self.fine_tune(parts, folders, seed, rate, f"rate-{rate:g}")
                return top1(predictions.scores, predictions.labels)

            held_out = search_learning_rates(self.head_rates, score, "top-1")
        rate = max(held_out, key=lambda rate: held_out[rate], default=self.head_rates[0])
        data = replace(prepared, train=labeled)
        predictions = self.fine_tune(data, folders, seed, rate, "all")
        edges = (min(self.head_rates), max(self.head_rates))
        subset = f"{100 * self.drawn_share:g} % of {self.dataset}"
        draw_note = f"{subset}, drawn alike from each class, seed {FRACTION_SEED!r}"
        details = {
            **predictions.details,
            "held_out_top1": {f"{tried:g}": score for tried, score in held_out.items()},
            "diverged_rates": [
                rate for rate in self.head_rates if held_out and rate not in held_out
            ],
            "at_grid_edge": bool(held_out) and rate in edges,
            "labels": draw_note if self.drawn_share else "published list",
            "crops": CROPS_VERSION,
            "fingerprint_of_labelled": labeled.fingerprint,
        }
        if self.drawn_share and this_process().is_main:
            name = f"{self.dataset}-labelled-{100 * self.drawn_share:g}pct"
            details["list_of_labelled"] = write_list(folders.lists, name, {"labelled": labeled})
        return replace(predictions, details=details)

    def fine_tune(
        self, data: TrainingData, folders: Folders, seed: int, rate: float, name: str
    ) -> Predictions:
        """Fine-tune on the training images and return predictions for the test images.

        Raises NotFiniteError if the training diverges. rate: learning rate of the classifier. name:
        names the training's files.
        """
        from transfer.finetuning import classification
        from transfer.frozen.finite import require_converged

        settings = self.fine_tuning(len(data.train), rate)
        classifier, summary = classification.fine_tune(
            data.backbone,
            data.train,
            settings,
            name=name,
            seed=seed,
            work=folders.work,
            process=this_process(),
        )
        scores = classification.predict_scores(
            classifier, data.test, self.transform, data.backbone.input
        )
        require_converged(scores, rate)
        details: dict[str, Any] = {
            "head_rate": rate,
            "backbone_rate": settings.learning_rate,
            "precision": self.precision,
            "tf32_convolutions": self.precision == "float32" and tf32_convolutions(),
            "num_labelled": len(data.train),
            "training": summary,
            **class_results(scores, data.test.labels, data.test.class_names),
        }
        return Predictions(scores, data.test.labels, details)

    def fine_tuning(self, num_images: int, rate: float) -> FineTuning:
        """Return the settings for fine-tuning on `num_images` images."""
        from transfer.finetuning.classification import FineTuning

        num_steps = max(1, round(self.epochs * num_images / self.batch_size))
        milestones = tuple(round(milestone * num_steps) for milestone in self.milestones)
        return settings_of(
            FineTuning,
            self,
            iterations=num_steps,
            milestones=milestones,
            learning_rate=rate / self.head_factor,
        )


LORAC_HEAD_RATES = (0.01, 0.0316, 0.1, 0.316, 1.0, 3.16, 10.0)
"""Seven learning rates of the classifier, log-spaced (LORAC, section 6.2)."""
LORAC_LENGTHS: dict[str, Any] = {
    "1pct": {"epochs": 30.0, "head_factor": 250.0},
    "10pct": {"epochs": 50.0, "head_factor": 20.0},
}
"""Epochs and learning-rate ratio by fraction of labels (LORAC, section 6.2)."""

TASKS = {
    # CO2, section 3.3: for MoCo v2 and, with another weight decay, for MoCo v1
    **{
        f"in1k_semi_{fraction}@{reading}": SemiSupervised(
            dataset=f"in1k_{fraction}",
            protocol=protocol,
            epochs=20.0,
            head_rates=(1.0,),
            head_factor=100.0,
            weight_decay=weight_decay,
        )
        for fraction in ("1pct", "10pct")
        for reading, protocol, weight_decay in (
            ("co2", "co2-2021/1", 1e-4),
            ("co2-v1", "co2-2021-v1/1", 5e-4),
        )
    },
    **{
        f"in1k_semi_{fraction}@lorac": SemiSupervised(
            dataset=f"in1k_{fraction}",
            protocol="lorac-2021/1",
            head_rates=LORAC_HEAD_RATES,
            **lengths,
        )
        for fraction, lengths in LORAC_LENGTHS.items()
    },
    # LORAC's learning rates and epochs with batches of 64
    **{
        f"cifar10_semi_{percent}pct": SemiSupervised(
            dataset="cifar10",
            protocol="lorac-2021-cifar10/1",
            drawn_share=percent / 100,
            batch_size=64,
            crop_px=32,
            margin_px=0,
            head_rates=LORAC_HEAD_RATES,
            by_default=False,
            **LORAC_LENGTHS[lengths],
        )
        for percent, lengths in ((1, "1pct"), (10, "10pct"), (100, "10pct"))
    },
}
