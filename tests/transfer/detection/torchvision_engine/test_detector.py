"""The detector: its backbone in place, and the features that prove it."""

import pytest
import torch
from torch import Tensor, nn
from torchvision.models.feature_extraction import create_feature_extractor
from torchvision.transforms.functional import normalize

from transfer.convert.resnet import build_resnet
from transfer.detection.recipe import COCO_FPN, VOC_C4, DetectorRecipe
from transfer.detection.sample import Detector
from transfer.detection.torchvision_engine import build_detector

ARCHS = ("resnet18", "resnet50")
LAYERS = ("layer1", "layer2", "layer3", "layer4")


def resnet(arch: str) -> nn.Module:
    """Return a network with statistics that are not those of a new one."""
    torch.manual_seed(3)
    network: nn.Module = build_resnet(arch, "imagenet").train()
    with torch.no_grad():
        network(torch.randn(4, 3, 64, 64))
    network.eval()
    return network


def loaded(recipe: DetectorRecipe, source: nn.Module, arch: str) -> Detector:
    detector = build_detector(recipe.tiny(), arch=arch, num_classes=3, norm="BN")
    assert detector.load_backbone(source.state_dict()) == len(source.state_dict())
    detector.network.eval()
    return detector


def images() -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(0, 256, (3, 64, 96), dtype=torch.uint8, generator=generator)] * 2


@torch.no_grad()
def expected_maps(source: nn.Module) -> dict[str, Tensor]:
    """Return the maps by torchvision's own normalization and feature extractor."""
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    batch = normalize(torch.stack(images()) / 255, mean, std)
    maps: dict[str, Tensor] = create_feature_extractor(source, list(LAYERS))(batch)
    return maps


def worst(maps: dict[str, Tensor], others: dict[str, Tensor]) -> float:
    """Largest difference in units of the map's largest value."""
    assert maps.keys() == others.keys()
    return max(
        float((maps[name] - others[name]).abs().max() / others[name].abs().max()) for name in maps
    )


def test_stages_are_those_of_the_backbone(subtests: pytest.Subtests) -> None:
    for arch in ARCHS:
        for recipe in [COCO_FPN, VOC_C4]:
            with subtests.test(arch=arch, recipe=recipe):
                source = resnet(arch)
                found = worst(
                    loaded(recipe, source, arch).feature_maps(images()), expected_maps(source)
                )
                assert found <= 256 * torch.finfo(torch.float32).eps  # up to 49 layers in float32


@pytest.mark.parametrize(("recipe", "size"), [(COCO_FPN, (8, 10)), (VOC_C4, (7, 9))])
def test_only_a_pyramid_pads_to_32_px(recipe: DetectorRecipe, size: tuple[int, int]) -> None:
    detector = loaded(recipe, resnet("resnet18"), "resnet18")
    image = torch.zeros(3, 100, 140, dtype=torch.uint8)
    assert detector.feature_maps([image])["layer3"].shape[-2:] == size


def test_one_wrong_tensor_or_a_wrong_mean_shows_in_the_stages() -> None:
    source = resnet("resnet18")
    expected = expected_maps(source)
    swapped = loaded(COCO_FPN, source, "resnet18")
    first, second = (f"backbone.layer3.1.bn{i}.weight" for i in (1, 2))
    tensors = dict(swapped.network.state_dict())
    swapped.network.load_state_dict({**tensors, first: tensors[second] * 0.99})
    assert worst(swapped.feature_maps(images()), expected) > 1e-3
    shifted = loaded(COCO_FPN, source, "resnet18")
    shifted.network.get_buffer("pixel_mean").add_(1)
    assert worst(shifted.feature_maps(images()), expected) > 1e-3


def test_a_backbone_that_does_not_fit_is_refused(subtests: pytest.Subtests) -> None:
    for recipe in [COCO_FPN, VOC_C4]:
        for fault in ["missing", "unexpected", "shape"]:
            with subtests.test(recipe=recipe, fault=fault):
                tensors = dict(build_resnet("resnet18", "imagenet").state_dict())
                name = "layer4.0.conv1.weight"
                if fault == "missing":
                    del tensors[name]
                elif fault == "unexpected":
                    tensors["fc.weight"] = torch.zeros(10, 512)
                else:
                    tensors[name] = tensors[name][:, :-1]
                detector = build_detector(recipe.tiny(), arch="resnet18", num_classes=3, norm="BN")
                with pytest.raises(
                    ValueError, match="fc.weight" if fault == "unexpected" else name
                ):
                    detector.load_backbone(tensors)


def test_counters_of_steps_may_be_absent() -> None:
    tensors = {
        name: tensor
        for name, tensor in build_resnet("resnet18", "imagenet").state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    detector = build_detector(VOC_C4.tiny(), arch="resnet18", num_classes=3, norm="BN")
    assert detector.load_backbone(tensors) == len(tensors) == 100


def test_the_rpn_and_the_norm_in_front_of_it_are_told_apart() -> None:
    detector = build_detector(VOC_C4.tiny(), arch="resnet18", num_classes=3, norm="BN")
    names = [name for name, _ in detector.network.named_parameters() if detector.is_rpn(name)]
    assert len(names) == 8
    assert {name.split(".")[1] for name in names} == {
        "input_norm",
        "convolution",
        "objectness",
        "deltas",
    }


@pytest.mark.parametrize("recipe", [COCO_FPN, VOC_C4], ids=["fpn", "c4"])
def test_the_same_seed_draws_the_same_detector(recipe: DetectorRecipe) -> None:
    states = []
    for _ in range(2):
        torch.manual_seed(11)
        detector = build_detector(recipe.tiny(), arch="resnet18", num_classes=3, norm="BN")
        states.append(detector.network.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
