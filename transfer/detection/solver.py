"""SGD as detectron2 sets it up for detectors: what decays, and the learning rate of a step."""

from collections import defaultdict

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import Parameter

from transfer.detection.recipe import Recipe
from transfer.detection.sample import Detector

NORMS = (_BatchNorm, nn.GroupNorm, nn.LayerNorm)


def sgd(detector: Detector, recipe: Recipe) -> torch.optim.SGD:
    """Norm layers do not decay, biases do; with lr_mult the RPN learns at a share of the rate.

    A group's "rate_factor" is that share; `set_rate` keeps it.
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
    )


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give each group its share of a learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate_factor"]


def learning_rate(recipe: Recipe, iteration: int) -> float:
    """Of the step that follows `iteration` finished ones: a tenth from each milestone on.

    The warm-up rises linearly to the value that the milestones give at its end.
    """
    warmup = recipe.warmup_iterations
    end = recipe.learning_rate * _decay(recipe, max(iteration, warmup))
    if iteration >= warmup:
        return end
    start = recipe.learning_rate * recipe.warmup_factor
    return start + (end - start) * iteration / warmup


def _decay(recipe: Recipe, iteration: int) -> float:
    return float(0.1 ** sum(iteration >= milestone for milestone in recipe.milestones))
