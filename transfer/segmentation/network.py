"""mmsegmentation's fully convolutional network, with the interface of our loop and test.

mmsegmentation builds backbone and head. Its data preprocessor and loss wrapper are not used, since
they require mmsegmentation's sample classes; a test compares the losses.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate, pad
from torchvision.models import ResNet
from torchvision.models.resnet import Bottleneck

from transfer.datasets.segmented import IGNORED
from transfer.encoders.architectures import FEATURE_DIM
from transfer.finetuning.loop import fused
from transfer.finetuning.norms import Norm, norm_layer
from transfer.finetuning.verify import for_bytes, verify_maps
from transfer.segmentation.recipe import SegmentationRecipe
from transfer.segmentation.samples import Sample


class FCN(nn.Module):
    """A fully convolutional network with mmsegmentation's backbone and head."""

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: nn.Module, head: nn.Module, recipe: SegmentationRecipe) -> None:
        super().__init__()
        self.backbone, self.head, self.recipe = backbone, head, recipe
        mean, std = for_bytes(recipe.pixel_mean, recipe.pixel_std)
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("std", std, persistent=False)

    def forward(self, samples: Sequence[Sample]) -> dict[str, Tensor]:
        """Return the loss of a batch, by name."""
        side = self.recipe.crop_px
        images = torch.stack([pad_to(self._normalize(s.image), side, 0) for s in samples])
        masks = torch.stack([pad_to(s.mask, side, IGNORED) for s in samples])
        return {"loss_seg": pixel_loss(self.logits(images), masks)}

    def logits(self, images: Tensor) -> Tensor:
        """Return logits (n, L, H, W), at least float32, of normalized images (n, 3, H, W)."""
        coarse = self.head(self.backbone(images))
        coarse = coarse.to(torch.promote_types(coarse.dtype, torch.float32))
        size, corners = images.shape[2:], self.recipe.align_corners
        return interpolate(coarse, size=size, mode="bilinear", align_corners=corners)

    def classes(self, image: Tensor) -> Tensor:
        """Return the class (H, W) uint8 of each pixel of an image (3, H, W) uint8."""
        return self.logits(self._normalize(image)[None])[0].argmax(dim=0).to(torch.uint8)

    def feature_maps(self, images: Tensor) -> dict[str, Tensor]:
        """Return the maps of layer1 to layer4 for images (n, 3, H, W) uint8."""
        maps = self.backbone(self._normalize(images))
        return {f"layer{number}": values for number, values in enumerate(maps, start=1)}

    def load_backbone(self, state_dict: Mapping[str, Tensor]) -> None:
        """Load a backbone with torchvision's names and shapes.

        Raises RuntimeError for unknown names. `verify` detects layers that were not loaded.
        """
        self.backbone.load_state_dict({**self.backbone.state_dict(), **state_dict})

    def optimizer(self, recipe: SegmentationRecipe) -> torch.optim.SGD:
        """Return SGD for all layers."""
        return torch.optim.SGD(
            self.parameters(),
            lr=recipe.learning_rate,
            momentum=recipe.sgd_momentum,
            weight_decay=recipe.weight_decay,
            fused=fused(self, recipe.precision),
        )

    def verify(self, state_dict: Mapping[str, Tensor], arch: str) -> dict[str, float]:
        """Return the largest difference between each stage's map and the loaded backbone's.

        Raises ValueError like `verify_maps`.
        """
        recipe = self.recipe
        return verify_maps(
            self,
            self.feature_maps,
            state_dict,
            arch,
            mean=recipe.pixel_mean,
            std=recipe.pixel_std,
            changed=lambda source: dilate_layer4(source, recipe.layer4_dilation),
            advice=f"layer4 is not dilated by {recipe.layer4_dilation}, ",
        )

    def _normalize(self, pixels: Tensor) -> Tensor:
        return (pixels - self.mean) / self.std


def pixel_loss(logits: Tensor, masks: Tensor) -> Tensor:
    """Return the cross-entropy of logits (n, L, H, W) and masks (n, H, W).

    As by default in mmsegmentation, the mean is over all pixels: ignored pixels count with a loss
    of 0.
    """
    total = cross_entropy(logits, masks.long(), ignore_index=IGNORED, reduction="sum")
    return total / masks.numel()


def build_network(recipe: SegmentationRecipe, *, arch: str, num_classes: int, norm: Norm) -> FCN:
    """Return a new network on the CPU, without a loaded backbone."""
    with silence_mmsegmentation():
        from mmseg.models import EncoderDecoder

        model = EncoderDecoder(**config(recipe, arch=arch, num_classes=num_classes))
        model.decode_head.init_weights()
    _replace_norms(model, norm_layer(norm))
    return FCN(model.backbone, model.decode_head, recipe)


def config(recipe: SegmentationRecipe, *, arch: str, num_classes: int) -> dict[str, Any]:
    """Return the recipe as mmsegmentation's configuration, with plain batch norm.

    The backbone is mmsegmentation's ResNet. Its VOC configurations use ResNetV1c, which has another
    stem than these weights.
    """
    plain = {"type": "BN", "requires_grad": True}
    backbone = {
        "type": "ResNet",
        "depth": int(arch.removeprefix("resnet")),
        "style": "pytorch",
        "out_indices": (0, 1, 2, 3),
        "strides": (1, 2, 2, 1),
        "dilations": (1, 1, 1, recipe.layer4_dilation),
        "contract_dilation": False,  # full dilation also in the first block of layer4
        "norm_cfg": plain,
        "norm_eval": False,
    }
    head = {
        "type": "FCNHead",
        "in_channels": FEATURE_DIM[arch],
        "in_index": 3,
        "channels": recipe.head_channels,
        "num_convs": recipe.head_convs,
        "dilation": recipe.head_dilation,
        "concat_input": False,
        "dropout_ratio": 0.0,
        "num_classes": num_classes,
        "norm_cfg": plain,
        "align_corners": recipe.align_corners,
    }
    return {"backbone": backbone, "decode_head": head, "train_cfg": {}, "test_cfg": {}}


@contextmanager
def silence_mmsegmentation() -> Iterator[None]:
    """Silence its warnings and log messages, such as a line per initialized parameter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mmengine.logging import MMLogger

        MMLogger.get_current_instance().setLevel(logging.ERROR)
        yield


def _replace_norms(model: nn.Module, make: Callable[[int], nn.Module]) -> None:
    """Replace each plain norm layer, keeping its state.

    make: creates the new layer for a number of channels.
    """
    for module in model.modules():
        for name, child in module.named_children():
            if type(child) is nn.BatchNorm2d:
                new = make(child.num_features)
                new.load_state_dict(child.state_dict())
                setattr(module, name, new)


def pad_to(values: Tensor, side: int, value: float) -> Tensor:
    """Pad values (..., H, W) to (..., side, side), right and bottom."""
    return pad(values, (0, side - values.shape[-1], 0, side - values.shape[-2]), value=value)


def dilate_layer4(network: ResNet, dilation: int) -> ResNet:
    """Set stride 1 and dilation in layer4, in place.

    All blocks are changed. torchvision's replace_stride_with_dilation does not dilate the first
    block, which gives different features of the same shape.
    """
    for block in network.layer4:
        convolution = block.conv2 if isinstance(block, Bottleneck) else block.conv1
        convolution.stride = (1, 1)
        convolution.dilation = convolution.padding = (dilation, dilation)
        if block.downsample is not None:
            block.downsample[0].stride = (1, 1)
    return network
