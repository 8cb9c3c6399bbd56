import torch
from torchvision.models import resnet50

from pretrain.parts.resnet import build_resnet


def test_backbone_has_torchvisions_tensors_without_the_classifier() -> None:
    backbone, feature_dim = build_resnet("resnet50", "imagenet")
    expected = {k: v.shape for k, v in resnet50().state_dict().items() if not k.startswith("fc.")}
    assert {name: value.shape for name, value in backbone.state_dict().items()} == expected
    assert feature_dim == 2048


def test_the_cifar_stem_keeps_the_resolution() -> None:
    backbone, feature_dim = build_resnet("resnet18", "cifar")
    images = torch.randn(2, 3, 32, 32)
    assert backbone.maxpool(backbone.conv1(images)).shape[2:] == images.shape[2:]
    assert backbone(images).shape == (2, feature_dim)
