"""Fine-tuning of the whole network on few labels: 1 % or 10 % of ImageNet-1k's.

CO2 Table 2 (Wei et al., ICLR 2021, arXiv:2010.02217, section 3.3) and LORAC Table III (Wang et al.,
arXiv:2108.02696, section 6.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from pretrain.running.errors import NotFiniteError
from pretrain.running.processes import this_process
from transfer.datasets.catalog import DATASETS
from transfer.datasets.expected import DataError
from transfer.datasets.folders import Folders
from transfer.datasets.splits import (
    SHARE_SEED,
    balanced_split,
    draw_balanced_share,
    share_per_class,
    write_list,
)
from transfer.encoders.encoder import Encoder
from transfer.finetuning.options import TrainingOptions, length_fraction
from transfer.finetuning.schedule import Precision
from transfer.frozen.classifier import class_results
from transfer.frozen.feature_cache import Predictions, open_images
from transfer.frozen.transforms import EvalTransform
from transfer.hours import IMAGE_GB
from transfer.metrics import top1
from transfer.tasks.task import CenterCrops, Prepared, too_few_of_a_class

if TYPE_CHECKING:
    from transfer.datasets.images import Images
    from transfer.finetuning.classification import FineTuning

LISTED_SHARE = {"in1k_1pct": 0.01, "in1k_10pct": 0.1}
"""Share of ImageNet-1k's training images in SimCLR's lists."""


@dataclass(frozen=True, kw_only=True)
class SemiSupervised(CenterCrops):
    """Training of all layers on few labelled images; the classifier has its own learning rate."""

    heading: ClassVar[str] = "Semi-supervised"
    trains_backbone: ClassVar[bool] = True
    kind: ClassVar[str] = "few labels"
    supported_options: ClassVar[frozenset[str]] = frozenset(
        {"image_memory_gb", "learning_rates", "precision"}
    )

    drawn_share: float = 0.0
    """Share of the training images that are drawn as labelled, equally from each class; 0: the data
    set is a published list, and all of it is labelled."""
    epochs: float
    """Passes over the labelled images."""
    head_rates: tuple[float, ...]
    """Learning rates of the classifier. Several are compared on held-out labelled images, and the
    best is used to train on all; a single one is not searched."""
    head_factor: float
    """Ratio of the classifier's learning rate to the backbone's."""
    milestones: tuple[float, ...] = (0.6, 0.8)
    """Fractions of the training after which both rates decay."""
    decay: float = 0.2
    """Factor of both rates at a milestone."""
    batch_size: int = 256
    sgd_momentum: float = 0.9
    weight_decay: float = 0.0
    held_out_share: float = 0.2
    """Share of each class's labelled images that is held out to compare rates."""
    precision: Precision = field(default="float32", metadata={"added": True})
    """Precision of the passes in training; bfloat16 and float16 by autocast."""

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol at the length of a schedule; smoke: one pass, two of the rates."""
        if schedule == "smoke":
            rates = self.head_rates[2:5:2] or self.head_rates
            return replace(self, epochs=1.0, batch_size=16, head_rates=rates)
        return replace(self, epochs=self.epochs * length_fraction(schedule))

    def with_options(self, options: TrainingOptions) -> Self:
        """Return the protocol with the user's rates and precision; both change the hash."""
        return replace(
            self,
            head_rates=options.learning_rates or self.head_rates,
            precision=options.precision or self.precision,
        )

    def with_data(self, data: Path) -> Self:
        """Return the protocol; where the published list is missing, with a draw of the same share.

        The protocol of a draw has a name of its own.
        """
        listed = self.dataset in LISTED_SHARE and not self.drawn_share
        if not listed or DATASETS[self.dataset].is_there(data):
            return self
        name, version = self.protocol.split("/")
        drawn = LISTED_SHARE[self.dataset]
        return replace(self, dataset="in1k", drawn_share=drawn, protocol=f"{name}-drawn/{version}")

    def unsupported_reason(self, backbone: Encoder) -> str:
        """Return why a backbone cannot be fine-tuned by this protocol; empty if it can."""
        if not backbone.is_resnet:
            return (
                f"{backbone.arch} is evaluated by tasks on frozen features; this protocol trains "
                "all layers with settings for ResNets"
            )
        return ""

    def units(self) -> dict[str, float]:
        """Return the images of the search for a rate and of the last training, and of the test."""
        counts = DATASETS[self.dataset].counts
        labelled = counts["trainval"] * (self.drawn_share or 1.0)
        searches = len(self.head_rates) if len(self.head_rates) > 1 else 0
        trained = self.epochs * labelled * (1 + searches * (1 - self.held_out_share))
        return {f"classifier {self.precision}": trained, "forward": counts["test"]}

    def memory_gb(self, num_processes: int) -> float:
        """Return a lower bound in GB on the GPU memory of a step on a ResNet-50: activations."""
        whole = IMAGE_GB["classifier"] * self.batch_size * (self.crop_px / 224) ** 2
        return whole if self.precision == "float32" else whole / 2

    def notes(self) -> list[str]:
        """Return how many rates are tried, and that labelled images are drawn without lists."""
        lines = []
        if len(self.head_rates) > 1:
            lines.append(
                f"few labels: {len(self.head_rates)} learning rates are tried on labelled images "
                "that are held out, then one training on all; in one process"
            )
        if self.dataset == "in1k":
            wanted = DATASETS[next(iter(LISTED_SHARE))].how_to_get
            lines.append(f"few labels: drawn by class, the published lists are not there. {wanted}")
        return lines

    def extracted(self) -> list[tuple[str, EvalTransform]]:
        """Return nothing: the whole network is trained."""
        return []

    def too_few_labels(self, images: Mapping[str, Images]) -> str:
        """Return which class has too few images to draw from or to hold one out; else nothing."""
        pool, num_rates, why = images["trainval"], len(self.head_rates), ""
        where, names = f"{self.dataset}, trainval", pool.class_names
        if 0 < self.drawn_share < 1:
            drawn = share_per_class(pool, self.drawn_share)
            purpose = f"{100 * self.drawn_share:g} % of the labels are {drawn} of each class"
            why = too_few_of_a_class(where, pool, names, drawn, purpose)
        if num_rates > 1 and not why:
            purpose = f"{num_rates} learning rates are compared on held-out images of each class"
            single = f"give a single rate: --learning-rates {self.head_rates[num_rates // 2]:g}"
            why = too_few_of_a_class(where, pool, names, 2, purpose, single)
        return why

    def prepare(self, backbone: Encoder, folders: Folders) -> Prepared:
        """Return the labelled images and the test images."""
        labelled = open_images(self.dataset, "trainval", folders)
        if why := self.too_few_labels({"trainval": labelled}):
            raise DataError(why)
        if self.drawn_share:
            labelled = draw_balanced_share(labelled, self.drawn_share)
        return Prepared(backbone, labelled, open_images(self.dataset, "test", folders))

    def run(self, prepared: Prepared, folders: Folders, seed: int) -> Predictions:
        """Search the rate if several are given, train on all labelled images, score test."""
        from transfer.frozen.crops import CROPS
        from transfer.frozen.kept_images import with_kept_pixels

        crops = self.epochs * len(self.head_rates) * len(prepared.train)
        labelled = with_kept_pixels(prepared.train, crops)
        prepared = replace(prepared, train=labelled)
        held_out = self.search(prepared, folders, seed) if len(self.head_rates) > 1 else {}
        rate = max(held_out, key=lambda rate: held_out[rate], default=self.head_rates[0])
        predictions = self.fine_tune(
            prepared.backbone, labelled, prepared.test, rate, "all", folders, seed
        )
        edges = (min(self.head_rates), max(self.head_rates))
        share = f"{100 * self.drawn_share:g} % of {self.dataset}"
        drawn = f"{share}, drawn alike from each class, seed {SHARE_SEED!r}"
        details = {
            **predictions.details,
            "held_out_top1": {f"{tried:g}": score for tried, score in held_out.items()},
            "diverged_rates": [
                rate for rate in self.head_rates if held_out and rate not in held_out
            ],
            "at_grid_edge": bool(held_out) and rate in edges,
            "labels": drawn if self.drawn_share else "published list",
            "crops": CROPS,
            "fingerprint_of_labelled": labelled.fingerprint,
        }
        if self.drawn_share and this_process().is_main:
            name = f"{self.dataset}-labelled-{100 * self.drawn_share:g}pct"
            details["list_of_labelled"] = write_list(folders.lists, name, {"labelled": labelled})
        return replace(predictions, details=details)

    def search(self, prepared: Prepared, folders: Folders, seed: int) -> dict[float, float]:
        """Return top-1 on held-out labelled images, by the classifier's rate."""
        from transfer.finetuning.schedule import search_learning_rates

        labelled = prepared.train
        least = int(np.bincount(labelled.label_array).min())
        # counted on the rarest class, so that every class keeps images to learn from
        held_out = max(1, round(self.held_out_share * least))
        learned, judged = (
            balanced_split(labelled, part, val_per_class=held_out) for part in ("train", "val")
        )

        def score(rate: float) -> float:
            name = f"rate-{rate:g}"
            found = self.fine_tune(prepared.backbone, learned, judged, rate, name, folders, seed)
            return top1(found.scores, found.labels)

        return search_learning_rates(self.head_rates, score, "top-1")

    def fine_tune(
        self,
        backbone: Encoder,
        learned: Images,
        judged: Images,
        rate: float,
        name: str,
        folders: Folders,
        seed: int,
    ) -> Predictions:
        """Fine-tune on `learned` with a rate of the classifier, and test on `judged`.

        NotFiniteError if the training diverges. name: that of the training.
        """
        from transfer.finetuning import classification as whole

        course = self.course(len(learned), rate)
        classifier, done = whole.fine_tune(
            backbone,
            learned,
            course,
            name=name,
            seed=seed,
            work=folders.work,
            process=this_process(),
        )
        scores = whole.predict_scores(classifier, judged, self.transform, backbone.input)
        if not bool(scores.isfinite().all()):
            raise NotFiniteError(f"{name}: the network trained at rate {rate:g} has diverged")
        details: dict[str, Any] = {
            "head_rate": rate,
            "backbone_rate": course.learning_rate,
            "precision": self.precision,
            "num_labelled": len(learned),
            "training": asdict(done),
            **class_results(scores, judged.labels, judged.class_names),
        }
        return Predictions(scores, judged.labels, details)

    def course(self, num_images: int, rate: float) -> FineTuning:
        """Return the settings of a training on `num_images` images."""
        from transfer.finetuning.classification import FineTuning

        steps = max(1, round(self.epochs * num_images / self.batch_size))
        return FineTuning(
            iterations=steps,
            milestones=tuple(round(part * steps) for part in self.milestones),
            decay=self.decay,
            learning_rate=rate / self.head_factor,
            batch_size=self.batch_size,
            precision=self.precision,
            head_factor=self.head_factor,
            sgd_momentum=self.sgd_momentum,
            weight_decay=self.weight_decay,
            crop_px=self.crop_px,
        )


LORAC_HEAD_RATES = (0.01, 0.0316, 0.1, 0.316, 1.0, 3.16, 10.0)
"""Seven learning rates of the classifier, log-spaced (LORAC, section 6.2)."""
LORAC_LENGTHS: dict[str, Any] = {
    "1pct": {"epochs": 30.0, "head_factor": 250.0},
    "10pct": {"epochs": 50.0, "head_factor": 20.0},
}
"""Length and ratio of rates, by share of labels (LORAC, section 6.2)."""

TASKS = {
    # CO2, section 3.3: for MoCo v2 and, with another weight decay, for MoCo v1
    **{
        f"in1k_semi_{part}@{reading}": SemiSupervised(
            dataset=f"in1k_{part}",
            protocol=protocol,
            epochs=20.0,
            head_rates=(1.0,),
            head_factor=100.0,
            weight_decay=weight_decay,
        )
        for part in ("1pct", "10pct")
        for reading, protocol, weight_decay in (
            ("co2", "co2-2021/1", 1e-4),
            ("co2-v1", "co2-2021-v1/1", 5e-4),
        )
    },
    **{
        f"in1k_semi_{part}@lorac": SemiSupervised(
            dataset=f"in1k_{part}",
            protocol="lorac-2021/1",
            head_rates=LORAC_HEAD_RATES,
            **lengths,
        )
        for part, lengths in LORAC_LENGTHS.items()
    },
    # LORAC's rates and lengths with batches of 64
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
