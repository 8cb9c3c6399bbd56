"""Shares of a network's heads in the correct predictions of a linear classifier.

Xiao et al., LooC, ICLR 2021, arXiv:2008.05659, section 4 and figure 4. The paper multiplies the
activations of each head by the classifier's weights and does not say more. Here the weights of the
image's class are taken relative to their mean over classes, so that what raises all scores alike
counts for nothing, and a head that speaks against the class has no share.
"""

import torch
from torch import Tensor

from transfer.frozen.classifier import Heads

IMAGES_PER_PART = 4096


def head_shares(classifier: Heads, features: Tensor, labels: Tensor, num_heads: int) -> list[float]:
    """Return the mean share of each head (num_heads,) over correctly classified images.

    classifier: R = 1. features (n, C), heads side by side; labels (n,). The shares of an image are
    at least 0 and add up to 1; empty if no image is classified correctly.
    """
    weight = classifier.weight[0].float()
    relative = weight - weight.mean(dim=0)
    total, count = torch.zeros(num_heads, dtype=torch.float64), 0
    for part, classes in zip(
        features.split(IMAGES_PER_PART), labels.split(IMAGES_PER_PART), strict=True
    ):
        right = classifier.scores(part.float())[0].argmax(dim=1) == classes
        products = part[right].float() * relative[classes[right]]
        evidence = products.unflatten(1, (num_heads, -1)).sum(dim=2).clamp_min(0)
        known = evidence.sum(dim=1) > 0
        shares = evidence[known] / evidence[known].sum(dim=1, keepdim=True)
        total += shares.double().sum(dim=0)
        count += len(shares)
    return (total / count).tolist() if count else []


def entropy_bits(shares: list[float]) -> float:
    """Return the entropy of shares that add up to 1, from 0 to log2 of their number."""
    p = torch.tensor(shares, dtype=torch.float64)
    return float(-torch.xlogy(p, p).sum() / torch.log(torch.tensor(2.0, dtype=torch.float64)))
