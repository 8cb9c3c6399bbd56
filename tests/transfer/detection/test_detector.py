"""A detector is checked before training: buildable, with exactly the backbone's weights."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from transfer.detection import detectron2_engine
from transfer.detection import recipe as recipes
from transfer.detection.detector import Detector
from transfer.detection.recipe import DetectorRecipe
from transfer.detection.torchvision_engine.network import RCNN
from transfer.encoders.encoder import random_backbone

Build = Callable[..., Detector]

ENGINES = [
    pytest.param(RCNN, id="torchvision"),
    pytest.param(detectron2_engine.build_detector, id="detectron2", marks=pytest.mark.detectron2),
]


def backbone(arch: str = "resnet18") -> dict[str, Tensor]:
    """Return random weights, also for statistics and scales of norm layers."""
    generator = torch.Generator().manual_seed(3)
    state_dict = random_backbone(arch=arch, stem="imagenet", seed=0).state_dict
    return {
        name: tensor + torch.rand(tensor.shape, generator=generator) / 4
        if tensor.ndim == 1
        else tensor
        for name, tensor in state_dict.items()
    }


def loaded(build: Build, recipe: DetectorRecipe, state_dict: Mapping[str, Tensor]) -> Detector:
    detector = build(recipe, arch="resnet18", num_classes=2, norm="BN")
    detector.load_backbone(state_dict)
    return detector


@pytest.mark.parametrize("build", ENGINES)
def test_a_loaded_backbone_gives_the_features_of_its_source(build: Build) -> None:
    normed: tuple[recipes.Part, ...] = ("fpn", "keypoint_head", "rpn_head")
    for arch, recipe, num_norms in [
        ("resnet50", recipes.COCO_FPN, 53 + 8),
        ("resnet18", recipes.COCO_4CONV1FC_MASKS, 20 + 8 + 4 + 4),
        ("resnet18", replace(recipes.COCO_FPN_KEYPOINTS, normed=normed), 20 + 8 + 8 + 1),
        ("resnet50", recipes.VOC_C4, 53 + 2),
        ("resnet18", recipes.VOC_C4_MOCO, 20 + 1),
        ("resnet18", recipes.VOC_C4_NONE, 20),
    ]:
        state_dict = backbone(arch)
        detector = build(recipe.tiny(), arch=arch, num_classes=2, norm="BN")
        detector.load_backbone(state_dict)
        detector.train()
        norms = [module for module in detector.modules() if isinstance(module, _BatchNorm)]
        assert len(norms) == num_norms
        assert all(parameter.requires_grad for parameter in detector.parameters())
        previous = {name: tensor.clone() for name, tensor in detector.state_dict().items()}
        differences = detector.verify(state_dict, arch)
        assert list(differences) == ["layer1", "layer2", "layer3", "layer4"]
        # float32, up to 49 layers: 256 eps of each map's largest value
        assert max(differences.values()) < 256 * torch.finfo(torch.float32).eps
        assert all(module.training for module in detector.modules())
        after = detector.state_dict()
        assert all(torch.equal(after[name], tensor) for name, tensor in previous.items())


@pytest.mark.parametrize("build", ENGINES)
def test_wrong_weights_and_channels_are_found_out(build: Build) -> None:
    fpn, c4 = recipes.COCO_FPN.tiny(), recipes.VOC_C4.tiny()
    wrong = {**backbone(), "layer4.1.bn2.bias": torch.ones(512)}
    new = build(fpn, arch="resnet18", num_classes=2, norm="BN")
    for name, shape in (("layer4.7.bn2.bias", 512), ("layer4.1.bn2.bias", 511)):
        with pytest.raises(RuntimeError, match="bias"):
            loaded(build, fpn, {**backbone(), name: torch.ones(shape)})
    for detector, recipe, fault in [
        (new, fpn, "layer1 differs"),
        (loaded(build, c4, wrong), c4, "layer4 differs"),
        (loaded(build, replace(fpn, pixel_mean=fpn.pixel_mean[::-1]), backbone()), fpn, "mean"),
    ]:
        detector.recipe = recipe
        with pytest.raises(ValueError, match=fault):
            detector.verify(backbone(), "resnet18")
