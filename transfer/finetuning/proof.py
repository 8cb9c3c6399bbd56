"""Check before training that a backbone inside another network computes what its source does.

The reference is torchvision's network with the backbone's own tensors. Shapes alone do not show
weights that were silently not loaded, a stride or dilation in the wrong convolution, or a wrong
mean. Two fixed images do.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torchvision.models import ResNet

from transfer.encoders.resnets import network_with

Channels = tuple[float, float, float]

TOLERANCE = 1e-4
"""Largest allowed difference in a stage's map, in units of its largest value; identical kernels
give no difference at all."""
SMALLEST = 1e-12
"""Lower bound of the largest value that the difference is divided by, against division by zero."""


def prove_maps(
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
    """Return the largest difference of each stage, layer1 to layer4, on two fixed images.

    feature_maps: function of images (n, 3, H, W) uint8 that returns the network's maps by name.
    state_dict, arch: the backbone that was loaded, torchvision's names and shapes; changed: what
    the network does to torchvision's; mean, std: per channel, for pixels from 0 to 1.
    num_new_norms: norm layers beside the backbone's. ValueError if a difference is above TOLERANCE
    (with the advice), if not exactly these norms are trained, or if a parameter is frozen.
    """
    of_backbone = sum(name.endswith("running_mean") for name in state_dict)
    _check_trained(network, of_backbone + num_new_norms)
    device = next(network.parameters()).device
    tensors = {name: tensor.to(device) for name, tensor in state_dict.items()}
    source, images = changed(network_with(arch, "imagenet", tensors)), fixed_images().to(device)
    was_training = network.training
    network.eval()
    # reduced precision would hide small faults behind its own differences
    exact = torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)
    with exact, torch.inference_mode():
        found, expected = feature_maps(images), torchvision_maps(source, images, mean, std)
    network.train(was_training)
    apart = {name: _difference(found[name], expected[name]) for name in expected}
    for name, difference in apart.items():
        if not difference <= TOLERANCE:  # NaN fails, too
            raise ValueError(
                f"the network's map after {name} differs from that of the backbone by "
                f"{difference:.1e}; allowed is {TOLERANCE:.0e}. Its weights are not in their "
                f"place, or {advice}its images are not normalized by mean {mean} and std {std}"
            )
    return apart


def fixed_images() -> Tensor:
    """Return uint8 noise (2, 3, 64, 96), always the same; the sides are multiples of 32 px."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (2, 3, 64, 96), dtype=torch.uint8, generator=generator)


def torchvision_maps(
    network: ResNet, images: Tensor, mean: Channels, std: Channels
) -> dict[str, Tensor]:
    """Return the maps (n, C, H, W) after layer1 to layer4 of images (n, 3, H, W) uint8."""
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
            f"the network has {len(norms)} batch norms that are trained; its recipe says "
            f"{num_norms}. A frozen norm is another layer, which features cannot tell apart"
        )
    frozen = [name for name, values in network.named_parameters() if not values.requires_grad]
    if frozen:
        raise ValueError(
            f"{len(frozen)} parameters of the network are frozen, first {frozen[0]!r}; "
            f"expected all of them to be trained"
        )


def _difference(found: Tensor, expected: Tensor) -> float:
    if found.shape != expected.shape:
        raise ValueError(
            f"the network's map is {tuple(found.shape)}, that of the backbone "
            f"{tuple(expected.shape)}: a stride is in the wrong place"
        )
    return ((found - expected).abs().max() / expected.abs().max().clamp_min(SMALLEST)).item()
