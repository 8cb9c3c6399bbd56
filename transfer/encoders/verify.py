"""Verify a network's weights, and that only the image determines its features.

Each tensor is set once and is finite, and the features of two images differ. Names and shapes are
checked before; settings that tensors do not show are reported as assumed.

For networks other than ResNets there are further checks, so that results do not depend on chance or
on the batch size. Possible causes are dropout in a forward function, batch norm without running
statistics, and a reference to the first image of a batch.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from transfer.encoders.architectures import (
    SIZES,
    BackboneError,
    Stem,
    has_max_pool,
    is_large,
    network_and_heads,
)
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


def resnet_features(arch: str, stem: Stem, weights: Mapping[str, Tensor], images: Tensor) -> Tensor:
    """Return a ResNet's features (n, C) of images (n, 3, H, W), in eval mode.

    This needs no network of torchvision, whose import takes seconds.
    """
    name, num_heads = network_and_heads(arch)
    sizes = SIZES[name]

    def normalized(maps: Tensor, convolution: str, norm: str, stride: int) -> Tensor:
        kernel = weights[f"{convolution}.weight"]
        padding = 2 if (stem, convolution) == ("cifar-pad2", "conv1") else kernel.shape[-1] // 2
        groups = maps.shape[1] // kernel.shape[1]
        maps = functional.conv2d(maps, kernel, stride=stride, padding=padding, groups=groups)
        mean, variance = weights[f"{norm}.running_mean"], weights[f"{norm}.running_var"]
        scale, bias = weights[f"{norm}.weight"], weights[f"{norm}.bias"]
        return functional.batch_norm(maps, mean, variance, scale, bias)

    def block_maps(maps: Tensor, block: str, stride: int) -> Tensor:
        shortcut = maps
        for number, step in enumerate((1, stride, 1) if sizes.is_bottleneck else (stride, 1), 1):
            maps = maps if number == 1 else maps.relu()
            maps = normalized(maps, f"{block}.conv{number}", f"{block}.bn{number}", step)
        if f"{block}.downsample.0.weight" in weights:
            shortcut = normalized(
                shortcut, f"{block}.downsample.0", f"{block}.downsample.1", stride
            )
        return (maps + shortcut).relu()

    def layer_maps(maps: Tensor, layer: str) -> Tensor:
        for number in range(sizes.blocks[int(layer[5]) - 1]):
            stride = 1 if number or layer == "layer1" else 2
            maps = block_maps(maps, f"{layer}.{number}", stride)
        return maps

    maps = normalized(images, "conv1", "bn1", 2 if is_large(stem) else 1).relu()
    if has_max_pool(stem):
        maps = functional.max_pool2d(maps, kernel_size=3, stride=2, padding=1)
    for layer in ("layer1", "layer2", "layer3"):
        maps = layer_maps(maps, layer)
    copies = [f"layer4.{head}" for head in range(num_heads)] or ["layer4"]
    return torch.cat([layer_maps(maps, copy) for copy in copies], dim=1).mean(dim=(2, 3))


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
