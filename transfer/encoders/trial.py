"""Tries another network than a ResNet on fixed images: the image alone must determine its features.

Dropout in a forward function, batch norm without running statistics, or a reference to the first
image of a batch would make the result of a task depend on chance or on the size of its batches.
"""

import torch
from torch import Tensor, nn

from transfer.encoders.architectures import BackboneError
from transfer.encoders.proof import check_response

ADVICE = "Make the network return the same features for an image in any batch, as in eval mode"


def forward(network: nn.Module, images: Tensor) -> Tensor:
    """Return features (n, C) of images (n, 3, H, W); BackboneError if the network fails on them."""
    try:
        features: Tensor = network(images)
    except BackboneError:
        raise
    except Exception as error:  # a user's forward function may raise any
        lines = str(error).strip().splitlines() or [""]  # TorchScript's reason is the last one
        raise BackboneError(
            f"the network fails on images {tuple(images.shape)}, float32 on the CPU: "
            f"{type(error).__name__}: {lines[-1]}"
        ) from error
    return features


def check_features(network: nn.Module, images: Tensor, features: Tensor) -> None:
    """Raise BackboneError unless each of two images alone determines its features (2, C).

    The features may not be equal or not finite, and chance, the other images of the batch and
    their order may not change them.
    """
    check_response(features.float())
    scale = features.abs().max().item()
    if difference := _difference(forward(network, images), features, scale):
        raise BackboneError(
            f"two passes over the same images give features that differ by {difference:.1e} of the "
            f"largest: dropout or another random layer is active in eval mode. {ADVICE}"
        )
    first, second = images.split(1)
    # noise of the same mean and variance would hardly change the statistics of a batch
    bright = 1 + second / 2
    for batch, row in ((first, 0), (torch.cat([bright, first]), 1)):
        try:
            other = forward(network, batch)[row : row + 1]
        except BackboneError as error:
            raise BackboneError(
                f"the features of an image depend on the number of images in its batch: {error}. "
                f"{_suspects(network)}{ADVICE}"
            ) from error
        if difference := _difference(other, features[:1], scale):
            raise BackboneError(
                f"the features of an image depend on the other images of its batch: they differ by "
                f"{difference:.1e} of the largest. {_suspects(network)}{ADVICE}"
            )


def _difference(features: Tensor, expected: Tensor, scale: float) -> float:
    """Return the largest difference in units of scale; 0 if it is rounding.

    A batch of another size may be summed in another order. This changes a sum of n terms by about
    eps sqrt(n) of their size, and the output of L layers by sqrt(L) times that. The square root of
    eps, half of the digits, leaves room for sums of 10,000 terms in 800 layers of float32.
    """
    eps = max(torch.finfo(dtype).eps for dtype in (expected.dtype, torch.float32))
    difference = (features.double() - expected.double()).abs().max().item() / scale
    return 0.0 if difference <= eps**0.5 else difference


def _suspects(network: nn.Module) -> str:
    """Return a sentence on norm layers that use the statistics of a batch; empty without any."""
    norms = [
        name.removeprefix("network.")
        for name, module in network.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm)
        if module.training or module.running_mean is None
    ]
    if not norms:
        return ""
    return f"Batch norm without running statistics, or in training mode: {', '.join(norms[:4])}. "
