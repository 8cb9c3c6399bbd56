"""Features like those of VOC 2007, for its SVMs."""

import torch

from transfer.frozen.feature_cache import Features
from transfer.tasks.voc_svm import VOCSVM, SVMData

# fmt: off
VOC_FREQUENCIES = (238, 243, 330, 181, 244, 186, 713, 337, 445, 141,
                   200, 421, 287, 245, 2008, 245, 96, 229, 261, 256)
# fmt: on
VOC_IMAGES = 5011
DIFFICULT_SHARE = 0.01
LATENT = 96
"""Dimensions of the latent space that images differ in.

With fewer, classes overlap more.
"""


def synthetic_voc(num_images: int, dim: int, num_classes: int) -> SVMData:
    """Return features after a ReLU, mostly zeros, with the class frequencies of VOC 2007.

    num_images: of trainval, and as many of test. Each class is a direction in a latent space of
    decreasing variance, with a random strength per image. Features are (n, C). Labels (n, L) are 1,
    -1, or 0 for difficult.
    """
    draw = torch.Generator().manual_seed(0)
    total = 2 * num_images
    frequency = torch.tensor(VOC_FREQUENCIES).repeat(-(-num_classes // 20)) / VOC_IMAGES
    chance = torch.rand(total, num_classes, generator=draw)
    output = chance < frequency[:num_classes]
    spread = torch.arange(1, LATENT + 1).float().rsqrt()
    directions = torch.randn(num_classes, LATENT, generator=draw) * spread
    strength = 0.3 + torch.rand(total, num_classes, generator=draw)
    noise = torch.randn(total, LATENT, generator=draw) * spread
    content = 0.65 * (output * strength) @ directions + noise
    mixing = torch.randn(LATENT, dim, generator=draw) / LATENT**0.5
    grain = 0.02 * torch.randn(total, dim, generator=draw)
    gain = torch.randn(dim, generator=draw).mul(0.7).exp()
    features = gain * (content @ mixing + grain - 0.02).relu()
    labels = torch.where(output, 1, -1).to(torch.int8)
    labels[torch.rand(labels.shape, generator=draw) < DIFFICULT_SHARE] = 0
    return VOCSVM(min_classes=1).select_classes(
        Features(features[:num_images], labels[:num_images]),
        Features(features[num_images:], labels[num_images:]),
        tuple(f"class {index}" for index in range(num_classes)),
    )
