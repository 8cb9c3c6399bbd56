"""The region proposal network (RPN): boxes that may contain an object.

Faster R-CNN (Ren et al., NeurIPS 2015, arXiv:1506.01497).
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.ops import Conv2dNormActivation, batched_nms, box_iou, clip_boxes_to_image

from transfer.detection.detector import Sample, scale_gradient
from transfer.detection.recipe import DetectorRecipe
from transfer.detection.torchvision_engine.regions import (
    BACKGROUND,
    OBJECT,
    decode,
    encode,
    match,
    sample_positives_and_negatives,
)

UNWEIGHTED = (1.0, 1.0, 1.0, 1.0)

Size = tuple[int, int]
"""Height and width in px."""


class RPN(nn.Module):
    """Region proposal network with one head for the maps of all levels."""

    def __init__(
        self,
        recipe: DetectorRecipe,
        *,
        channels: int,
        strides_px: Sequence[int],
        norm: Callable[[int], nn.Module],
    ) -> None:
        super().__init__()
        self.recipe = recipe
        self.strides_px = tuple(strides_px)
        sizes = recipe.anchor_sizes_px
        levels = [(size,) for size in sizes] if recipe.neck == "fpn" else [sizes]
        cells = torch.stack([cell_anchors(level, recipe.anchor_ratios) for level in levels])
        self.cells: Tensor  # (levels, A, 4)
        self.register_buffer("cells", cells, persistent=False)
        # the norm layer that CO2 adds before the RPN
        self.input_norm = norm(channels) if recipe.extra_norms == "co2" else nn.Identity()
        # all levels share one norm layer; the last, smallest level dominates its running statistics
        head_norm = norm if "rpn_head" in recipe.normed else None
        self.convolution = Conv2dNormActivation(channels, channels, 3, norm_layer=head_norm)
        self.objectness = nn.Conv2d(channels, cells.shape[1], 1)
        self.deltas = nn.Conv2d(channels, 4 * cells.shape[1], 1)
        for layer in (self.convolution[0], self.objectness, self.deltas):
            nn.init.normal_(layer.weight, std=0.01)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(
        self, maps: Sequence[Tensor], sizes: Sequence[Size], samples: Sequence[Sample] | None
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Return proposals, best first, and the losses of the samples, if given.

        Proposals are (r_i, 4) per image. maps: one (n, C, H, W) per level; sizes: sizes of the n
        images.
        """
        logits, deltas = self._predictions(maps)
        anchors = [
            grid_anchors(cell, stride_px, features.shape[-2], features.shape[-1])
            for cell, stride_px, features in zip(self.cells, self.strides_px, maps, strict=True)
        ]
        losses = {} if samples is None else self._losses(logits, deltas, anchors, samples)
        with torch.no_grad():
            count = self.recipe.rpn_candidates[0 if self.training else 1]
            boxes, scores, levels = candidates(logits, deltas, anchors, count)
            return self._suppress(boxes, scores, levels, sizes), losses

    def _predictions(self, maps: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return logits (n, HWA) and deltas (n, HWA, 4) of each level."""
        logits, deltas = [], []
        for features in maps:
            if self.recipe.rpn_gradient == "scale_input":
                # scaled before the norm layer, so that its parameters have the full gradient
                features = scale_gradient(features, self.recipe.rpn_gradient_factor)
            hidden = self.convolution(self.input_norm(features))
            logits.append(self.objectness(hidden).permute(0, 2, 3, 1).flatten(1).float())
            level_deltas = self.deltas(hidden).unflatten(1, (-1, 4))
            deltas.append(level_deltas.permute(0, 3, 4, 1, 2).flatten(1, 3).float())
        return logits, deltas

    def _losses(
        self,
        logits: Sequence[Tensor],
        deltas: Sequence[Tensor],
        anchors: Sequence[Tensor],
        samples: Sequence[Sample],
    ) -> dict[str, Tensor]:
        """Return the losses over sampled anchors, divided by `rpn_samples` per image.

        The divisor is the same if an image has fewer anchors to sample.
        """
        recipe = self.recipe
        all_anchors = torch.cat(list(anchors))
        all_logits, all_deltas = torch.cat(list(logits), dim=1), torch.cat(list(deltas), dim=1)
        sampled_logits, labels, sampled_deltas, targets = [], [], [], []
        for i, sample in enumerate(samples):
            positives, negatives, boxes = _sample_anchors(all_anchors, sample, recipe)
            sampled_logits += [all_logits[i, positives], all_logits[i, negatives]]
            labels += [torch.ones_like(sampled_logits[-2]), torch.zeros_like(sampled_logits[-1])]
            sampled_deltas.append(all_deltas[i, positives])
            targets.append(encode(all_anchors[positives], boxes, UNWEIGHTED))
        classification = F.binary_cross_entropy_with_logits(
            torch.cat(sampled_logits), torch.cat(labels), reduction="sum"
        )
        localization = F.l1_loss(torch.cat(sampled_deltas), torch.cat(targets), reduction="sum")
        factor = recipe.rpn_gradient_factor if recipe.rpn_gradient == "loss_weight" else 1.0
        # detectron2's divisor, not the number of sampled anchors
        count = recipe.rpn_samples * len(samples)
        return {
            "loss_rpn_cls": classification / count * factor,
            "loss_rpn_loc": localization / count * factor,
        }

    def _suppress(
        self, boxes: Tensor, scores: Tensor, levels: Tensor, sizes: Sequence[Size]
    ) -> list[Tensor]:
        """Return the best proposals after NMS within each level.

        boxes (n, t, 4), scores (n, t), levels (t,). Raises FloatingPointError if one is not finite
        in training.
        """
        finite = boxes.isfinite().all(dim=2) & scores.isfinite()
        if self.training and not finite.all():
            raise FloatingPointError(
                f"{int((~finite).sum())} of {finite.numel()} proposals are not finite: the "
                f"training has diverged"
            )
        count = self.recipe.rpn_proposals[0 if self.training else 1]
        proposals = []
        for i, (height, width) in enumerate(sizes):
            clipped = clip_boxes_to_image(boxes[i], (height, width))
            # indices, since indexing with a mask waits for the device each time
            usable = (finite[i] & (clipped[:, 2:] > clipped[:, :2]).all(dim=1)).nonzero()[:, 0]
            clipped, score, level = clipped[usable], scores[i][usable], levels[usable]
            best = batched_nms(clipped, score, level, self.recipe.rpn_nms_iou)
            proposals.append(clipped[best[:count]])
        return proposals


def candidates(
    logits: Sequence[Tensor], deltas: Sequence[Tensor], anchors: Sequence[Tensor], count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best boxes of each level, their logits and levels.

    boxes (n, t, 4), logits (n, t), levels (t,). They are ranked by logits, since the probabilities
    of large logits are equal in float32.
    """
    boxes, scores, levels = [], [], []
    for level, (logit, delta, anchor) in enumerate(zip(logits, deltas, anchors, strict=True)):
        score, best = logit.topk(min(count, logit.shape[1]), dim=1)
        best_deltas = delta.gather(1, best[..., None].expand(-1, -1, 4))
        boxes.append(decode(anchor[best], best_deltas, UNWEIGHTED))
        scores.append(score)
        levels.append(torch.full_like(best[0], level))
    return torch.cat(boxes, dim=1), torch.cat(scores, dim=1), torch.cat(levels)


@torch.no_grad()
def _sample_anchors(
    anchors: Tensor, sample: Sample, recipe: DetectorRecipe
) -> tuple[Tensor, Tensor, Tensor]:
    """Sample positive and negative anchors; return indices and the positives' objects."""
    below, above = recipe.rpn_iou
    iou = box_iou(sample.boxes, anchors)
    objects, labels = match(iou, below=below, above=above, allow_low_quality_matches=True)
    positives, negatives = sample_positives_and_negatives(
        labels == OBJECT,
        labels == BACKGROUND,
        num_samples=recipe.rpn_samples,
        positive_share=recipe.rpn_positive_share,
    )
    return positives, negatives, sample.boxes[objects[positives]]


def cell_anchors(sizes_px: Sequence[float], ratios: Sequence[float]) -> Tensor:
    """Return anchors (A, 4) centered at 0.

    There is one per size and ratio (height / width). Their areas are the squared sizes. The order
    is size, then ratio.
    """
    sides = [
        (math.sqrt(size**2 / ratio), ratio * math.sqrt(size**2 / ratio))
        for size in sizes_px
        for ratio in ratios
    ]
    return torch.tensor([(-w / 2, -h / 2, w / 2, h / 2) for w, h in sides], dtype=torch.float32)


def grid_anchors(cell: Tensor, stride_px: int, height: int, width: int) -> Tensor:
    """Return anchors (H * W * A, 4): the cell at each position."""
    y, x = torch.meshgrid(
        torch.arange(height, device=cell.device) * stride_px,
        torch.arange(width, device=cell.device) * stride_px,
        indexing="ij",
    )
    centers = torch.stack([x, y, x, y], dim=-1).to(cell.dtype)
    return (centers.reshape(-1, 1, 4) + cell).reshape(-1, 4)
