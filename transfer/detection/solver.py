"""SGD with detectron2's parameter groups: weight decay and learning rate by parameter."""

from collections import defaultdict

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import Parameter

from transfer.detection.recipe import DetectorRecipe
from transfer.detection.sample import Detector
from transfer.finetuning.gpu import fused

NORMS = (_BatchNorm, nn.GroupNorm, nn.LayerNorm)


def sgd(detector: Detector, recipe: DetectorRecipe) -> torch.optim.SGD:
    """Return SGD in which norm layers have no weight decay, but biases do.

    If `rpn_gradient` is lr_mult, the RPN learns at a fraction of the rate. A group's "rate_factor"
    is that fraction; `finetuning.schedule.set_rate` multiplies by it.
    """
    groups: dict[tuple[float, float], list[Parameter]] = defaultdict(list)
    seen: set[Parameter] = set()
    for module_name, module in detector.network.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if not parameter.requires_grad or parameter in seen:
                continue
            seen.add(parameter)
            decay = 0.0 if isinstance(module, NORMS) else recipe.weight_decay
            full_name = f"{module_name}.{name}" if module_name else name
            slowed = recipe.rpn_gradient == "lr_mult" and detector.is_rpn(full_name)
            groups[decay, recipe.rpn_gradient_factor if slowed else 1.0].append(parameter)
    return torch.optim.SGD(
        [
            {"params": parameters, "weight_decay": decay, "rate_factor": factor}
            for (decay, factor), parameters in groups.items()
        ],
        lr=recipe.learning_rate,
        momentum=recipe.sgd_momentum,
        fused=fused(detector.network),
    )
