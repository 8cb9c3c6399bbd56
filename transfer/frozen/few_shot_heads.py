"""Linear classifiers on a few labeled images per class, trained at once for all trials and shots.

The P problems differ only in support set, initial weights and order of images. Their weights are
one tensor (P, L, C), and a step is a batched matrix product. Adam is elementwise, so each
classifier ends as if it were trained alone.
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
    """Positions (k * L,) in the pool of k images of each class."""
    seed: int
    """Seed of the initial weights and of the order of the images."""


def draw_support(labels: Tensor, *, shots: int, num_classes: int, seed: int) -> Tensor:
    """Return positions (shots * L,) of `shots` images of every class, drawn without replacement.

    labels (n,). For each class, fewer shots are the first of more shots. ValueError if a class has
    too few images.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = []
    for label in range(num_classes):
        members = (labels == label).nonzero().flatten()
        if len(members) < shots:
            raise ValueError(
                f"class {label} has {len(members)} images to draw {shots} from; ask for fewer shots"
            )
        drawn.append(members[torch.randperm(len(members), generator=generator)[:shots]])
    return torch.cat(drawn)


def train_together(
    pool: Features,
    problems: Sequence[Problem],
    *,
    num_classes: int,
    iterations: int,
    learning_rate: float,
    batch_size: int,
) -> tuple[Tensor, Tensor]:
    """Train P classifiers; return weights (P, L, C) and biases (P, L) on the training device."""
    where = device()
    features, labels = pool.features.to(where), pool.labels.to(where)
    shape, dtype = (num_classes, features.shape[1]), features.dtype
    starts = [torch.Generator().manual_seed(problem.seed) for problem in problems]
    weight = torch.stack(
        [WEIGHT_STD * torch.randn(shape, generator=start, dtype=dtype) for start in starts]
    )
    weight = weight.to(where).requires_grad_()
    bias = torch.zeros(len(problems), num_classes, dtype=dtype, device=where, requires_grad=True)
    optimizer = torch.optim.Adam([weight, bias], lr=learning_rate)
    wanted = iterations * batch_size
    orders = torch.stack([_order(problem, wanted) for problem in problems]).to(where)
    for step in range(iterations):
        rows = orders[:, step * batch_size : (step + 1) * batch_size]
        scores = torch.baddbmm(bias[:, None], features[rows], weight.transpose(1, 2))
        # a sum over the problems: each one's gradient is then that of its own mean loss
        losses = cross_entropy(
            scores.flatten(0, 1), labels[rows].flatten(), reduction="none"
        ).view_as(rows)
        optimizer.zero_grad(set_to_none=True)
        losses.mean(dim=1).sum().backward()
        optimizer.step()
    return weight.detach(), bias.detach()


def _order(problem: Problem, wanted: int) -> Tensor:
    """Return so many positions in a row: consecutive, reshuffled passes over the support."""
    generator = torch.Generator().manual_seed(problem.seed + 1)
    passes = -(-wanted // len(problem.support))
    turns = [torch.randperm(len(problem.support), generator=generator) for _ in range(passes)]
    return problem.support[torch.cat(turns)[:wanted]] if turns else problem.support[:0]
