"""Tasks name network and image if features are not finite."""

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from transfer import Encoder, NotFiniteError, evaluate
from transfer.datasets.catalog import open_split

TASKS = {
    "cifar10_knn": "trainval",
    "transfer_linear/cifar10": "val",
    "cifar10_fewshot": "trainval",
    "in100_linear@looc": "test",
    "voc07_svm": "trainval",
}
"""Tasks on image features, and the split that each reads first."""


class Unstable(nn.Module):
    """Divide by zero for images with values of at most 2."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        largest = x.abs().amax(dim=(1, 2, 3))
        features: Tensor = self.conv(x).mean(dim=(2, 3)) / (largest > 2.1)[:, None]
        return features


def run(task: str, data: Path, runs: Path) -> None:
    form: dict[str, Any] = {"size_px": 32, "mean": (0.5,) * 3, "std": (0.25,) * 3}
    encoder = Encoder.from_module(Unstable(), **form, name="unstable")
    evaluate(encoder, task, data=data, schedule="smoke", runs=runs)


@pytest.mark.parametrize("task", TASKS)
def test_network_and_image_are_named(task: str, small_data: Path, tmp_path: Path) -> None:
    dataset = task.split("/")[-1].split("_")[0]
    split = TASKS[task]
    first = open_split(dataset, small_data, split).name(0)
    with pytest.raises(NotFiniteError) as caught:
        run(task, small_data, tmp_path)
    message = str(caught.value)
    assert f"{first} ({dataset}, {split}) by unstable" in message
    assert "diverged" not in message


def test_random_view_is_named(small_data: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFiniteError, match=r"a random view of .* by unstable"):
        run("cifar10_view_statistics@feature", small_data, tmp_path)
