"""Views of several sizes, each of which predicts the targets of the others.

Caron et al., NeurIPS 2020, arXiv:2006.09882, section 3.2.
"""

from itertools import groupby

import torch
from torch import Tensor, nn


def features_by_size(backbone: nn.Module, views: list[Tensor]) -> Tensor:
    """Return features (V n, C) of V views (n, 3, H, W), first view first.

    Neighboring views of one size pass together, and so share their batch statistics.
    """
    groups = [torch.cat(list(group)) for _, group in groupby(views, lambda view: view.shape[-1])]
    return torch.cat([backbone(images) for images in groups])


def cross_view_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy of each view's logits with the targets of every other view.

    logits (V, n, K); targets (A, n, K) of the first A views, rows that sum to 1. Mean over images
    and over pairs of different views, in nats; float32, also under autocast.
    """
    log_shares = logits.float().log_softmax(dim=2)
    # a sum of products: autocast would round a matrix product to bfloat16
    entropies = [
        -(target * log_shares[v]).sum(dim=1).mean()
        for a, target in enumerate(targets.float())
        for v in range(len(logits))
        if v != a
    ]
    return torch.stack(entropies).mean()
