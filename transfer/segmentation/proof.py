"""Check before training that the network's backbone computes what its source does, and trains.

The reference is torchvision's network with the backbone's own tensors, whose layer4 gets stride 1
and dilation in every block. torchvision's own replace_stride_with_dilation does not dilate the
first block, which gives other features of the same shape.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torchvision.models import ResNet
from torchvision.models.resnet import Bottleneck

from transfer.convert.proof import (
    check_trained,
    fixed_pixels,
    relative_differences,
    torchvision_maps,
)
from transfer.convert.resnet import network_with
from transfer.segmentation.network import FCN
from transfer.segmentation.recipe import SegmentationRecipe


def prove(
    network: FCN, state_dict: Mapping[str, Tensor], arch: str, recipe: SegmentationRecipe
) -> dict[str, float]:
    """Return the largest difference of each stage, layer1 to layer4, on two fixed images.

    state_dict: the backbone that was loaded, torchvision's names and shapes. ValueError if a
    difference is above the tolerance, a norm layer is missing or does not train, or a parameter is
    frozen.
    """
    of_backbone = sum(name.endswith("running_mean") for name in state_dict)
    check_trained(network, of_backbone + recipe.head_convs)
    device = next(network.parameters()).device
    images = fixed_pixels().to(device)
    was_training = network.training
    network.eval()
    # reduced precision would hide small faults behind its own differences
    with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
        with torch.inference_mode():
            maps = network.feature_maps(images)
        tensors = {name: tensor.to(device) for name, tensor in state_dict.items()}
        source = dilate_layer4(network_with(arch, "imagenet", tensors), recipe.layer4_dilation)
        expected = torchvision_maps(source, images, recipe.pixel_mean, recipe.pixel_std)
    network.train(was_training)
    advice = (
        f"layer4 is not dilated by {recipe.layer4_dilation}, or its images are not normalized by "
        f"mean {recipe.pixel_mean} and std {recipe.pixel_std}"
    )
    return relative_differences(maps, expected, advice)


def dilate_layer4(network: ResNet, dilation: int) -> ResNet:
    """Return the network with stride 1 and dilation in layer4; it is changed in place."""
    for block in network.layer4:
        convolution = block.conv2 if isinstance(block, Bottleneck) else block.conv1
        _dilate(convolution, dilation)
        if block.downsample is not None:
            block.downsample[0].stride = (1, 1)
    return network


def _dilate(convolution: nn.Conv2d, dilation: int) -> None:
    convolution.stride = (1, 1)
    convolution.dilation = convolution.padding = (dilation, dilation)
