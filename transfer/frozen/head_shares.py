"""Contributions of a network's heads to correct predictions of a linear classifier.

Xiao et al., LooC, ICLR 2021, arXiv:2008.05659, section 4 and figure 4. The paper multiplies the
activations of each head by the classifier's weights and gives no more details. We subtract the mean
over classes from the weights, since an offset of all scores changes no prediction, and set negative
contributions to zero.
"""

import math

import torch
from torch import Tensor

from transfer.frozen.classifier import Heads

NUM_BINS = 20
"""Bins of the histogram of a head's contributions."""
NUM_EXAMPLES = 12
"""Number of images with contributions in the record."""


def image_shares(
    classifier: Heads, features: Tensor, labels: Tensor, num_heads: int
) -> tuple[Tensor, Tensor]:
    """Return contributions (m, num_heads) and image indices (m,).

    classifier: a single one (R = 1). features (n, C), concatenated over heads; labels (n,). Only
    correctly classified images with a positive contribution count. The contributions to an image
    are at least 0 and add up to 1.
    """
    weight = classifier.weight[0].float()
    relative = weight - weight.mean(dim=0)
    correct = (classifier.scores(features)[0].argmax(dim=1) == labels).nonzero()[:, 0]
    products = features[correct] * relative[labels[correct]]
    contribution = products.unflatten(1, (num_heads, -1)).sum(dim=2).clamp_min(0)
    has_evidence = contribution.sum(dim=1) > 0
    shares = contribution[has_evidence] / contribution[has_evidence].sum(dim=1, keepdim=True)
    return shares.double(), correct[has_evidence]


def share_details(
    classifier: Heads, features: Tensor, labels: Tensor, num_heads: int
) -> dict[str, object]:
    """Return details of the contributions for the record.

    Empty if no image has contributions.

    head_shares: means over images.
    head_entropy_bits: entropy of these means, as in the paper.
    image_entropy_bits: mean entropy of the images.
    head_is_largest: fraction of the images in which a head contributes most.
    head_share_histograms: histograms over images.
    class_head_shares: means over the images of each class (null without images).
    head_share_examples: contributions for a few images, with their index in the tested features.
    """
    shares, indices = image_shares(classifier, features, labels, num_heads)
    if not len(shares):
        return {}
    means, classes = shares.mean(dim=0), labels[indices]
    edges = torch.linspace(0, 1, NUM_BINS + 1, dtype=torch.float64)
    by_class = [shares[classes == label] for label in range(classifier.weight.shape[1])]
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(shares), generator=generator)
    examples = sorted(order[:NUM_EXAMPLES].tolist())
    return {
        "head_shares": means.tolist(),
        "head_entropy_bits": float(entropies_bits(means[None])),
        "image_entropy_bits": float(entropies_bits(shares).mean()),
        "head_is_largest": [
            float((shares.argmax(dim=1) == head).double().mean()) for head in range(num_heads)
        ],
        "head_share_histograms": {
            "edges": edges.tolist(),
            "counts": [
                [int(count) for count in torch.histogram(column, edges).hist]
                for column in shares.T.contiguous()
            ],
        },
        "class_head_shares": [
            rows.mean(dim=0).tolist() if len(rows) else None for rows in by_class
        ],
        "head_share_examples": [
            {"index": int(indices[i]), "label": int(classes[i]), "shares": shares[i].tolist()}
            for i in examples
        ],
        "num_images_with_shares": len(shares),
    }


def entropies_bits(shares: Tensor) -> Tensor:
    """Return the entropies (m,) in bits of distributions (m, h)."""
    return -torch.xlogy(shares, shares).sum(dim=1) / math.log(2)
