"""Check that a backbone in another network computes the same features.

The reference is torchvision's network with the backbone's tensors. The check uses two fixed images,
since shapes do not reveal weights that were not loaded, a stride or dilation in the wrong
convolution, or a wrong mean.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torchvision.models import ResNet

from transfer.encoders.resnets import network_with

Channels = tuple[float, float, float]

TOLERANCE = 1e-4
"""Maximum difference of a stage's map, relative to its largest value.

Identical kernels give 0.
"""
SMALLEST = 1e-12
"""Lower bound of the divisor, against division by zero."""


def verify_maps(
    network: nn.Module,
    feature_maps: Callable[[Tensor], Mapping[str, Tensor]],
    state_dict: Mapping[str, Tensor],
    arch: str,
    *,
    mean: Channels,
    std: Channels,
    num_new_norms: int,
    changed: Callable[[ResNet], ResNet] = lambda source: source,
    advice: str = "",
) -> dict[str, float]:
    """Return each stage's largest difference on two fixed images.

    Stages are layer1 to layer4.
    feature_maps: function from images (n, 3, H, W) uint8 to the network's maps by name.
    state_dict, arch: the loaded backbone, with torchvision's names and shapes.
    mean, std: per channel, for pixels from 0 to 1.
    num_new_norms: number of norm layers in addition to the backbone's.
    changed: applies the network's changes to torchvision's network.
    advice: inserted into the error message.

    ValueError if a difference exceeds TOLERANCE, if not exactly these norms are trained, or if a
    parameter is frozen.
    """
    num_backbone_norms = sum(name.endswith("running_mean") for name in state_dict)
    _check_trained(network, num_backbone_norms + num_new_norms)
    device = next(network.parameters()).device
    tensors = {name: tensor.to(device) for name, tensor in state_dict.items()}
    source, images = changed(network_with(arch, "imagenet", tensors)), fixed_images().to(device)
    was_training = network.training
    network.eval()
    # the rounding errors of reduced precision would hide small faults
    exact_kernels = torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)
    with exact_kernels, torch.inference_mode():
        maps, expected = feature_maps(images), torchvision_maps(source, images, mean, std)
    network.train(was_training)
    differences = {name: _difference(maps[name], expected[name]) for name in expected}
    for name, difference in differences.items():
        if not difference <= TOLERANCE:  # NaN fails, too
            raise ValueError(
                f"the network's map after {name} differs from the backbone's by {difference:.1e}; "
                f"allowed is {TOLERANCE:.0e}. Weights were not loaded into the right layers, or "
                f"{advice}images are not normalized by mean {mean} and std {std}"
            )
    return differences


def fixed_images() -> Tensor:
    """Return fixed uint8 noise (2, 3, 64, 96), divisible by 32."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (2, 3, 64, 96), dtype=torch.uint8, generator=generator)


def torchvision_maps(
    network: ResNet, images: Tensor, mean: Channels, std: Channels
) -> dict[str, Tensor]:
    """Return the maps (n, C, h, w) of layer1 to layer4.

    images: (n, 3, H, W) uint8.
    """
    center, scale = (
        torch.tensor([255 * value for value in values], dtype=torch.float32, device=images.device)[
            :, None, None
        ]
        for values in (mean, std)
    )
    x = network.maxpool(network.relu(network.bn1(network.conv1((images - center) / scale))))
    maps = {}
    for name in ("layer1", "layer2", "layer3", "layer4"):
        x = maps[name] = getattr(network, name)(x)
    return maps


def _check_trained(network: nn.Module, num_norms: int) -> None:
    norms = [
        module
        for module in network.modules()
        if isinstance(module, _BatchNorm) and module.affine and module.track_running_stats
    ]
    if len(norms) != num_norms:
        raise ValueError(
            f"the network has {len(norms)} trained batch norms; its recipe requires {num_norms}. "
            "Frozen norm layers give the same features, so only the count reveals them"
        )
    frozen = [name for name, values in network.named_parameters() if not values.requires_grad]
    if frozen:
        raise ValueError(
            f"{len(frozen)} parameters of the network are frozen, first {frozen[0]!r}; "
            f"expected all of them to be trained"
        )


def _difference(actual: Tensor, expected: Tensor) -> float:
    if actual.shape != expected.shape:
        raise ValueError(
            f"the network's map has the shape {tuple(actual.shape)}, the backbone's map "
            f"{tuple(expected.shape)}: a stride is in the wrong layer"
        )
    return ((actual - expected).abs().max() / expected.abs().max().clamp_min(SMALLEST)).item()
