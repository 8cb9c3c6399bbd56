"""Proof before training: a detector's backbone computes what the source computes, and is trained.

Weights that are silently not loaded, a stride in the wrong convolution, or a wrong mean leave the
shapes as they are. The other side is torchvision's network with the backbone's own tensors.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from transfer.convert.resnet import network_with
from transfer.detection.recipe import Recipe
from transfer.detection.sample import Detector

TOLERANCE = 1e-4
"""Largest difference allowed at any place of a stage, in units of its largest value where that
exceeds 1, as in networks without training; the same kernels make no difference at all."""

NORMS = {"fpn": 8, "mask_head": 4, "keypoint_head": 8, "rpn_head": 1}
"""Layers of each normed part: behind every convolution that an activation or a sum follows."""
EXTRA_NORMS = {"none": 0, "moco": 1, "co2": 2}


def prove(
    detector: Detector, state_dict: Mapping[str, Tensor], arch: str, recipe: Recipe
) -> dict[str, float]:
    """Largest difference of each stage, layer1 to layer4, on two fixed images.

    state_dict: the backbone that was loaded, torchvision's names. ValueError above TOLERANCE, if a
    norm layer is missing or does not train, or if a parameter is frozen.
    """
    _check_trained(detector.network, expected_norms(state_dict, recipe))
    device = next(detector.network.parameters()).device
    images = fixed_images().to(device)
    was_training = detector.network.training
    detector.network.eval()
    # reduced precision would hide small faults behind its own differences
    with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
        found = detector.stages(list(images))
        expected = expected_stages(state_dict, arch, recipe, images)
    detector.network.train(was_training)
    differences = {name: _difference(found[name], expected[name]) for name in expected}
    for name, difference in differences.items():
        if not difference <= TOLERANCE:  # also where it is no number
            raise ValueError(
                f"the detector's map after {name} differs from that of the backbone by "
                f"{difference:.1e}; allowed is {TOLERANCE:.0e}. Its weights are not in their "
                f"place, or its images are not normalized by mean {recipe.pixel_mean} and std "
                f"{recipe.pixel_std}"
            )
    return differences


def fixed_images() -> Tensor:
    """(2, 3, 64, 96) uint8 noise, the same at every call; no side needs padding to 32 px."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (2, 3, 64, 96), dtype=torch.uint8, generator=generator)


@torch.inference_mode()
def expected_stages(
    state_dict: Mapping[str, Tensor], arch: str, recipe: Recipe, images: Tensor
) -> dict[str, Tensor]:
    """Maps of torchvision's network, normalized as the recipe says; images (n, 3, H, W) uint8."""
    tensors = {name: tensor.to(images.device) for name, tensor in state_dict.items()}
    network = network_with(arch, "imagenet", tensors)
    mean, std = (
        torch.tensor([255 * value for value in values], device=images.device)[:, None, None]
        for values in (recipe.pixel_mean, recipe.pixel_std)
    )
    x = network.maxpool(network.relu(network.bn1(network.conv1((images - mean) / std))))
    maps = {}
    for name in ("layer1", "layer2", "layer3", "layer4"):
        x = maps[name] = getattr(network, name)(x)
    return maps


def _difference(found: Tensor, expected: Tensor) -> float:
    return ((found - expected).abs().max() / expected.abs().max().clamp_min(1)).item()


def expected_norms(state_dict: Mapping[str, Tensor], recipe: Recipe) -> int:
    """How many norm layers the detector has, those of its backbone among them."""
    of_backbone = sum(name.endswith("running_mean") for name in state_dict)
    exist = {"fpn", "box_head", recipe.finds.removesuffix("s") + "_head", "rpn_head"}
    layers = {**NORMS, "box_head": recipe.box_head_convs}
    added = sum(layers[part] for part in recipe.normed if part in exist)
    return of_backbone + added + EXTRA_NORMS[recipe.extra_norms]


def _check_trained(network: nn.Module, num_norms: int) -> None:
    norms = [
        module
        for module in network.modules()
        if isinstance(module, _BatchNorm) and module.affine and module.track_running_stats
    ]
    if len(norms) != num_norms:
        raise ValueError(
            f"the detector has {len(norms)} batch norms that are trained; its recipe says "
            f"{num_norms}. A frozen norm is another layer, which features cannot tell apart"
        )
    frozen = [name for name, values in network.named_parameters() if not values.requires_grad]
    if frozen:
        raise ValueError(
            f"{len(frozen)} parameters of the detector are frozen, first {frozen[0]!r}; "
            f"expected all of them to be trained"
        )
