"""The complete detector: backbone, neck, RPN and heads.

Faster R-CNN on a pyramid or on the layer3 map, with masks or keypoints: Ren et al., NeurIPS 2015,
arXiv:1506.01497; Lin et al., CVPR 2017, arXiv:1612.03144; He et al., ICCV 2017, arXiv:1703.06870.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.ops import FeaturePyramidNetwork
from torchvision.ops.feature_pyramid_network import LastLevelMaxPool

from transfer.detection.detector import Detector, ResizedDetections, Sample
from transfer.detection.recipe import C4_STRIDES_PX, PYRAMID_STRIDES_PX, DetectorRecipe
from transfer.detection.torchvision_engine import heads
from transfer.detection.torchvision_engine.proposals import RPN, Size
from transfer.detection.torchvision_engine.regions import (
    Regions,
    pool,
    sample_regions,
)
from transfer.encoders.architectures import FEATURE_DIM
from transfer.encoders.resnets import new_network
from transfer.finetuning.norms import Norm, norm_layer
from transfer.finetuning.verify import LAYERS, for_bytes, stage_maps

FINE_POOL = 14
"""Size of the RoIAlign output for the mask and keypoint heads."""


class RCNN(Detector):
    """Faster, Mask or Keypoint R-CNN.

    layer4 is a module of the backbone, even if it is the box head (c4).
    """

    rpn_prefix = "rpn."

    def __init__(self, recipe: DetectorRecipe, *, arch: str, num_classes: int, norm: Norm) -> None:
        super().__init__()
        self.recipe = recipe
        self.num_classes = num_classes
        self.is_pyramid = recipe.neck == "fpn"
        self.strides_px = PYRAMID_STRIDES_PX if self.is_pyramid else C4_STRIDES_PX
        mean, std = for_bytes(recipe.pixel_mean, recipe.pixel_std)
        self.pixel_mean: Tensor
        self.pixel_std: Tensor
        self.register_buffer("pixel_mean", mean, persistent=False)
        self.register_buffer("pixel_std", std, persistent=False)
        make_norm = norm_layer(norm)
        self.backbone = new_network(arch, norm_layer=make_norm)
        self.backbone.fc = nn.Identity()
        width = FEATURE_DIM[arch]
        extra_norm = make_norm(width) if recipe.extra_norms != "none" else nn.Identity()
        self.pyramid: nn.Module | None = None
        if self.is_pyramid:  # strides of 4 to 32 px, and 64 px for the RPN only
            self.pyramid = FeaturePyramidNetwork(
                [width // 8, width // 4, width // 2, width],
                recipe.fpn_channels,
                extra_blocks=LastLevelMaxPool(),
                norm_layer=make_norm if "fpn" in recipe.normed else None,
            )
        self.rpn = RPN(
            recipe,
            channels=recipe.fpn_channels if self.is_pyramid else width // 2,
            strides_px=self.strides_px,
            norm=make_norm,
        )
        if self.is_pyramid:
            self.box_head = heads.box_head(recipe, make_norm)
            num_features = recipe.box_head_fc_channels
        else:  # mean over the layer4 map (r, C, H, W) of each region, after the extra norm layer
            layers = {"norm": extra_norm, "mean": nn.AdaptiveAvgPool2d(1), "features": nn.Flatten()}
            self.box_head, num_features = nn.Sequential(OrderedDict(layers)), width
        self.box_predictor = heads.BoxPredictor(num_features, num_classes)
        self.mask_head = (
            heads.mask_head(recipe, num_classes, make_norm) if recipe.finds == "masks" else None
        )
        self.keypoint_head = (
            heads.keypoint_head(recipe, make_norm) if recipe.finds == "keypoints" else None
        )

    def forward(self, samples: Sequence[Sample]) -> dict[str, Tensor]:
        """Return the losses by name, in training mode."""
        samples = [sample.to(self.pixel_mean.device) for sample in samples]
        maps, sizes = self._maps([sample.image for sample in samples])
        losses: dict[str, Tensor]
        proposals, losses = self.rpn(maps, sizes, samples)
        regions = [
            sample_regions(boxes, sample, self.recipe, self.num_classes)
            for boxes, sample in zip(proposals, samples, strict=True)
        ]
        logits, deltas = self._boxes(maps, [image_regions.boxes for image_regions in regions])
        losses |= heads.box_losses(logits, deltas, regions, samples, self.recipe)
        positive = [
            image_regions.select(image_regions.classes < self.num_classes)
            for image_regions in regions
        ]
        if self.mask_head is not None:
            masks = self.mask_head(self._pool_fine(maps, positive))
            losses["loss_mask"] = heads.mask_loss(masks, positive, samples)
        if self.keypoint_head is not None:
            with_keypoints = [
                heads.select_regions_with_keypoints(image_regions, sample)
                for image_regions, sample in zip(positive, samples, strict=True)
            ]
            points = self.keypoint_head(self._pool_fine(maps, with_keypoints))
            losses["loss_keypoint"] = heads.keypoint_loss(points, with_keypoints, samples)
        return losses

    @torch.no_grad()
    def find(self, images: Sequence[Tensor]) -> list[ResizedDetections]:
        """Return the detections on uint8 images (3, H, W), in eval mode."""
        maps, sizes = self._maps(images)
        proposals, _ = self.rpn(maps, sizes, None)
        logits, deltas = self._boxes(maps, proposals)
        counts = [len(boxes) for boxes in proposals]
        results = [
            heads.select_detections(*result, self.recipe)
            for result in zip(
                logits.split(counts), deltas.split(counts), proposals, sizes, strict=True
            )
        ]
        counts = [len(result.boxes) for result in results]
        if self.mask_head is not None:
            masks = self.mask_head(self._pool_fine(maps, results)).float().split(counts)
            results = [
                replace(result, masks=heads.select_class(image_maps, result.classes).sigmoid())
                for result, image_maps in zip(results, masks, strict=True)
            ]
        if self.keypoint_head is not None:
            points = self.keypoint_head(self._pool_fine(maps, results)).split(counts)
            results = [
                replace(result, keypoints=heads.peaks(image_maps, result.boxes))
                for result, image_maps in zip(results, points, strict=True)
            ]
        return results

    @torch.no_grad()
    def feature_maps(self, images: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return the maps after each of LAYERS, in eval mode."""
        return stage_maps(self.backbone, self._batch(images)[0])

    def load_backbone(self, state_dict: Mapping[str, Tensor]) -> None:
        """Load a backbone with torchvision's names."""
        self.backbone.load_state_dict({**self.backbone.state_dict(), **state_dict})

    def _batch(self, images: Sequence[Tensor]) -> tuple[Tensor, list[Size]]:
        """Return normalized images, padded at right and bottom, and their sizes."""
        sizes = [(image.shape[1], image.shape[2]) for image in images]
        # a c4 batch is padded to the largest image only
        unit = 32 if self.is_pyramid else 1
        height, width = (-(-max(sides) // unit) * unit for sides in zip(*sizes, strict=True))
        padded = [
            F.pad(
                (image.to(self.pixel_mean.device, non_blocking=True) - self.pixel_mean)
                / self.pixel_std,
                (0, width - image.shape[2], 0, height - image.shape[1]),
            )
            for image in images
        ]
        return torch.stack(padded), sizes

    def _maps(self, images: Sequence[Tensor]) -> tuple[list[Tensor], list[Size]]:
        """Return the RPN's maps, one per stride, and image sizes."""
        batch, sizes = self._batch(images)
        if self.pyramid is None:
            return [stage_maps(self.backbone, batch, LAYERS[:3])["layer3"]], sizes
        return list(self.pyramid(stage_maps(self.backbone, batch)).values()), sizes

    def _boxes(self, maps: Sequence[Tensor], boxes: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return logits (r, L+1) and deltas (r, L, 4) of boxes."""
        # only the RPN uses the last pyramid level
        maps = maps[:4]
        pooled = pool(maps, boxes, self.strides_px[: len(maps)], self.recipe.box_pool)
        if self.pyramid is None:
            pooled = self.backbone.layer4(pooled)
        logits, deltas = self.box_predictor(self.box_head(pooled))
        return logits, deltas

    def _pool_fine(
        self, maps: Sequence[Tensor], regions: Sequence[Regions] | Sequence[ResizedDetections]
    ) -> Tensor:
        """Return maps (r, C, 14, 14) for the mask and keypoint heads."""
        return pool(
            maps[:4],
            [image_regions.boxes for image_regions in regions],
            self.strides_px[:4],
            FINE_POOL,
        )
