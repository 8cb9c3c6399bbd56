"""Answers of a detector to a fixed batch from fixed weights.

All anchors and all proposals are sampled, so that nothing is drawn. Weights are uniform numbers
that follow from the torchvision engine's names alone, and can be made on any machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from transfer.detection.detector import Detector, ResizedDetections, Sample
from transfer.detection.recipe import DetectorRecipe
from transfer.detection.torchvision_engine.proposals import RPN


def everything_sampled(recipe: DetectorRecipe) -> DetectorRecipe:
    """Return a narrow recipe for small images without random sampling.

    The stored answers depend on its numbers.
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
    """Return the recipe, with few regions for a c4 detector.

    Its layer4 is slow in float64.
    """
    return replace(recipe, rpn_proposals=(8, 8)) if recipe.neck == "c4" else recipe


def fill(tensors: Mapping[str, Tensor]) -> None:
    """Overwrite tensors with uniform random numbers, in the order of their names.

    Normally distributed numbers differ in the last bit between processors.
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
    """Return losses and gradients in training mode, and detections.

    The detections use the batch norm statistics of that batch.
    """
    settle_at_once(detector)
    losses = detector.train()(samples)
    torch.stack(list(losses.values())).sum().backward()
    gradients = {n: p.grad.clone() for n, p in detector.named_parameters() if p.grad is not None}
    detector.zero_grad()
    result = detector.eval().find([sample.image for sample in samples])
    losses = {name: loss.detach() for name, loss in losses.items()}
    return Answer(losses=losses, gradients=gradients, found=result)


def settle_at_once(network: nn.Module) -> None:
    """Set running statistics from the last batch.

    Random statistics would drown all signals.
    """
    for module in network.modules():
        if isinstance(module, _BatchNorm):
            module.momentum = 1.0


def in_double(network: nn.Module) -> None:
    """Convert convolutions to float64.

    Boxes, their scores and deltas stay float32 in both engines.

    detectron2's suppression accepts no other boxes, nor scores of another kind than these.
    """
    network.double()
    for name, module in network.named_modules():
        if isinstance(module, RPN):
            module.cells = module.cells.float()
        if name.endswith(("rpn_head", "box_predictor")):
            module.register_forward_hook(lambda module, inputs, output: _in_float32(output))


def _in_float32(output: Any) -> Any:
    """Return tensors, also in tuples and lists, in float32."""
    return output.float() if isinstance(output, Tensor) else tuple(map(_in_float32, output))
