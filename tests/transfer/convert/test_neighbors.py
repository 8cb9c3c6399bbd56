"""Tensors beside a ResNet are named rightly, and do not keep it from loading."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.transfer.convert.conftest import GetWeights
from tests.transfer.convert.naming import another, below, linear, refuse
from transfer.__main__ import main
from transfer.backbone import inspect_file, load_backbone
from transfer.convert.resnet import tensor_shapes

COUNTERS: dict[str, tuple[Tensor, int]] = {
    "(3,)": (torch.tensor([7, 8, 9]), 7),
    "(2, 2)": (torch.full((2, 2), 7), 7),
    "(0,)": (torch.zeros(0, dtype=torch.int64), 0),
    "float": (torch.tensor(7.0), 7),
    "NaN": (torch.tensor(float("nan")), 0),
    "negative": (torch.tensor(-3), 0),
    "complex": (torch.tensor([1j]), 0),
    "bool": (torch.tensor(True), 1),
    "expanded": (torch.tensor(7).expand(2**20, 2**20), 0),
}


def test_a_step_counter_may_have_any_shape_and_type(weights: GetWeights, tmp_path: Path) -> None:
    plain = another(weights())
    names = [name for name in plain if name.endswith("num_batches_tracked")]
    counters = dict(zip(names, COUNTERS.values(), strict=False))
    torch.save(plain | {n: counter for n, (counter, _) in counters.items()}, tmp_path / "file")
    found = load_backbone(tmp_path / "file").state_dict
    assert [n for n, (_, count) in counters.items() if found[n].item() != count] == []


def test_a_feature_pyramid_in_an_encoder_is_left_out_and_named(
    weights: GetWeights, tmp_path: Path
) -> None:
    pyramid = {
        **linear("fpn_lateral5", 256, 512, 1, 1),
        **linear("fpn_output4.0", 256, 256, 3, 3),
        "fpn_output4.1.running_mean": torch.ones(256),
    }
    content = {**another(weights()), **pyramid, **linear("fc.0", 512, 512)}
    torch.save({"state_dict": below("module.encoder_q.", content)}, tmp_path / "file")
    kinds = {g.kind: g.num_tensors for g in inspect_file(tmp_path / "file").account}
    assert (kinds["feature pyramid"], kinds["head"]) == (5, 2)


@pytest.mark.parametrize("prefix", ["", "module.visual."])
def test_clips_resnet_is_named_and_refused(prefix: str, tmp_path: Path) -> None:
    """Its blocks have torchvision's names, its stem and its pooling are others."""
    shapes = tensor_shapes("resnet50", "imagenet").items()
    network = {name: torch.tensor(1.0).expand(shape) for name, shape in shapes}
    network |= {f"conv{i}.weight": torch.ones(32, 3, 3, 3) for i in (1, 2, 3)}
    network["attnpool.positional_embedding"] = torch.ones(50, 2048)
    content = {**below(prefix, network), "pos_embed": torch.ones(1)}
    refuse(content, tmp_path / "file", "CLIP's modified ResNet", "attention pooling")


@pytest.mark.parametrize("num_classes", [1000, 128])
def test_a_classifier_of_imagenet_is_noted(
    num_classes: int, weights: GetWeights, tmp_path: Path
) -> None:
    content = {**another(weights()), **linear("fc", num_classes, 512)}
    torch.save({"state_dict": below("module.", content)}, tmp_path / "file")
    notes = " ".join(inspect_file(tmp_path / "file").notes)
    assert ("state_dict.module.fc.weight tells 1000" in notes) == (num_classes == 1000)


@pytest.mark.parametrize("words", [["inspect"], ["cifar10_knn", "--name", "long", "--ckpt"]])
def test_a_long_name_ends_a_command_with_status_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "a" * 300]) == 2
    assert "too long" in capsys.readouterr().err
