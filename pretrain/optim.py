"""Optimizers and learning-rate schedules."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from pretrain.method import Method
from pretrain.recipes import Recipe


def scheduled_rate(recipe: Recipe[Any], progress: float, unit_start: float) -> float:
    """Return the learning rate of a step.

    progress: fraction of the run before this step. unit_start: fraction of the run before the epoch
    or step, whichever is the recipe's unit. The warm-up is linear and changes in every step.
    Afterwards, the schedule "cosine" decays by half a cosine to the final learning rate, and "step"
    divides by ten after each milestone (a fraction of the run).
    """
    warmup = recipe.warmup_epochs / (recipe.epochs or 1)
    if progress < warmup:
        return recipe.learning_rate * progress / warmup
    position = max(unit_start, warmup)
    if recipe.schedule == "step":
        return recipe.learning_rate * 0.1 ** sum(
            position >= milestone for milestone in recipe.milestones
        )
    cosine = 0.5 * (1 + math.cos(math.pi * ((position - warmup) / (1 - warmup))))
    amplitude = recipe.learning_rate - recipe.final_learning_rate
    return recipe.final_learning_rate + amplitude * cosine


def build_optimizer(network: nn.Module, recipe: Recipe[Any]) -> Optimizer:
    """Return a recipe's optimizer over all parameters that require gradients.

    SGD decays batch norm and biases as well, as in MoCo. LARS with exclude_vectors neither scales
    nor decays them, as in BYOL and MoCo v3; otherwise it does both, like apex's LARC in SwAV and
    LORAC. Parameters of the submodules in a method's `fixed_rate` form separate groups at the end.
    """
    excludes_vectors = recipe.optimizer == "lars" and recipe.exclude_vectors
    names = network.fixed_rate if isinstance(network, Method) else ()
    fixed = {weight for name in names for weight in network.get_submodule(name).parameters()}
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for weight in filter(lambda parameter: parameter.requires_grad, network.parameters()):
        kind = (weight in fixed, excludes_vectors and weight.ndim <= 1)
        groups.setdefault(kind, []).append(weight)
    parameter_groups: list[dict[str, Any]] = [
        {
            "params": weights,
            "fixed_rate": is_fixed,
            "adaptive": recipe.optimizer == "lars" and not is_plain,
            "weight_decay": 0.0 if is_plain else recipe.weight_decay,
        }
        for (is_fixed, is_plain), weights in sorted(groups.items())
    ]
    rate, momentum, trust = recipe.learning_rate, recipe.sgd_momentum, recipe.trust_coefficient
    if recipe.optimizer == "sgd":
        return SGD(parameter_groups, lr=rate, momentum=momentum, foreach=True)
    return LARS(parameter_groups, {"lr": rate, "momentum": momentum, "trust_coefficient": trust})


class LARS(Optimizer):
    """SGD with layer-wise scaled steps: You et al., arXiv:1708.03888.

    As in apex and timm, the local learning rate is trust * |w| / (|g| + decay * |w| + 1e-8).
    It is 1 if a weight or its gradient is zero. No step waits for the device.
    """

    # the code of SimCLR, BYOL and Barlow Twins divides by |g + decay * w|, which differs little
    # at decays of 1e-6; where a norm is zero, apex's LARC leaves out the decay as well

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step with the gradients in `.grad`."""
        for group in self.param_groups:
            weights, directions = step_directions(self, group)
            if weights:
                torch._foreach_add_(weights, directions, alpha=-group["lr"])


@torch.no_grad()
def step_directions(
    optimizer: Optimizer, group: dict[str, Any]
) -> tuple[list[Tensor], list[Tensor]]:
    """Update the momentum of a group; return weights and step directions.

    Weights without gradient are left out. Without "adaptive", these are the steps of SGD.
    """
    weights = [weight for weight in group["params"] if weight.grad is not None]
    if not weights:
        return [], []
    gradients: list[Tensor] = [weight.grad for weight in weights]
    scaled = torch._foreach_add(gradients, weights, alpha=group["weight_decay"])
    if group["adaptive"]:
        weight_norms = torch.stack(torch._foreach_norm(weights))
        gradient_norms = torch.stack(torch._foreach_norm(gradients))
        decayed = gradient_norms + group["weight_decay"] * weight_norms
        ratios = group["trust_coefficient"] * weight_norms / (decayed + 1e-8)
        ratios = torch.where((weight_norms > 0) & (gradient_norms > 0), ratios, 1.0)
        torch._foreach_mul_(scaled, list(ratios.unbind()))
    for weight in weights:
        if "momentum_buffer" not in optimizer.state[weight]:
            optimizer.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
    momenta = [optimizer.state[weight]["momentum_buffer"] for weight in weights]
    torch._foreach_mul_(momenta, group["momentum"])
    torch._foreach_add_(momenta, scaled)
    return weights, momenta
