"""Linear probes with a fixed learning rate, as the papers set them.

A linear classifier on random crops seen by the frozen backbone (eval mode), scored on the test
split after the last epoch. Each paper's reading is a named instance of one dataclass. All readings
of a data set are trained on one stream of random crops. One probe predicts an image's rotation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from transfer.datasets.catalog import DATASETS
from transfer.datasets.folders import Folders
from transfer.datasets.images import describe_image, thumbnail
from transfer.encoders.encoder import Encoder
from transfer.finetuning.options import length_fraction
from transfer.frozen.feature_cache import Features, Predictions, open_images
from transfer.frozen.probe_training import Decay, ProbeTraining
from transfer.frozen.transforms import QUARTER_TURNS, EvalTransform, rotate_quarters
from transfer.galleries.mistakes import turned_mistakes
from transfer.metrics import top1
from transfer.tasks.task import CROPS, CenterCrops, Prepared

if TYPE_CHECKING:
    from transfer.galleries.tile import Tile


@dataclass(frozen=True, kw_only=True)
class LinearProbe(CenterCrops):
    """Linear probe of one paper on one data set."""

    heading: ClassVar[str] = "Linear probes"
    supported_options: ClassVar[frozenset[str]] = CROPS

    learning_rate: float = 30.0
    epochs: float = 100.0
    batch_size: int = 256
    sgd_momentum: float = 0.9
    weight_decay: float = 0.0
    decay: Decay = "cosine"
    """Schedule of the learning rate: cosine to zero, or step, times 0.1 at 60 % and 80 %."""
    optimizer: Literal["sgd", "lars"] = field(default="sgd", metadata={"added": True})
    """Optimizer; lars has a trust coefficient of 0.001 (SimSiam's probe)."""
    std: tuple[float, ...] | None = field(default=None, metadata={"added": True})
    """Pixel standard deviation of the protocol; None: the backbone's."""
    together: tuple[tuple[float, Decay], ...] = field(default=(), metadata={"hashed": False})
    """Learning rate and decay of all readings that are trained with the same updates; empty for a
    single reading."""
    peers: tuple[LinearProbe, ...] = field(default=(), metadata={"hashed": False, "stored": False})
    """A probe for each other training on the same crops; batch, optimizer or length differ."""

    @property
    def shared_pass(self) -> tuple[object, ...]:
        """Return the settings that probes of one pass share: those of its crops."""
        return (self.dataset, "classes", self.crop_px, self.margin_px)

    @property
    def updates(self) -> LinearProbe:
        """Return the settings that readings share whose heads are rows of one matrix."""
        return replace(
            self,
            protocol="",
            learning_rate=0.0,
            decay="cosine",
            together=(),
            peers=(),
            by_default=True,
        )

    def at_schedule(self, schedule: str) -> LinearProbe:
        """Return the protocol at the length of a schedule."""
        peers = tuple(peer.at_schedule(schedule) for peer in self.peers)
        if schedule == "smoke":
            return replace(self, epochs=self.epochs / 25, batch_size=32, peers=peers)
        return replace(self, epochs=self.epochs * length_fraction(schedule), peers=peers)

    def for_backbone(self, backbone: Encoder) -> LinearProbe:
        """Return the protocol with the backbone's image size and pixel scale."""
        std = self.std and backbone.input.std
        peers = tuple(peer.for_backbone(backbone) for peer in self.peers)
        return replace(self, crop_px=backbone.input.size_px, std=std, peers=peers)

    def units(self) -> dict[str, float]:
        """Return the crops of the training, and the images of one extraction."""
        crops = self.epochs * DATASETS[self.dataset].counts.get("trainval", 0)
        return {**super().units(), "crop": crops}

    def extracted(self) -> list[tuple[str, EvalTransform]]:
        """Return the test images, in center crops."""
        return [("test", self.transform)]

    def prepare(self, backbone: Encoder, folders: Folders) -> Prepared:
        """Return the training images and the features of the test images."""
        train = open_images(self.dataset, "trainval", folders)
        (test,) = self.features(backbone, folders)
        return Prepared(backbone, train, test)

    def run(self, prepared: Prepared, folders: Folders, seed: int) -> Predictions:
        """Train, then return the scores of the test split with the last weights."""
        from transfer.frozen.linear_heads import train_and_score

        heads = self.heads
        predictions = train_and_score(
            prepared.backbone,
            prepared.train,
            self.training(),
            prepared.test,
            seed,
            folders.work,
            heads.index((self.learning_rate, self.decay)),
            folders.cache / "passes",
            tuple(peer.training() for peer in self.peers),
        )
        if len(heads) > 1:
            predictions.details["heads_of_the_training"] = [list(head) for head in heads]
        if examples := predictions.details.get("head_share_examples"):
            shown = open_images(self.dataset, "test", folders)
            for example in examples:
                example |= describe_image(shown, example["index"])
        return predictions

    @property
    def heads(self) -> tuple[tuple[float, Decay], ...]:
        """Return learning rate and decay of each head of the training."""
        own = (self.learning_rate, self.decay)  # an ablation's may be none of its reading's
        return self.together if own in self.together else (own,)

    def training(self) -> ProbeTraining:
        """Return the settings of the training loop, with a head for each reading."""
        rates, decays = zip(*self.heads, strict=True)
        return ProbeTraining.of(self, learning_rates=rates, decays=decays)


@dataclass(frozen=True, kw_only=True)
class RotationProbe(CenterCrops):
    """Linear probe of four rotations on ImageNet-100.

    LooC, arXiv:2008.05659, section 4 and Table 1. It learns from crops that are flipped and then
    rotated by a uniformly drawn multiple of 90 degrees, and is scored on every test image in all
    four rotations. The paper names no settings for it; those of its ImageNet-100 probe are used.
    """

    heading: ClassVar[str] = "Linear probes"
    supported_options: ClassVar[frozenset[str]] = CROPS
    primary_metric: ClassVar[str] = "acc"

    dataset: str = "in100"
    protocol: str = "looc-2020/1"
    learning_rate: float = 30.0
    epochs: float = 200.0
    batch_size: int = 256
    sgd_momentum: float = 0.9
    weight_decay: float = 0.0

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol at the length of a schedule."""
        if schedule == "smoke":
            return replace(self, epochs=self.epochs / 50, batch_size=32)
        return replace(self, epochs=self.epochs * length_fraction(schedule))

    def units(self) -> dict[str, float]:
        """Return the crops of the training, and the images of one extraction."""
        crops = self.epochs * DATASETS[self.dataset].counts.get("trainval", 0)
        return {**super().units(), "crop": crops}

    def extracted(self) -> list[tuple[str, EvalTransform]]:
        """Return the test images in each rotation."""
        return [("test", replace(self.transform, turns=turns)) for turns in range(QUARTER_TURNS)]

    def prepare(self, backbone: Encoder, folders: Folders) -> Prepared:
        """Return the training images and the features of the test images in each rotation.

        These are in one rotation after the other; the label is the rotation.
        """
        import torch

        positions = [turned.features for turned in self.features(backbone, folders)]
        labels = torch.arange(QUARTER_TURNS).repeat_interleave(len(positions[0]))
        train = open_images(self.dataset, "trainval", folders)
        return Prepared(backbone, train, Features(torch.cat(positions), labels))

    def run(self, prepared: Prepared, folders: Folders, seed: int) -> Predictions:
        """Train, then return the scores of the test split with the last weights."""
        from transfer.frozen.linear_heads import train_and_score

        training = ProbeTraining.of(
            self, learning_rates=(self.learning_rate,), decays=("step",), labels="rotations"
        )
        predictions = train_and_score(
            prepared.backbone, prepared.train, training, prepared.test, seed, folders.work
        )
        if examples := predictions.details.get("head_share_examples"):
            shown = open_images(self.dataset, "test", folders)
            for example in examples:
                turns, index = divmod(example["index"], len(shown))
                turned = rotate_quarters(shown[index][0], turns)
                example |= {
                    "index": index,
                    "class": f"turned by {90 * turns}°",
                    "file": shown.name(index),
                    "jpeg_base64": thumbnail(turned),
                }
        return predictions

    def metrics(self, predictions: Predictions) -> dict[str, float]:
        """Return accuracy in percent."""
        return {"acc": top1(predictions.scores, predictions.labels)}

    def gallery(self, predictions: Predictions, folders: Folders) -> list[Tile]:
        """Return turned test images about whose rotation the classifier is most wrong."""
        images = open_images(self.dataset, "test", folders)
        return turned_mistakes(images, predictions.scores, predictions.labels)


def with_shared_passes(probes: Mapping[str, LinearProbe]) -> dict[str, LinearProbe]:
    """Return the probes with `together` and `peers` set where they see the same crops."""
    heads: dict[LinearProbe, dict[tuple[float, Decay], None]] = {}
    for probe in probes.values():
        heads.setdefault(probe.updates, {})[(probe.learning_rate, probe.decay)] = None
    whole = {key: replace(one, together=tuple(heads[one.updates])) for key, one in probes.items()}
    trainings = {one.updates: one for one in whole.values()}
    return {
        key: replace(
            probe,
            peers=tuple(
                other
                for updates, other in trainings.items()
                if other.shared_pass == probe.shared_pass and updates != probe.updates
            ),
        )
        for key, probe in whole.items()
    }


IN1K_PROBES = {
    "jcl": LinearProbe(dataset="in1k", protocol="jcl-2020/1", learning_rate=30.0, decay="step"),
    "co2": LinearProbe(dataset="in1k", protocol="co2-2021/1", learning_rate=15.0, decay="step"),
    "lorac": LinearProbe(dataset="in1k", protocol="lorac-2021/1", learning_rate=1.2),
    "uniclr": LinearProbe(
        dataset="in1k",
        protocol="uniclr-2022/1",
        learning_rate=0.02 * 1024 / 256,  # scaled linearly, as SimSiam's
        epochs=90.0,
        batch_size=1024,
        optimizer="lars",
    ),
    "moco": LinearProbe(dataset="in1k", protocol="moco-2020/1", learning_rate=30.0, decay="step"),
}
"""Probes of ImageNet-1k: JCL, section 4.2; CO2, appendix A.2; LORAC (Wang et al.), section 6.1;
UniCLR, section 4; MoCo."""

LOOC_PROBE: dict[str, Any] = {
    "protocol": "looc-2020/1",
    "learning_rate": 30.0,
    "decay": "step",
}
"""Settings of LooC's probes (appendix C)."""

CIFAR_PROBE: dict[str, Any] = {
    "protocol": "uniclr-2022/1",
    "learning_rate": 30.0,
    "crop_px": 32,
    "margin_px": 0,
}
"""Settings of UniCLR's probes on CIFAR (section 4.1); the whole image is the test crop."""

PROBES = with_shared_passes(
    {
        **{f"in1k_linear@{reading}": probe for reading, probe in IN1K_PROBES.items()},
        # UniCLR's rate may be too low, scaled or not, so this one is reported, too
        "in1k_linear@uniclr-0.4": replace(
            IN1K_PROBES["uniclr"], protocol="uniclr-2022-0.4/1", learning_rate=0.4
        ),
        "in100_linear@jcl": LinearProbe(
            dataset="in100", protocol="jcl-2020/1", learning_rate=10.0, decay="step"
        ),
        # probe of CO2's ablations (Figure 2, label smoothing), with its ImageNet-1k settings
        "in100_linear@co2": LinearProbe(
            dataset="in100", protocol="co2-2021/1", learning_rate=15.0, decay="step"
        ),
        "in100_linear@lorac": LinearProbe(
            dataset="in100", protocol="lorac-2021/1", learning_rate=0.1
        ),
        "in100_linear@lorac-moco": LinearProbe(
            dataset="in100", protocol="lorac-2021-moco/1", learning_rate=30.0, decay="step"
        ),
        "in100_linear@uniclr": LinearProbe(
            dataset="in100", protocol="uniclr-2022/1", learning_rate=30.0
        ),
        "in100_linear@looc": LinearProbe(dataset="in100", epochs=200.0, **LOOC_PROBE),
        "inat1k_linear": LinearProbe(dataset="inat1k", epochs=100.0, **LOOC_PROBE),
        "cub200_linear": LinearProbe(dataset="cub200", epochs=200.0, **LOOC_PROBE),
        "cifar10_linear": LinearProbe(dataset="cifar10", **CIFAR_PROBE),
        "cifar100_linear": LinearProbe(dataset="cifar100", **CIFAR_PROBE),
        "in1k_linear@lorac-code": replace(
            IN1K_PROBES["lorac"],
            protocol="lorac-2021-code/1",
            learning_rate=6.0,
            decay="step",
            batch_size=2048,
            std=(0.228, 0.224, 0.225),
            by_default=False,
        ),
    }
) | {
    # the authors' linear_eval.py (Zheng et al., NeurIPS 2021)
    "in1k_linear@ressl": LinearProbe(
        dataset="in1k", protocol="ressl-2021/1", learning_rate=0.3, by_default=False
    ),
    # DINO's eval_linear.py (Caron et al., ICCV 2021): 0.001 * batch / 256; a ViT-S is read by
    # --pool cls-of-last-4. Its authors swept the rate for each checkpoint and print none, and
    # their cosine goes down by epochs, not by steps
    "in1k_linear@dino": LinearProbe(
        dataset="in1k",
        protocol="dino-2021/1",
        learning_rate=0.004,
        batch_size=1024,
        by_default=False,
    ),
}

TASKS: dict[str, LinearProbe | RotationProbe] = {**PROBES, "rotation4_linear": RotationProbe()}
