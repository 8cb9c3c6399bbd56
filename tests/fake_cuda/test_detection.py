"""Detectors of the torchvision engine on pretend CUDA tensors: training and test."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.fake_cuda.pretend import CUDA, on_cuda, pretend_cuda, pretend_processes
from tests.fake_cuda.steps import Step, check_step, take_fine_tuning_step
from tests.fake_cuda.watch import Watch, allowed_waits
from transfer.detection import recipe as recipes
from transfer.detection.detector import Detector, Sample
from transfer.detection.recipe import DetectorRecipe
from transfer.detection.torchvision_engine.network import RCNN
from transfer.finetuning.norms import Norm

RECIPES = {
    "fpn": recipes.COCO_FPN,
    "fpn masks": recipes.COCO_FPN_MASKS,
    "fpn keypoints": recipes.COCO_FPN_KEYPOINTS,
    "4conv1fc": recipes.COCO_4CONV1FC,
    "4conv1fc masks": recipes.COCO_4CONV1FC_MASKS,
    "c4": recipes.VOC_C4,
    "c4 moco": recipes.VOC_C4_MOCO,
    "c4 none": recipes.VOC_C4_NONE,
}
NUM_OBJECTS = 3


def tiny_recipe(name: str) -> DetectorRecipe:
    return replace(RECIPES[name].tiny(), precision="bfloat16")


def tiny_detector(name: str, norm: Norm = "BN") -> Detector:
    torch.manual_seed(0)
    recipe = tiny_recipe(name)
    num_classes = 1 if recipe.finds == "keypoints" else 5
    return RCNN(recipe, arch="resnet18", num_classes=num_classes, norm=norm)


def sample(recipe: DetectorRecipe) -> Sample:
    """Return a black image with three objects."""
    corners = torch.arange(2 * NUM_OBJECTS).float().view(NUM_OBJECTS, 2)
    outline = np.array([4.0, 6.0, 30.0, 6.0, 30.0, 40.0])
    return Sample(
        image=torch.zeros(3, 64, 80, dtype=torch.uint8),
        boxes=torch.cat([corners, corners + 40], dim=1),
        classes=torch.zeros(NUM_OBJECTS, dtype=torch.int64),
        polygons=((outline,),) * NUM_OBJECTS if recipe.finds == "masks" else None,
        keypoints=torch.ones(NUM_OBJECTS, 17, 3) if recipe.finds == "keypoints" else None,
    )


def training_step_of(name: str, num_processes: int = 1, norm: Norm = "BN") -> Step:
    """Return one step.

    It raises an error if any tensor was left on the CPU.
    """
    recipe = tiny_recipe(name)
    with pretend_processes(num_processes):
        detector = tiny_detector(name, norm)
        return take_fine_tuning_step(
            detector, lambda: detector.optimizer(recipe), recipe, [sample(recipe)] * 2
        )


@pytest.mark.parametrize("name", RECIPES)
def test_a_step_would_be_right_on_a_gpu(name: str) -> None:
    check_step(training_step_of(name), "training of detectors", name)


@pytest.mark.parametrize(("name", "norm"), [("fpn", "SyncBN"), ("c4", "naiveSyncBN")])
def test_norms_over_processes_exchange_dense_tensors_of_the_device(name: str, norm: Norm) -> None:
    check_step(training_step_of(name, 8, norm), "training of detectors", name)


@pytest.mark.parametrize("name", ["fpn", "fpn masks", "fpn keypoints", "c4"])
def test_detections_stay_on_the_device(name: str) -> None:
    detector = tiny_detector(name)
    with pretend_cuda(), torch.no_grad():
        detector.to(CUDA).eval()
        image = on_cuda(torch.zeros(3, 64, 80, dtype=torch.uint8))
        with Watch(true=True) as watch:
            (result,) = detector.find([image])
    tensors = [result.boxes, result.scores, result.masks, result.keypoints]
    kinds = {(tensor.dtype, tensor.device) for tensor in tensors if tensor is not None}
    assert kinds == {(torch.float32, CUDA)}
    assert watch.waits == allowed_waits("detection", name)
