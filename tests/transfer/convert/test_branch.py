"""A file with several networks: the user names one, or a rule that holds for them decides."""

from pathlib import Path

import pytest
import torch

from tests.transfer.convert.conftest import GetWeights, Weights
from tests.transfer.convert.naming import another, below, refuse
from transfer.__main__ import main as transfer_main
from transfer.backbone import Backbone, BackboneError, load_backbone


@pytest.fixture
def distilled(weights: GetWeights, tmp_path: Path) -> Path:
    """A ResNet-18 that learned from a ResNet-34, in one file."""
    teacher = another(weights("resnet34"))
    content = {**below("student.backbone.", weights()), **below("teacher.backbone.", teacher)}
    torch.save(content, tmp_path / "kd.pth")
    return tmp_path / "kd.pth"


def is_resnet18(backbone: Backbone, expected: Weights) -> bool:
    conv1 = backbone.state_dict["conv1.weight"]
    return backbone.arch == "resnet18" and torch.equal(conv1, expected["conv1.weight"])


@pytest.mark.parametrize(
    ("branch", "words"),
    [("backbone", "names 2 of them"), ("momentum", "names none of them"), ("", "no name tells")],
)
def test_a_branch_that_names_not_one_network_is_refused_with_the_list(
    branch: str, words: str, distilled: Path
) -> None:
    networks = r"student\.backbone\. \(resnet18.*teacher\.backbone\. \(resnet34"
    with pytest.raises(BackboneError, match=rf"{words}.*{networks}"):
        load_backbone(distilled, branch=branch)


@pytest.mark.parametrize("branch", ["net", "net."])
def test_a_whole_prefix_goes_before_a_part_of_another(
    branch: str, weights: GetWeights, tmp_path: Path
) -> None:
    content = {**below("net.", weights()), **below("target.net.", another(weights()))}
    torch.save(content, tmp_path / "file")
    assert is_resnet18(load_backbone(tmp_path / "file", branch=branch), weights())


def test_the_teacher_of_a_student_that_is_no_resnet_is_not_taken_silently(
    weights: GetWeights, tmp_path: Path
) -> None:
    student = {"student.patch_embed.proj.weight": torch.ones(8, 3, 16, 16)}
    content = {**student, **below("teacher.", weights())}
    refuse(content, tmp_path / "file", "student.patch_embed", "--branch teacher")
    assert is_resnet18(load_backbone(tmp_path / "file", branch="teacher"), weights())


@pytest.mark.parametrize(
    ("one", "other"), [("encoder_q.", "encoder_k."), ("online.", "target."), ("query.", "guide.")]
)
def test_no_rule_holds_between_different_networks(
    one: str, other: str, weights: GetWeights, tmp_path: Path
) -> None:
    content = {**below(one, weights()), **below(other, another(weights(stem="cifar")))}
    refuse(content, tmp_path / "file", "no name tells")


def test_our_own_file_has_no_branches(checkpoint: Path) -> None:
    with pytest.raises(BackboneError, match="leave out --branch"):
        load_backbone(checkpoint, branch="student")


def test_a_task_takes_the_branch(
    distilled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["cifar10_knn", "--ckpt", str(distilled), "--dry-run", "--results", str(tmp_path)]
    assert transfer_main(words) == 2
    assert transfer_main([*words, "--branch", "student"]) == 0
    assert "asked for by --branch student" in capsys.readouterr().err
