"""The proof agrees with torchvision on right conversions, and notices every wrong one."""

import pytest
import torch

from tests.transfer.convert.conftest import weights
from transfer.convert.architectures import BackboneError, Stem
from transfer.convert.proof import prove
from transfer.convert.resnet import network_with

SWAPS = {
    "two convolutions of one stage": ("layer1.0.conv2.weight", "layer1.1.conv1.weight"),
    "two norms of one block": ("layer3.1.bn1.weight", "layer3.1.bn2.weight"),
    "mean and bias of a norm": ("bn1.running_mean", "bn1.bias"),
    "norms of shortcut and block": ("layer2.0.downsample.1.weight", "layer2.0.bn2.weight"),
    "the last norms": ("layer4.0.bn2.running_var", "layer4.1.bn2.running_var"),
}


@pytest.mark.parametrize(
    ("arch", "stem"), [("resnet18", "imagenet"), ("resnet18", "cifar"), ("resnet50", "imagenet")]
)
def test_both_forward_passes_agree(arch: str, stem: Stem) -> None:
    raw = weights(arch, stem=stem)
    # float32, up to 53 layers: 256 eps of the largest feature
    assert prove(network_with(arch, stem, raw), raw) <= 256 * torch.finfo(torch.float32).eps


def test_a_wrong_conversion_fails_the_proof() -> None:
    raw = weights()
    wrong = [{one: raw[other], other: raw[one]} for one, other in SWAPS.values()]
    name = "layer4.1.conv2.weight"
    wrong.append({name: raw[name].transpose(2, 3).contiguous()})
    for changed in wrong:
        with pytest.raises(BackboneError, match="differ"):
            prove(network_with("resnet18", "imagenet", {**raw, **changed}), raw)


def test_a_stem_with_max_pool_is_told_from_one_without() -> None:
    raw = weights(stem="cifar")
    network = network_with("resnet18", "cifar", raw)
    network.maxpool = torch.nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
    with pytest.raises(BackboneError, match="differ"):
        prove(network, raw)


@pytest.mark.parametrize("name", ["", "conv1.weight", "layer4.1.bn2.weight"])
def test_a_network_that_does_not_see_the_image_is_refused(name: str) -> None:
    """All tensors are zero, the first kernel is, or the last block ends in a constant."""
    raw = weights()
    zeroed = {key: tensor * (name not in key) for key, tensor in raw.items()}
    if name == "layer4.1.bn2.weight":  # without its shortcut's part
        zeroed["layer4.1.bn2.bias"] = torch.full((512,), -1e9)
    with pytest.raises(BackboneError, match="do not depend on the image"):
        prove(network_with("resnet18", "imagenet", zeroed), zeroed)


def test_features_that_are_not_finite_are_no_proof() -> None:
    raw = weights()
    raw["bn1.running_var"] = torch.full((64,), -1.0)
    with pytest.raises(BackboneError, match="not finite"):
        prove(network_with("resnet18", "imagenet", raw), raw)
