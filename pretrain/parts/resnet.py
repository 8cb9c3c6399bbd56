"""ResNets in torchvision's layout: He et al., CVPR 2016, arXiv:1512.03385."""

from torch import nn
from torchvision.models import ResNet, resnet18, resnet34, resnet50, resnet101, resnet152

from pretrain.parts.choices import Stem

ARCHITECTURES = {
    "resnet18": resnet18,
    "resnet34": resnet34,
    "resnet50": resnet50,
    "resnet101": resnet101,
    "resnet152": resnet152,
}


def build_resnet(arch: str, stem: Stem) -> tuple[ResNet, int]:
    """Return a network (n, 3, H, W) -> (n, C) with torchvision's initialization, and C.

    It has no classifier. The cifar stem is a 3x3 convolution of stride 1 without pooling: Chen et
    al., ICML 2020, arXiv:2002.05709, appendix B.9.
    """
    if arch not in ARCHITECTURES:
        raise ValueError(f"unknown architecture {arch!r}; choose one of {', '.join(ARCHITECTURES)}")
    network: ResNet = ARCHITECTURES[arch]()
    feature_dim = network.fc.in_features
    network.fc = nn.Identity()
    if stem == "cifar":
        network.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
        nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
        network.maxpool = nn.Identity()
    return network, feature_dim
