"""Shares of a network's heads in the correct predictions of a linear classifier.

Xiao et al., LooC, ICLR 2021, arXiv:2008.05659, section 4 and figure 4. The paper multiplies the
activations of each head by the classifier's weights and does not say more. Here the weights of the
image's class are taken relative to their mean over classes, so that what raises all scores alike
counts for nothing, and a head that speaks against the class has no share.
"""

import math

import torch
from torch import Tensor

from transfer.frozen.classifier import Heads, classifier_scores

NUM_BINS = 20
"""Bins of the histogram of a head's shares."""
NUM_EXAMPLES = 12
"""Images whose shares a record holds one by one."""


def image_shares(
    classifier: Heads, features: Tensor, labels: Tensor, num_heads: int
) -> tuple[Tensor, Tensor]:
    """Return the shares (m, num_heads) of each head in m images, and their indices (m,).

    classifier: R = 1. features (n, C), heads side by side; labels (n,). Only correctly classified
    images count, of which a head speaks for the class. The shares of an image are at least 0 and
    add up to 1.
    """
    weight = classifier.weight[0].float()
    relative = weight - weight.mean(dim=0)
    right = (classifier_scores(classifier, features).argmax(dim=1) == labels).nonzero()[:, 0]
    products = features[right] * relative[labels[right]]
    evidence = products.unflatten(1, (num_heads, -1)).sum(dim=2).clamp_min(0)
    known = evidence.sum(dim=1) > 0
    shares = evidence[known] / evidence[known].sum(dim=1, keepdim=True)
    return shares.double(), right[known]


def share_details(
    classifier: Heads, features: Tensor, labels: Tensor, num_heads: int
) -> dict[str, object]:
    """Return the details of `image_shares` for the record; empty if there are no shares.

    "head_shares" are the means over images, and "head_entropy_bits" is the entropy of these means,
    as the paper prints it; "image_entropy_bits" is the mean of the images' entropies.
    "head_is_largest" is the share of images in which a head has the largest share.
    "head_share_histograms" counts the images in bins of a head's share, "class_head_shares" holds
    the means over the images of each class (null without any), and "head_share_examples" the shares
    of a few images, by their index in the test split.
    """
    shares, indices = image_shares(classifier, features, labels, num_heads)
    if not len(shares):
        return {}
    means, classes = shares.mean(dim=0), labels[indices]
    edges = torch.linspace(0, 1, NUM_BINS + 1, dtype=torch.float64)
    of_class = [shares[classes == label] for label in range(classifier.weight.shape[1])]
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randperm(len(shares), generator=generator)[:NUM_EXAMPLES].sort().values.tolist()
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
            rows.mean(dim=0).tolist() if len(rows) else None for rows in of_class
        ],
        "head_share_examples": [
            {"index": int(indices[i]), "label": int(classes[i]), "shares": shares[i].tolist()}
            for i in drawn
        ],
        "num_images_with_shares": len(shares),
    }


def entropies_bits(shares: Tensor) -> Tensor:
    """Return the entropies (m,) of rows (m, h) that add up to 1, from 0 to log2 h."""
    return -torch.xlogy(shares, shares).sum(dim=1) / math.log(2)
