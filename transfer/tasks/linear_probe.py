"""Linear probes with a fixed learning rate, as the papers set them.

A linear classifier is trained on random crops that pass through the frozen backbone (eval mode),
and scored on the test split after the last epoch. The protocol variant of each paper is a named
instance of one dataclass. All variants for a dataset are trained on one stream of random crops. One
probe predicts the rotation of an image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Never, Self

from transfer.datasets.catalog import DATASETS
from transfer.datasets.folders import Folders
from transfer.datasets.images import describe_image
from transfer.encoders.encoder import Encoder
from transfer.finetuning.options import length_fraction
from transfer.frozen.feature_cache import Features, Predictions, open_images
from transfer.frozen.probe_training import Decay, ProbeTraining, settings_of
from transfer.frozen.transforms import QUARTER_TURNS, EvalTransform
from transfer.metrics import top1
from transfer.tasks.task import CROPS, CenterCrops, TrainingData

if TYPE_CHECKING:
    from transfer.frozen.linear_heads import Pass


@dataclass(frozen=True, kw_only=True)
class Probe(CenterCrops):
    """Base class of the probes: settings of SGD on random crops."""

    heading: ClassVar[str] = "Linear probes"
    supported_options: ClassVar[frozenset[str]] = CROPS
    smoke_factor: ClassVar[int]
    """Factor by which the schedule "smoke" shortens the training."""

    learning_rate: float = 30.0
    epochs: float
    batch_size: int = 256
    sgd_momentum: float = 0.9
    weight_decay: float = 0.0

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol at the length of a schedule."""
        if schedule == "smoke":
            return replace(self, epochs=self.epochs / self.smoke_factor, batch_size=32)
        return replace(self, epochs=self.epochs * length_fraction(schedule))

    def units(self) -> dict[str, float]:
        """Return the number of training crops and of images for extraction."""
        crops = self.epochs * DATASETS[self.dataset].counts.get("trainval", 0)
        return {**super().units(), "crop": crops}


@dataclass(frozen=True, kw_only=True)
class LinearProbe(Probe):
    """Linear probe of one paper on one dataset."""

    smoke_factor: ClassVar[int] = 25

    epochs: float = 100.0
    decay: Decay = "cosine"
    """Learning-rate schedule: cosine, or times 0.1 at 60 and 80 %."""
    optimizer: Literal["sgd", "lars"] = field(default="sgd", metadata={"added": True})
    """Optimizer; lars uses a trust coefficient of 0.001 (SimSiam's probe)."""
    std: tuple[float, ...] | None = field(default=None, metadata={"added": True})
    """The paper's standard deviation of pixels, which is hashed and reported as a deviation.

    Images are normalized as the backbone's own, since it was trained so."""
    together: tuple[tuple[float, Decay], ...] = field(default=(), metadata={"hashed": False})
    """Learning rate and decay of all protocol variants that are trained together.

    They use the same batches. Empty for a single variant."""
    peers: tuple[LinearProbe, ...] = field(default=(), metadata={"hashed": False, "stored": False})
    """Probes on the same crops with other batches, optimizer or length."""

    @property
    def shared_pass(self) -> tuple[object, ...]:
        """Return the crop settings, which probes of one pass share."""
        return (self.dataset, "classes", self.crop_px, self.margin_px)

    @property
    def shared_settings(self) -> tuple[object, ...]:
        """Return the settings that protocol variants must share to be trained together."""
        sgd = (self.optimizer, self.sgd_momentum, self.weight_decay)
        return (*self.shared_pass, self.epochs, self.batch_size, *sgd, self.std)

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol at the length of a schedule."""
        peers = tuple(peer.at_schedule(schedule) for peer in self.peers)
        return replace(super().at_schedule(schedule), peers=peers)

    def for_backbone(self, backbone: Encoder) -> Self:
        """Return the protocol with the backbone's image size and pixel scale."""
        std = self.std and backbone.input.std
        peers = tuple(peer.for_backbone(backbone) for peer in self.peers)
        return replace(self, crop_px=backbone.input.size_px, std=std, peers=peers)

    def extracted(self) -> list[tuple[str, EvalTransform]]:
        """Return the test split, in center crops."""
        return [("test", self.transform)]

    def prepare(self, backbone: Encoder, folders: Folders) -> TrainingData:
        """Return the training images and the features of the test images."""
        train = open_images(self.dataset, "trainval", folders)
        (test,) = self.features(backbone, folders)
        return TrainingData(backbone, train, test)

    def passes(self, prepared: TrainingData, folders: Folders, seed: int) -> Iterator[Pass]:
        """Yield the training, with the other protocol variants on the same crops."""
        from transfer.frozen.linear_heads import Pass

        yield Pass(
            prepared.backbone,
            prepared.train,
            self.training(),
            seed,
            folders.cache / "passes",
            prepared.test,
            tuple(peer.training() for peer in self.peers),
        )

    def run(self, prepared: TrainingData, folders: Folders, seed: int) -> Predictions:
        """Train, and return the test scores of the final weights."""
        from transfer.frozen.linear_heads import train_and_score

        heads = self.heads
        head = heads.index((self.learning_rate, self.decay))
        (shared_pass,) = self.passes(prepared, folders, seed)
        predictions = train_and_score(shared_pass, prepared.test, folders.work, head)
        if len(heads) > 1:
            predictions.details["heads_of_the_training"] = [list(head) for head in heads]
        if examples := predictions.details.get("head_share_examples"):
            images = open_images(self.dataset, "test", folders)
            for example in examples:
                example |= describe_image(images, example["index"])
        return predictions

    @property
    def heads(self) -> tuple[tuple[float, Decay], ...]:
        """Return learning rate and decay of each head in the training."""
        head = (self.learning_rate, self.decay)  # an ablation may change them
        return self.together if head in self.together else (head,)

    def training(self) -> ProbeTraining:
        """Return the training settings, with one head per protocol variant."""
        rates, decays = zip(*self.heads, strict=True)
        return settings_of(ProbeTraining, self, learning_rates=rates, decays=decays)


@dataclass(frozen=True, kw_only=True)
class RotationProbe(Probe):
    """Linear probe of four rotations on ImageNet-100.

    LooC, arXiv:2008.05659, section 4 and Table 1. It is trained on crops that are flipped and then
    rotated by a random multiple of 90 degrees, and tested on every test image in all four
    rotations. The paper states no settings for it; we use its ImageNet-100 settings.
    """

    primary_metric: ClassVar[str] = "acc"
    smoke_factor: ClassVar[int] = 50

    dataset: str = "in100"
    protocol: str = "looc-2020/1"
    epochs: float = 200.0

    @property
    def shared_pass(self) -> Self:
        """Return the task: only the same training of another backbone shares its crops."""
        return self

    def extracted(self) -> list[tuple[str, EvalTransform]]:
        """Return the test split in each rotation."""
        return [
            ("test", replace(self.transform, turns=quarters)) for quarters in range(QUARTER_TURNS)
        ]

    def prepare(self, backbone: Encoder, folders: Folders) -> TrainingData:
        """Return the training images and the features of all rotated test images.

        The label is the rotation; the rotations follow each other.
        """
        import torch

        features = [split.features for split in self.features(backbone, folders)]
        labels = torch.arange(QUARTER_TURNS).repeat_interleave(len(features[0]))
        train = open_images(self.dataset, "trainval", folders)
        return TrainingData(backbone, train, Features(torch.cat(features), labels))

    def passes(self, prepared: TrainingData, folders: Folders, seed: int) -> Iterator[Pass]:
        """Yield the training."""
        from transfer.frozen.linear_heads import Pass

        rates = (self.learning_rate,)
        training = settings_of(
            ProbeTraining, self, learning_rates=rates, decays=("step",), labels="rotations"
        )
        yield Pass(prepared.backbone, prepared.train, training, seed, folders.work, prepared.test)

    def run(self, prepared: TrainingData, folders: Folders, seed: int) -> Predictions:
        """Train, and return the test scores of the final weights."""
        from transfer.frozen.linear_heads import train_and_score

        (training,) = self.passes(prepared, folders, seed)
        return train_and_score(training, prepared.test, folders.work)

    def metrics(self, predictions: Predictions) -> dict[str, float]:
        """Return accuracy in percent."""
        return {"acc": top1(predictions.scores, predictions.labels)}

    def gallery(self, predictions: Predictions, folders: Folders) -> list[Never]:
        """Return nothing: rotated images show little."""
        return []


def with_shared_passes(probes: Mapping[str, LinearProbe]) -> dict[str, LinearProbe]:
    """Set `together` and `peers` of probes that use the same crops."""
    groups: dict[object, list[LinearProbe]] = {}
    for probe in probes.values():
        groups.setdefault(probe.shared_settings, []).append(probe)

    def merged(probe: LinearProbe) -> LinearProbe:
        heads = {(item.learning_rate, item.decay): None for item in groups[probe.shared_settings]}
        return replace(probe, together=tuple(heads))

    def peers(probe: LinearProbe) -> tuple[LinearProbe, ...]:
        return tuple(
            merged(group[-1])
            for settings, group in groups.items()
            if group[0].shared_pass == probe.shared_pass and settings != probe.shared_settings
        )

    return {key: replace(merged(probe), peers=peers(probe)) for key, probe in probes.items()}


IN1K_PROBES = {
    "jcl": LinearProbe(dataset="in1k", protocol="jcl-2020/1", learning_rate=30.0, decay="step"),
    "co2": LinearProbe(dataset="in1k", protocol="co2-2021/1", learning_rate=15.0, decay="step"),
    "lorac": LinearProbe(dataset="in1k", protocol="lorac-2021/1", learning_rate=1.2),
    "uniclr": LinearProbe(
        dataset="in1k",
        protocol="uniclr-2022/1",
        learning_rate=0.02 * 1024 / 256,  # scaled linearly, as in SimSiam
        epochs=90.0,
        batch_size=1024,
        optimizer="lars",
    ),
    "moco": LinearProbe(dataset="in1k", protocol="moco-2020/1", learning_rate=30.0, decay="step"),
}
"""Linear probes on ImageNet-1k.

JCL, section 4.2; CO2, appendix A.2; LORAC (Wang et al.), section 6.1; UniCLR, section 4; MoCo."""

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
"""Settings of UniCLR's CIFAR probes (section 4.1), tested on whole images."""

PROBES = with_shared_passes(
    {
        **{f"in1k_linear@{variant}": probe for variant, probe in IN1K_PROBES.items()},
        # UniCLR's learning rate may be too low, scaled or not, so we also report this one
        "in1k_linear@uniclr-0.4": replace(
            IN1K_PROBES["uniclr"], protocol="uniclr-2022-0.4/1", learning_rate=0.4
        ),
        "in100_linear@jcl": LinearProbe(
            dataset="in100", protocol="jcl-2020/1", learning_rate=10.0, decay="step"
        ),
        # the probe of CO2's ablations (Figure 2, label smoothing), with CO2's ImageNet-1k settings
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
    # DINO's eval_linear.py (Caron et al., ICCV 2021): 0.001 * batch / 256; use --pool cls-of-last-4
    # for a ViT-S. The authors searched the learning rate for each checkpoint and do not print it,
    # and their cosine schedule changes per epoch, not per step
    "in1k_linear@dino": LinearProbe(
        dataset="in1k",
        protocol="dino-2021/1",
        learning_rate=0.004,
        batch_size=1024,
        by_default=False,
    ),
}

TASKS: dict[str, LinearProbe | RotationProbe] = {**PROBES, "rotation4_linear": RotationProbe()}
