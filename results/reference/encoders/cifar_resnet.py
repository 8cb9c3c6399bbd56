"""ResNet-20 and ResNet-56 of CIFAR without classifier, for `--encoder cifar_resnet.py:resnet20`.

He et al. 2016, section 4.2: 16, 32 and 64 channels; a shortcut takes every second pixel and pads
its channels with zeros. Tensors have the names of github.com/akamaster/pytorch_resnet_cifar10,
where networks trained on CIFAR-10 are published.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

INPUT = {"size_px": 32, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


class Block(nn.Module):
    """Two convolutions of 3 x 3, (n, C, H, W) -> (n, C', H', W')."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.stride = 1 if inputs == outputs else 2
        self.conv1 = nn.Conv2d(inputs, outputs, 3, self.stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.padding = (outputs - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        """Return the maps (n, C', H', W')."""
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        every = x[:, :, :: self.stride, :: self.stride]
        return torch.relu(y + pad(every, (0, 0, 0, 0, self.padding, self.padding)))


class ResNet(nn.Module):
    """Three stages of blocks, images (n, 3, H, W) -> features (n, 64)."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(*(Block(16, 16) for _ in range(blocks)))
        self.layer2 = nn.Sequential(Block(16, 32), *(Block(32, 32) for _ in range(blocks - 1)))
        self.layer3 = nn.Sequential(Block(32, 64), *(Block(64, 64) for _ in range(blocks - 1)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the features (n, 64)."""
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.layer3(self.layer2(self.layer1(x))).mean(dim=(2, 3))


def resnet20() -> nn.Module:
    """Return ResNet-20."""
    return ResNet(3)


def resnet56() -> nn.Module:
    """Return ResNet-56."""
    return ResNet(9)
