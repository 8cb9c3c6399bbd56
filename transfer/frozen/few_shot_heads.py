"""Few-shot linear classifiers, trained at once for all trials and shots.

The P problems differ only in support set, initial weights and order of images. Their weights are
one tensor (P, L, C), and a step is a batched matrix product. Adam updates each weight separately,
so each classifier gets the same weights as in a separate training.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from transfer.frozen.feature_cache import Features
from transfer.frozen.network import device

WEIGHT_STD = 0.01
"""Standard deviation of the initial weights; biases start at 0 (MoCo's probe)."""


@dataclass(frozen=True)
class Problem:
    """One classifier to train."""

    support: Tensor
    """Indices (k * L,) of k images per class in the pool."""
    seed: int
    """Seed of the initial weights and of the order of the images."""


def draw_support(labels: Tensor, *, shots: int, num_classes: int, seed: int) -> Tensor:
    """Return random indices (shots * L,) of `shots` different images per class.

    labels (n,), with enough images of each class. With equal seeds, fewer shots are a subset of
    more shots.
    """
    generator = torch.Generator().manual_seed(seed)
    indices = []
    for label in range(num_classes):
        members = (labels == label).nonzero().flatten()
        indices.append(members[torch.randperm(len(members), generator=generator)[:shots]])
    return torch.cat(indices)


def train_together(
    pool: Features,
    problems: Sequence[Problem],
    *,
    num_classes: int,
    iterations: int,
    learning_rate: float,
    batch_size: int,
) -> tuple[Tensor, Tensor]:
    """Train P classifiers; return weights (P, L, C) and biases (P, L)."""
    target_device = device()
    features, labels = pool.features.to(target_device), pool.labels.to(target_device)
    shape, dtype = (num_classes, features.shape[1]), features.dtype
    generators = [torch.Generator().manual_seed(problem.seed) for problem in problems]
    initial_weights = [
        torch.randn(shape, generator=generator, dtype=dtype) for generator in generators
    ]
    weight = (WEIGHT_STD * torch.stack(initial_weights)).to(target_device).requires_grad_()
    bias = weight.new_zeros(len(problems), num_classes, requires_grad=True)
    optimizer = torch.optim.Adam([weight, bias], lr=learning_rate)
    num_indices = iterations * batch_size
    orders = torch.stack([_order(problem, num_indices) for problem in problems]).to(target_device)
    for step in range(iterations):
        rows = orders[:, step * batch_size : (step + 1) * batch_size]
        scores = torch.baddbmm(bias[:, None], features[rows], weight.transpose(1, 2))
        # summed over problems, so that the gradient of each depends only on its own mean loss
        losses = cross_entropy(
            scores.flatten(0, 1), labels[rows].flatten(), reduction="none"
        ).view_as(rows)
        optimizer.zero_grad(set_to_none=True)
        losses.mean(dim=1).sum().backward()
        optimizer.step()
    return weight.detach(), bias.detach()


def _order(problem: Problem, num_indices: int) -> Tensor:
    """Return indices for consecutive epochs over the support set.

    The support set is reshuffled in each epoch.
    """
    generator = torch.Generator().manual_seed(problem.seed + 1)
    num_epochs = -(-num_indices // len(problem.support))
    permutations = [
        torch.randperm(len(problem.support), generator=generator) for _ in range(num_epochs)
    ]
    return problem.support[torch.cat(permutations)[:num_indices]]
