"""Answers of a detector to a fixed batch from fixed weights, to compare two engines.

All anchors and all proposals are sampled, so that nothing is drawn. Weights are uniform numbers
that follow from the torchvision engine's names alone, and can be made on any machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from transfer.detection import recipe as recipes
from transfer.detection.recipe import DetectorRecipe
from transfer.detection.sample import Detector, ResizedDetections, Sample
from transfer.detection.torchvision_engine.proposals import RPN

NUM_CLASSES = 3

EPS = torch.finfo(torch.float32).eps
LOSS = 16 * EPS
"""Relative error of a loss: a sum of some thousand terms in float32."""
GRADIENT = 64 * EPS
"""Error in units of a tensor's norm or largest value: a loss sends float32, which norms enlarge."""
BOX_PX = 12 * 128 * EPS
"""Error of boxes and keypoints in px: a dozen operations in float32 on up to 128 px."""
SCORE = 8 * EPS
"""Error of scores and mask probabilities, which are at most 1: some operations in float32."""

UNSEEN = "keypoint_head.1.kps_score_lowres.bias"
"""Adds one number to a whole map, which the softmax over its places ignores: gradient 0."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One detector whose engines are compared."""

    recipe: DetectorRecipe
    arch: str = "resnet18"


def everything_sampled(recipe: DetectorRecipe) -> DetectorRecipe:
    """Narrow, for small images, and with neither anchors nor regions drawn.

    Its numbers are its own: stored answers hang on them.
    """
    pyramid = recipe.neck == "fpn"
    return replace(
        recipe,
        fpn_channels=32,
        box_head_conv_channels=32,
        box_head_fc_channels=64,
        mask_head_channels=32,
        keypoint_head_channels=32,
        anchor_sizes_px=(8, 16, 32, 64, 128) if pyramid else (16, 32, 64),
        rpn_samples=4096 if pyramid else 1024,
        rpn_positive_share=1.0,
        rpn_candidates=(200, 200),
        rpn_proposals=(24, 24),
        roi_samples=64,
        roi_positive_share=1.0,
    )


def lean(recipe: DetectorRecipe) -> DetectorRecipe:
    """Return the recipe with few regions in a c4 detector, whose layer4 is slow in float64."""
    return replace(recipe, rpn_proposals=(8, 8)) if recipe.neck == "c4" else recipe


FPN = everything_sampled(recipes.COCO_FPN)
CO2 = everything_sampled(recipes.VOC_C4)

CASES = {
    "fpn boxes": Case(recipe=FPN, arch="resnet50"),
    "fpn masks": Case(recipe=everything_sampled(recipes.COCO_FPN_MASKS), arch="resnet50"),
    "fpn keypoints": Case(recipe=everything_sampled(recipes.COCO_FPN_KEYPOINTS), arch="resnet50"),
    "4conv1fc boxes": Case(recipe=everything_sampled(recipes.COCO_4CONV1FC), arch="resnet50"),
    "4conv1fc masks": Case(recipe=everything_sampled(recipes.COCO_4CONV1FC_MASKS), arch="resnet50"),
    "c4": Case(recipe=everything_sampled(recipes.VOC_C4_NONE), arch="resnet50"),
    "c4 moco": Case(recipe=everything_sampled(recipes.VOC_C4_MOCO), arch="resnet50"),
    "c4 co2": Case(recipe=CO2, arch="resnet50"),
    "fpn boxes resnet18": Case(recipe=FPN),
    "c4 co2 resnet18": Case(recipe=CO2),
    "c4 co2 loss weight": Case(recipe=replace(CO2, rpn_gradient="loss_weight")),
    "keypoints all norms": Case(
        recipe=replace(
            everything_sampled(recipes.COCO_FPN_KEYPOINTS),
            normed=("fpn", "box_head", "keypoint_head", "rpn_head"),
            box_head_convs=2,
        )
    ),
}


def fill(tensors: Mapping[str, Tensor]) -> None:
    """Overwrite tensors, in the order of their names, with numbers of a useful size.

    Uniform ones: those of the normal distribution differ in the last bit between processors.
    """
    generator = torch.Generator().manual_seed(11)
    for name in sorted(tensors):
        tensor = tensors[name]
        if not tensor.is_floating_point():
            continue
        values = torch.rand(tensor.shape, generator=generator) * 2 - 1
        if tensor.ndim > 1:
            # unit variance stays; RPN deltas are not divided by weights as the box head's are
            fan_in = tensor[0].numel()
            values *= (3 / fan_in) ** 0.5 * (0.1 if name == "rpn.deltas.weight" else 1)
        elif name.endswith(("running_var", "weight")):
            values = 1 + 0.2 * values
        else:
            values *= 0.1
        tensor.copy_(values)


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """Answers of one pass with gradients, and of the detection after it."""

    losses: dict[str, Tensor]
    gradients: dict[str, Tensor]
    """Tensors under the network's own names."""
    found: list[ResizedDetections]


def answer(detector: Detector, samples: Sequence[Sample]) -> Answer:
    """Losses and gradients in training mode; detections with the statistics of that batch."""
    network = detector.network
    settle_at_once(network)
    network.train()
    losses = network(samples)
    torch.stack(list(losses.values())).sum().backward()
    gradients = {
        name: values.grad.clone()
        for name, values in network.named_parameters()
        if values.grad is not None
    }
    network.zero_grad()
    network.eval()
    found = detector.find([sample.image for sample in samples])
    return Answer(
        losses={name: loss.detach() for name, loss in losses.items()},
        gradients=gradients,
        found=found,
    )


def settle_at_once(network: nn.Module) -> None:
    """Running statistics become those of the last batch: random ones would drown all signals."""
    for module in network.modules():
        if isinstance(module, _BatchNorm):
            module.momentum = 1.0


def in_double(network: nn.Module) -> None:
    """Convolutions in float64; boxes, and their labels, stay float32 in both engines.

    detectron2's suppression accepts no other boxes, nor scores of another kind than these.
    """
    network.double()
    for name, module in network.named_modules():
        if isinstance(module, RPN):
            module.cells = module.cells.float()
        if name.endswith(("rpn_head", "box_predictor")):
            module.register_forward_hook(lambda module, inputs, output: _in_float32(output))


def _in_float32(output: Any) -> Any:
    """Tensors in tuples and lists."""
    return output.float() if isinstance(output, Tensor) else tuple(map(_in_float32, output))


def worst_loss(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """Largest relative difference; both must have the same losses."""
    assert one.keys() == other.keys()
    return max(
        (abs(one[name] - other[name]) / abs(one[name]).clamp_min(1e-12)).item() for name in one
    )


def worst_tensor(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """Largest difference within a tensor, relative to the largest value of that tensor.

    Under the torchvision engine's names; both must have the same.
    """
    assert one.keys() == other.keys()
    return max(
        ((one[name] - other[name]).abs().max() / one[name].abs().max().clamp_min(1e-12)).item()
        for name in one
        if name != UNSEEN or max(one[name].abs().max(), other[name].abs().max()) > 1e-6
    )


def worst_found(
    one: Sequence[ResizedDetections], other: Sequence[ResizedDetections]
) -> dict[str, float]:
    """Largest differences of boxes and keypoints (px), scores and masks; classes must be equal."""
    worst: dict[str, float] = {}
    for mine, theirs in zip(one, other, strict=True):
        assert torch.equal(mine.classes, theirs.classes)
        for name in ("boxes", "scores", "masks", "keypoints"):
            a, b = getattr(mine, name), getattr(theirs, name)
            assert (a is None) == (b is None)
            if a is not None and len(a):
                worst[name] = max(worst.get(name, 0.0), (a - b).abs().max().item())
    return worst
