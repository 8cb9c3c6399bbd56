"""Five readings of the fixed-rate probe, as the papers print them."""

import pytest

from transfer.tasks import TASKS
from transfer.tasks.linear_probe import LinearProbe


@pytest.mark.parametrize(
    ("key", "rate", "epochs", "decay", "crop_px"),
    [
        ("in100_linear@jcl", 10.0, 100, "step", 224),  # JCL, appendix D
        ("in100_linear@lorac", 0.1, 100, "cosine", 224),  # LORAC, its own models
        ("in100_linear@lorac-moco", 30.0, 100, "step", 224),  # LORAC, MoCo v2
        ("in100_linear@uniclr", 30.0, 100, "cosine", 224),  # UniCLR, section 4.1
        ("in100_linear@looc", 30.0, 200, "step", 224),  # LooC, appendix C
        ("cifar10_linear", 30.0, 100, "cosine", 32),
        ("cifar100_linear", 30.0, 100, "cosine", 32),
    ],
)
def test_the_readings_are_those_of_the_papers(
    key: str, rate: float, epochs: float, decay: str, crop_px: int
) -> None:
    task = TASKS[key]
    assert isinstance(task, LinearProbe)
    assert (task.learning_rate, task.epochs, task.decay) == (rate, epochs, decay)
    assert task.crop_px == crop_px
    assert (task.batch_size, task.sgd_momentum, task.weight_decay) == (256, 0.9, 0.0)


def test_imagenet_is_tested_on_a_center_crop_of_256_and_cifar_on_whole_images() -> None:
    in100, cifar = TASKS["in100_linear@jcl"], TASKS["cifar10_linear"]
    assert isinstance(in100, LinearProbe)
    assert isinstance(cifar, LinearProbe)
    assert in100.crop_px * (1 + in100.margin_px / 224) == 256
    assert cifar.margin_px == 0
