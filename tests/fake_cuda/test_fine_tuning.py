"""Fine-tuning of classifiers and segmentation networks on pretend CUDA tensors."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.fake_cuda.pretend import CUDA, on_cuda, pretend_cuda
from tests.fake_cuda.steps import Step, check_step, take_fine_tuning_step
from tests.fake_cuda.watch import Watch
from transfer.encoders.encoder import Encoder
from transfer.finetuning.classification import Classifier, Crops, FineTuning
from transfer.segmentation.network import FCN, build_network
from transfer.segmentation.recipe import VOC_FCN
from transfer.segmentation.samples import Sample

RECIPE = replace(VOC_FCN.tiny(), precision="bfloat16")
COURSE = FineTuning(
    iterations=10,
    milestones=(8,),
    decay=0.1,
    learning_rate=0.1,
    batch_size=4,
    precision="bfloat16",
    head_factor=10.0,
    sgd_momentum=0.9,
    weight_decay=0.0,
    crop_px=32,
)


def test_a_step_of_a_classifier_waits_as_often_as_its_budget_says(
    small_backbone: Encoder,
) -> None:
    classifier = Classifier(small_backbone, num_classes=5, seed=0)
    pixels = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
    samples = [Crops(pixels=pixels, labels=torch.ones(4, dtype=torch.int64))]
    step = take_fine_tuning_step(classifier, lambda: classifier.optimizer(COURSE), COURSE, samples)
    check_step(step, "training of classifiers")


def one_convolution() -> FCN:
    """Return a network with a single feature map of stride 8."""
    backbone = nn.Sequential(nn.Conv2d(3, 8, 8, stride=8), nn.ReLU())
    return FCN(backbone, nn.Conv2d(8, 21, 1), RECIPE)


def crops() -> list[Sample]:
    """Return two crops, one smaller than the crop size."""
    return [
        Sample(
            image=torch.zeros(3, side, 50, dtype=torch.uint8),
            mask=torch.zeros(side, 50, dtype=torch.uint8),
        )
        for side in (65, 40)
    ]


def take_segmentation_step(fcn: FCN) -> Step:
    return take_fine_tuning_step(
        fcn, lambda: torch.optim.SGD(fcn.parameters(), lr=0.1, momentum=0.9), RECIPE, crops()
    )


def test_a_step_of_segmentation_waits_as_often_as_its_budget_says() -> None:
    check_step(take_segmentation_step(one_convolution()), "training of segmentation")


@pytest.mark.slow  # mmsegmentation takes seconds to import
def test_a_step_of_its_network_waits_no_more_often() -> None:
    fcn = build_network(RECIPE, arch="resnet18", num_classes=21, norm="BN")
    check_step(take_segmentation_step(fcn), "training of segmentation")


def test_predicted_classes_stay_on_the_device() -> None:
    fcn = one_convolution()
    with pretend_cuda(), torch.no_grad():
        fcn.to(CUDA).eval()
        image = on_cuda(crops()[0].image)
        with Watch() as watch:
            classes = fcn.classes(image)
    assert (classes.dtype, classes.device, classes.shape) == (torch.uint8, CUDA, (65, 50))
    assert watch.waits == {}
