"""The network is mmsegmentation's, on exactly the backbone's weights, and says nothing."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transfer.encoders.encoder import random_backbone
from transfer.finetuning.norms import NaiveSyncBatchNorm, Norm
from transfer.segmentation import network as networks
from transfer.segmentation.network import FCN, build_network, silence_mmsegmentation
from transfer.segmentation.recipe import VOC_FCN, SegmentationRecipe
from transfer.segmentation.samples import Sample

pytestmark = pytest.mark.slow  # mmsegmentation takes seconds to import
TINY = VOC_FCN.tiny()


def weights(arch: str = "resnet18") -> dict[str, Tensor]:
    return random_backbone(arch=arch, stem="imagenet", seed=1).state_dict


def built(
    recipe: SegmentationRecipe = TINY,
    *,
    arch: str = "resnet18",
    norm: Norm = "BN",
) -> FCN:
    """A network on these weights."""
    torch.manual_seed(0)
    network = build_network(recipe, arch=arch, num_classes=21, norm=norm)
    network.load_backbone(weights(arch))
    return network


def batch(side: int) -> list[Sample]:
    """Two crops, one smaller than the side, with ignored pixels."""
    generator = torch.Generator().manual_seed(0)
    samples = []
    for size in ((side, side), (side - 9, side - 20)):
        image = torch.randint(0, 256, (3, *size), dtype=torch.uint8, generator=generator)
        mask = torch.randint(0, 21, size, dtype=torch.uint8, generator=generator)
        mask[:5] = 255
        samples.append(Sample(image=image, mask=mask))
    return samples


def scale(recipe: SegmentationRecipe) -> dict[str, Any]:
    """Return mean and std of pixels (0 to 255) by mmsegmentation's names."""
    values = {"mean": recipe.pixel_mean, "std": recipe.pixel_std}
    return {name: [255 * value for value in three] for name, three in values.items()}


@pytest.mark.parametrize("arch", ["resnet18", "resnet50"])
def test_every_tensor_has_its_place_and_maps_are_torchvisions(arch: str) -> None:
    differences = built(arch=arch).verify(weights(arch), arch)
    assert list(differences) == ["layer1", "layer2", "layer3", "layer4"]
    # float32, up to 49 layers: 256 eps of each map's largest value
    assert max(differences.values()) < 256 * torch.finfo(torch.float32).eps


def test_the_whole_recipe_has_a_stride_of_16_and_mocos_head() -> None:
    network = built(VOC_FCN, arch="resnet50")
    convolutions = [m for m in network.head.modules() if isinstance(m, nn.Conv2d)]
    output = [
        (c.out_channels, c.kernel_size[0], c.dilation[0], c.bias is None) for c in convolutions
    ]
    assert output == [(21, 1, 1, False), (256, 3, 6, True), (256, 3, 6, True)]
    three = [m.conv2 for m in network.backbone.layer4]  # type: ignore[union-attr]
    assert [(c.dilation, c.stride) for c in three] == [((2, 2), (1, 1))] * 3
    with torch.no_grad():
        coarse = network.eval().head(network.backbone(torch.zeros(1, 3, 513, 513)))
    assert coarse.shape[2:] == (33, 33)


def test_another_network_than_the_recipes_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for change, message in [
        ({"layer4_dilation": 1}, "layer4 differs"),
        ({"pixel_mean": (0.406, 0.456, 0.485)}, "mean"),
    ]:
        network = built()
        network.recipe = replace(TINY, **change)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=message):
            network.verify(weights(), "resnet18")
    new = build_network(TINY, arch="resnet18", num_classes=21, norm="BN")
    with pytest.raises(ValueError, match="layer1 differs"):
        new.verify(weights(), "resnet18")
    plain = networks.config

    def with_deep_stem(*args: Any, **names: Any) -> dict[str, Any]:
        result = plain(*args, **names)
        return {**result, "backbone": {**result["backbone"], "type": "ResNetV1c"}}

    monkeypatch.setattr(networks, "config", with_deep_stem)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*\"conv1\.weight\""):
        built()


def test_all_norms_are_of_the_decided_kind() -> None:
    kinds: dict[Norm, type[nn.Module]] = {
        "BN": nn.BatchNorm2d,
        "SyncBN": nn.SyncBatchNorm,
        "naiveSyncBN": NaiveSyncBatchNorm,
    }
    for norm, kind in kinds.items():
        network = built(norm=norm)
        norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        assert {type(m) for m in norms} == {kind}
        assert len(norms) == 20 + 2
        network.verify(weights(), "resnet18")


def test_the_loss_is_mmsegmentations() -> None:
    network = built().double().train()  # the norms would enlarge roundings of pixels
    ours = network(batch(65))["loss_seg"]
    with silence_mmsegmentation():
        from mmengine.structures import PixelData
        from mmseg.models.data_preprocessor import SegDataPreProcessor
        from mmseg.structures import SegDataSample

        padding = {"size": (65, 65), "pad_val": 0, "seg_pad_val": 255}
        prepare = SegDataPreProcessor(**scale(TINY), **padding).double()
        masks = [PixelData(data=sample.mask[None].long()) for sample in batch(65)]
        truth = [SegDataSample(gt_sem_seg=mask) for mask in masks]
        images = [sample.image for sample in batch(65)]
        inputs = prepare({"inputs": images, "data_samples": truth}, training=True)
        head: Any = network.head
        theirs = head.loss(network.backbone(inputs["inputs"]), inputs["data_samples"], {})
    assert ours.item() == pytest.approx(theirs["loss_ce"].item(), rel=1e-6)


@pytest.mark.parametrize("align_corners", [True, False])
def test_the_classes_of_an_odd_size_are_mmsegmentations(
    align_corners: bool,
) -> None:
    recipe = replace(TINY, align_corners=align_corners)
    network = built(recipe).double().eval()  # no rounding decides of a class
    image = batch(71)[0].image[:, :47]
    with silence_mmsegmentation(), torch.inference_mode():
        from mmengine.config import ConfigDict
        from mmseg.models import EncoderDecoder
        from mmseg.models.data_preprocessor import SegDataPreProcessor

        settings = networks.config(recipe, arch="resnet18", num_classes=21)
        settings["test_cfg"] = ConfigDict(mode="whole")
        prepare = SegDataPreProcessor(**scale(recipe))
        theirs: Any = EncoderDecoder(**settings, data_preprocessor=prepare)
        theirs.backbone.load_state_dict(network.backbone.state_dict())
        theirs.decode_head.load_state_dict(network.head.state_dict())
        (expected,) = theirs.double().eval().test_step({"inputs": [image]})
        result = network.classes(image)
    assert result.shape == (47, 71)
    assert len(result.unique()) > 3
    assert torch.equal(result.long(), expected.pred_sem_seg.data[0])
