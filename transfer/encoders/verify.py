"""Verify a network's weights, and that only the image determines its features.

Each tensor is set once and is finite, and the features of two images differ. For a ResNet, the
features are checked when it is built, so that a plan needs no torchvision, whose import takes
seconds. Names and shapes are checked before; settings that tensors do not show are reported as
assumed.

For networks other than ResNets there are further checks, so that results do not depend on chance or
on the batch size. Possible causes are dropout in a forward function, batch norm without running
statistics, and a reference to the first image of a batch.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from transfer.encoders.architectures import BackboneError
from transfer.encoders.naming import brief

CASTABLE = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
MIN_RESPONSE = 8 * torch.finfo(torch.float32).eps
"""Minimum difference between two images' features, relative to the largest feature."""


def to_finite_float32(name: str, stored: Tensor) -> Tensor:
    """Return a float32 copy; raises BackboneError unless all values are finite."""
    if stored.dtype not in CASTABLE:
        raise BackboneError(f"{name} is {stored.dtype}; expected floating-point weights")
    tensor = stored.to(torch.float32).clone(memory_format=torch.contiguous_format)
    # testing the sum is fast: NaN and infinity propagate; if only it overflows, the count is 0
    if not tensor.sum().isfinite() and (num_bad := int((~tensor.isfinite()).sum())):
        raise BackboneError(
            f"{name} contains {num_bad} values that are NaN or infinite: use an earlier checkpoint"
        )
    return tensor


def fill(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load all weights into a network; meta tensors are replaced.

    Raises BackboneError for other names or shapes, or if the network changes a value when it loads
    it.
    """
    on_meta = any(tensor.is_meta for tensor in network.state_dict().values())
    try:
        network.load_state_dict(weights, assign=on_meta)
    except RuntimeError as error:
        raise BackboneError(f"{' '.join(str(error).split())}; export it again") from error
    loaded = network.state_dict()
    changed = [n for n, t in loaded.items() if not (t.is_meta or torch.equal(t, weights[n]))]
    if changed:
        raise BackboneError(f"the network changes {brief(changed)} when it loads them")


def check_response(features: Tensor) -> None:
    """Raise BackboneError unless features (2, C) are finite and differ."""
    if num_bad := int((~features.isfinite()).sum()):
        raise BackboneError(
            f"{num_bad} of {features.numel()} features on fixed images are not finite"
        )
    first, second = features
    if (first - second).abs().max() <= MIN_RESPONSE * features.abs().max():
        raise BackboneError(
            "the features do not depend on the image: the weights are zero or the training "
            "collapsed; use an earlier checkpoint"
        )


def fixed_images(size_px: int = 64) -> Tensor:
    """Return normalized noise (2, 3, size_px, size_px), equal at every call."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 3, size_px, size_px, generator=generator, dtype=torch.float32)


ADVICE = (
    "Make the network return the same features for an image in any batch, as in eval mode: with "
    "running statistics in each batch norm, and without dropout"
)


def forward(network: nn.Module, images: Tensor) -> Tensor:
    """Return features (n, C) of images (n, 3, H, W).

    Raises BackboneError if the network fails on them.
    """
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
    """Raise BackboneError unless each image alone determines its features.

    images: (2, 3, H, W). features: (2, C). The features must be finite and differ. They may not
    change by chance, with the other images of the batch or with their order.
    """
    check_response(features.float())
    scale = features.abs().max().item()
    first, second = images.split(1)
    # noise of the same mean and variance would hardly change the statistics of a batch
    bright = 1 + second / 2
    for batch, rows in ((images, [0, 1]), (first, [0]), (torch.cat([bright, first]), [1])):
        try:
            repeated = forward(network, batch)[rows]
            difference = _difference(repeated, features[: len(rows)], scale)
            reason = f"they differ by {difference:.1e} of the largest" if difference else ""
        except BackboneError as error:
            reason = str(error)
        if reason:
            raise BackboneError(
                f"the features of an image change from call to call, or depend on the other images "
                f"of its batch: {reason}. {ADVICE}"
            )


def _difference(features: Tensor, expected: Tensor, scale: float) -> float:
    """Return the largest difference in units of scale; 0 for rounding errors.

    A batch of another size may be summed in another order. This changes a sum of n terms by about
    eps sqrt(n) of their size, and the output of L layers by sqrt(L) times that. The tolerance
    sqrt(eps) allows sums of 10,000 terms in 800 layers of float32.
    """
    eps = max(torch.finfo(dtype).eps for dtype in (expected.dtype, torch.float32))
    difference = (features.double() - expected.double()).abs().max().item() / scale
    return 0.0 if difference <= eps**0.5 else difference
