"""Semantic segmentation on VOC 2012, fine-tuning all layers.

CO2 Table 3 (Wei et al., ICLR 2021, arXiv:2010.02217, sections 3.4 and A.2), with MoCo's network.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pretrain.running.processes import this_process
from transfer.datasets.folders import Folders
from transfer.datasets.segmented import Segmented
from transfer.encoders.architectures import PLAIN, WIDE
from transfer.encoders.encoder import Encoder
from transfer.segmentation.recipe import VOC_FCN, VOC_FCN_MOCO, SegmentationRecipe
from transfer.tasks.labeled_pixels import PixelTraining
from transfer.tasks.recipe_training import fine_tuning_unsupported_reason

if TYPE_CHECKING:
    from transfer.finetuning.norms import Norm
    from transfer.finetuning.state import Training
    from transfer.finetuning.stream import Samples
    from transfer.segmentation.network import FCN
    from transfer.segmentation.samples import Sample


@dataclass(frozen=True, kw_only=True)
class Segmentation(PixelTraining[SegmentationRecipe]):
    """An FCN on the backbone; all layers are trained."""

    engine: ClassVar[str] = "mmsegmentation"
    kind: ClassVar[str] = "segmentation"
    assumption: ClassVar[str] = (
        "if a ResNet-50 trains on 20 crops of 513 px a second (assumed, not measured)"
    )
    mean_of_three: ClassVar[str] = "voc12_seg_fcn"

    def unsupported_reason(self, backbone: Encoder) -> str:
        """Return why a backbone is not supported; empty if it is."""
        if find_spec("mmseg") is None:
            return "it needs mmsegmentation: pip install 'ssl-benchmark[segmentation]'"
        if backbone.arch in WIDE:
            return f"mmsegmentation's ResNet is built as {', '.join(PLAIN)}, not {backbone.arch}"
        return fine_tuning_unsupported_reason(
            backbone, "layer4 would not have the protocol's stride of 16"
        )

    @property
    def work(self) -> str:
        """Return the kind of work in `hours`, without the precision."""
        return "voc12_seg_fcn"

    @property
    def relative_size(self) -> float:
        """Return the crop size relative to the one of `work`."""
        return self.recipe.crop_px / 513

    def build(self, backbone: Encoder, num_classes: int, norm: Norm, folders: Folders) -> FCN:
        """Return the network with the backbone's weights; torch draws the other weights."""
        from transfer.segmentation.network import build_network

        log = folders.work / f"mmengine-{this_process().rank}.log"
        network = build_network(
            self.recipe, arch=backbone.arch, num_classes=num_classes, norm=norm, log=log
        )
        network.load_backbone(backbone.state_dict)
        return network

    def samples(self, images: Segmented, seed: int) -> Samples[Sample]:
        """Return random crops of the images."""
        from transfer.segmentation.samples import training_samples

        return training_samples(images, self.recipe, seed)

    def training(self, network: FCN, recipe: SegmentationRecipe, folder: Path) -> Training:
        """Return the training of a network."""
        from transfer.segmentation.train import training

        return training(network, recipe, folder)


TASKS = {
    "voc12_seg_fcn": Segmentation(protocol="co2-2021/1", recipe=VOC_FCN),
    "voc12_seg_fcn@moco": Segmentation(
        protocol="moco-2020/1", recipe=VOC_FCN_MOCO, by_default=False
    ),
}
