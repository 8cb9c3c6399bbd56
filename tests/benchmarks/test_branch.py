"""The branch of a file with several networks reaches the plan, the cells and their processes."""

from pathlib import Path

import pytest
import torch

from benchmarks.execution.jobs import arguments_of
from benchmarks.planning.checkpoints import Origin, origins
from benchmarks.planning.options import RunAll
from benchmarks.run_all import main
from transfer.backbone import random_backbone
from transfer.cells.request import Cell, CellSettings


@pytest.fixture
def distilled(tmp_path: Path) -> Path:
    """A student with a CIFAR stem and a teacher without, in one file."""
    content = {
        "student": random_backbone(arch="resnet18", stem="cifar", seed=0).state_dict,
        "teacher": random_backbone(arch="resnet18", stem="imagenet", seed=0).state_dict,
    }
    torch.save(content, tmp_path / "kd.pth")
    return tmp_path / "kd.pth"


def test_a_run_gives_each_checkpoint_its_branch(distilled: Path) -> None:
    request = RunAll(ckpt=(distilled, distilled), name=("s", "t"), branch=("student", "teacher"))
    assert [origin.load().stem for origin in origins(request)] == ["cifar", "imagenet"]


def test_branches_and_checkpoints_must_be_as_many(
    distilled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--ckpt", str(distilled), "--branch", "student", "teacher", "--plan"]
    assert main(words) == 2
    assert "2 given for 1" in capsys.readouterr().err


def test_the_arguments_of_a_cell_name_the_branch(settings: CellSettings, tmp_path: Path) -> None:
    backbone = random_backbone(arch="resnet18", stem="imagenet", seed=0)
    cell = Cell(key="cifar10_knn", backbone=backbone, seed=0, settings=settings)
    origin = Origin(ckpt=tmp_path / "kd.pth", branch="student")
    words = arguments_of(cell, {"random": origin})
    assert words[words.index("--branch") + 1] == "student"
