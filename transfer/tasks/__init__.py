"""One protocol per file; TASKS is the whole list.

linear_transfer.py  twelve data sets, learning rate chosen on val (LORAC Table II)
linear_probe.py     linear classifiers with a fixed learning rate (all five papers, MoCo)
rotation.py         which way up an image is (LooC Table 1)
semi_supervised.py  the whole network, on a share of the labels (CO2 Table 2, LORAC Table III)
knn.py              weighted nearest neighbors (UniCLR Figure 2)
low_shot_knn.py     the same with a bank of a few labelled images
few_shot.py         linear classifiers on a few images per class (LooC Tables 2, 4, 5)
objectnet.py        the ImageNet-100 classifier on ObjectNet (LooC Table 3)
corruptions.py      the ImageNet-100 classifier on ImageNet-C (LooC Tables 3, 4, 5)
voc_svm.py          VOC 2007 classification with linear SVMs (CO2 Table 3)
detection.py        COCO detection, masks and keypoints, VOC detection (JCL Table 2, CO2 Table 3)
segmentation.py     VOC 2012 segmentation (CO2 Table 3)

A key is the id of the papers' tables; where papers read a task differently, "@reading" follows.
"""

from dataclasses import replace
from typing import Any, Protocol, Self

from transfer.backbone import Backbone
from transfer.detection import recipe
from transfer.folders import Folders
from transfer.segmentation.recipe import VOC_FCN, VOC_FCN_MOCO
from transfer.tasks.corruptions import CorruptionEval
from transfer.tasks.detection import Detection
from transfer.tasks.few_shot import FewShot
from transfer.tasks.knn import KNN
from transfer.tasks.linear_probe import LinearProbe, trained_together
from transfer.tasks.linear_transfer import LinearTransfer
from transfer.tasks.low_shot_knn import LowShotKNN
from transfer.tasks.objectnet import ObjectNetEval
from transfer.tasks.rotation import RotationProbe
from transfer.tasks.segmentation import Segmentation
from transfer.tasks.semi_supervised import SemiSupervised
from transfer.tasks.voc_svm import VOCSVM


class Task(Protocol):
    """What every protocol can do: three steps, and variants of itself."""

    @property
    def protocol(self) -> str:
        """Name and version of the protocol, such as "lorac-2021/1"."""

    @property
    def engine(self) -> str:
        """What does the computing."""

    def datasets(self) -> tuple[str, ...]:
        """Data sets it needs."""

    def at(self, schedule: str) -> Self:
        """The protocol at the length of a schedule."""

    def fitted(self, backbone: Backbone) -> Self:
        """The protocol with the image size of a backbone."""

    def prepare(self, backbone: Backbone, folders: Folders) -> Any:
        """Touch every file that the run needs."""

    def run(self, prepared: Any, folders: Folders, seed: int) -> Any:
        """Predictions on the test split; may be interrupted and called again."""

    def metrics(self, predictions: Any) -> dict[str, float]:
        """Percent, under the names of the paper tables."""

    def details(self, predictions: Any) -> dict[str, object]:
        """What the metrics alone do not tell."""


FineTuned = Detection | Segmentation
"""What trains the whole network: in a process per GPU, with options of its own, on some backbones
only."""

Dependent = ObjectNetEval | CorruptionEval
"""What uses the classifier that another task has trained on the same backbone."""

TRANSFER_STEPS = {
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
    "sun397": 30_000,  # the paper names no length; that of the other large sets
}
"""LORAC, section 6: optimizer steps per data set."""

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
"""ImageNet-1k: JCL, section 4.2; CO2, appendix A.2; LORAC, 6.1; UniCLR, 4; MoCo's own."""

LOOC_PROBE: dict[str, Any] = {
    "protocol": "looc-2020/1",
    "learning_rate": 30.0,
    "decay": "step",
}
"""LooC, appendix C."""

LORAC_HEAD_RATES = (0.01, 0.0316, 0.1, 0.316, 1.0, 3.16, 10.0)
"""LORAC, section 6: seven, log-spaced."""
LORAC_LENGTHS: dict[str, Any] = {
    "1pct": {"epochs": 30.0, "head_factor": 250.0},
    "10pct": {"epochs": 50.0, "head_factor": 20.0},
}
"""LORAC, section 6: by the share of labels."""
FEW_LABELS = {
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
}
"""CO2, section 3.3, for MoCo v2 and, with another weight decay, for MoCo v1; LORAC, section 6."""

CIFAR_PROBE: dict[str, Any] = {
    "protocol": "uniclr-2022/1",
    "learning_rate": 30.0,
    "crop_px": 32,
    "margin_px": 0,
}
"""UniCLR, section 4.1; the test image is taken whole."""

TASKS: dict[str, Task] = {
    **{
        f"transfer_linear/{key}": LinearTransfer(dataset=key, steps=steps)
        for key, steps in TRANSFER_STEPS.items()
    },
    "transfer_linear/places365": LinearTransfer(dataset="places365", epochs=100.0),
    "voc07_svm": VOCSVM(),
    "voc07_svm@11point": VOCSVM(protocol="co2-2021-11point/1", points="11"),
    **{f"in1k_linear@{reading}": probe for reading, probe in IN1K_PROBES.items()},
    # UniCLR's rate may be too low, scaled or not: this one is reported beside it
    "in1k_linear@uniclr-0.4": replace(
        IN1K_PROBES["uniclr"], protocol="uniclr-2022-0.4/1", learning_rate=0.4
    ),
    "in100_linear@jcl": LinearProbe(
        dataset="in100", protocol="jcl-2020/1", learning_rate=10.0, decay="step"
    ),
    # of its ablations (Figure 2, label smoothing); set as its ImageNet-1k probe
    "in100_linear@co2": LinearProbe(
        dataset="in100", protocol="co2-2021/1", learning_rate=15.0, decay="step"
    ),
    "in100_linear@lorac": LinearProbe(dataset="in100", protocol="lorac-2021/1", learning_rate=0.1),
    "in100_linear@lorac-moco": LinearProbe(
        dataset="in100", protocol="lorac-2021-moco/1", learning_rate=30.0, decay="step"
    ),
    "in100_linear@uniclr": LinearProbe(
        dataset="in100", protocol="uniclr-2022/1", learning_rate=30.0
    ),
    "in100_linear@looc": LinearProbe(dataset="in100", epochs=200.0, **LOOC_PROBE),
    "rotation4_linear": RotationProbe(),
    "inat1k_linear": LinearProbe(dataset="inat1k", epochs=100.0, **LOOC_PROBE),
    "cub200_linear": LinearProbe(dataset="cub200", epochs=200.0, **LOOC_PROBE),
    "cifar10_linear": LinearProbe(dataset="cifar10", **CIFAR_PROBE),
    "cifar100_linear": LinearProbe(dataset="cifar100", **CIFAR_PROBE),
    "cifar10_knn": KNN(dataset="cifar10", crop_px=32, margin_px=0),
    "cifar100_knn": KNN(dataset="cifar100", crop_px=32, margin_px=0),
    "in100_knn": KNN(dataset="in100"),
    "cifar10_lowshot_knn": LowShotKNN(dataset="cifar10", crop_px=32, margin_px=0),
    "cifar100_lowshot_knn": LowShotKNN(dataset="cifar100", crop_px=32, margin_px=0),
    "flowers102_fewshot": FewShot(dataset="flowers"),
    "objectnet13_eval": ObjectNetEval(),
    "imagenet_c100_eval": CorruptionEval(),
    **FEW_LABELS,
    "coco_det": Detection(dataset="coco17", protocol="jcl-2020/1", recipe=recipe.COCO_FPN),
    "coco_insseg": Detection(dataset="coco17", protocol="jcl-2020/1", recipe=recipe.COCO_FPN_MASKS),
    "coco_keypoint": Detection(
        dataset="coco17_keypoints", protocol="jcl-2020/1", recipe=recipe.COCO_FPN_KEYPOINTS
    ),
    "voc0712_det_c4": Detection(dataset="voc0712", protocol="co2-2021/1", recipe=recipe.VOC_C4),
    "voc12_seg_fcn": Segmentation(protocol="co2-2021/1", recipe=VOC_FCN),
}

FOUR_CONVS = "jcl-2020-4conv1fc/1"
C4_READINGS = {
    "moco": recipe.VOC_C4_MOCO,
    "none": recipe.VOC_C4_NONE,
    "lr_mult": replace(recipe.VOC_C4, rpn_gradient="lr_mult"),
    "loss_weight": replace(recipe.VOC_C4, rpn_gradient="loss_weight"),
}
"""Without CO2's norm layers, and other readings of its divided gradients."""

EXTRA: dict[str, Task] = {
    **{
        f"{key}_knn": KNN(dataset=key)
        for key in (*TRANSFER_STEPS, "places365", "in1k", "inat1k", "cub200")
        if f"{key}_knn" not in TASKS
    },
    "in100_lowshot_knn": LowShotKNN(dataset="in100"),
    "cifar10_fewshot": FewShot(dataset="cifar10", crop_px=32, margin_px=0),
    "imagenet_c100_eval@made": CorruptionEval(
        dataset="imagenet_c100_made", protocol="looc-2020-made/1"
    ),
    "in1k_linear@lorac-code": replace(
        IN1K_PROBES["lorac"],
        protocol="lorac-2021-code/1",
        learning_rate=6.0,
        decay="step",
        batch_size=2048,
        std=(0.228, 0.224, 0.225),
    ),
    **{
        f"cifar10_semi_{percent}pct": SemiSupervised(
            dataset="cifar10",
            protocol="lorac-2021-cifar10/1",
            drawn_share=percent / 100,
            batch_size=64,
            crop_px=32,
            margin_px=0,
            head_rates=LORAC_HEAD_RATES,
            **LORAC_LENGTHS[lengths],
        )
        for percent, lengths in ((1, "1pct"), (10, "10pct"), (100, "10pct"))
    },
    "coco_det@4conv1fc": Detection(
        dataset="coco17", protocol=FOUR_CONVS, recipe=recipe.COCO_4CONV1FC
    ),
    "coco_insseg@4conv1fc": Detection(
        dataset="coco17", protocol=FOUR_CONVS, recipe=recipe.COCO_4CONV1FC_MASKS
    ),
    **{
        f"voc0712_det_c4@{name}": Detection(
            dataset="voc0712", protocol=f"co2-2021-{name}/1", recipe=reading
        )
        for name, reading in C4_READINGS.items()
    },
    "voc12_seg_fcn@moco": Segmentation(protocol="moco-2020/1", recipe=VOC_FCN_MOCO),
}
"""Nearest neighbors and few shots on other sets, corruptions made here, the probe of LORAC's
released code, few labels of CIFAR-10 (LORAC's rates and lengths, batches of 64), and detectors and
segmentation as others set them: run when named, not by default."""


PROBES = trained_together(
    {key: task for key, task in (TASKS | EXTRA).items() if isinstance(task, LinearProbe)}
)
TASKS |= {key: probe for key, probe in PROBES.items() if key in TASKS}
EXTRA |= {key: probe for key, probe in PROBES.items() if key in EXTRA}


def reading_of(key: str) -> tuple[str, str]:
    """Task id and reading of a key: "in100_linear@jcl" is ("in100_linear", "jcl")."""
    task, _, reading = key.partition("@")
    return task, reading
