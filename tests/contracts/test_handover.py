"""The exported backbone loads in transfer with the same tensors and outputs."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pretrain.export import export
from pretrain.parts.resnet import BranchedResNet
from pretrain.parts.resnet import build_resnet as build_for_pretraining
from pretrain.recipes import RECIPES
from tests.rounding import assert_equal_up_to_rounding
from transfer.backbone import load_backbone


@pytest.mark.parametrize(
    ("arch", "stem"), [("resnet18", "imagenet"), ("resnet18", "cifar"), ("resnet50", "imagenet")]
)
def test_an_exported_backbone_computes_the_same_features(
    arch: str, stem: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    network, width = build_for_pretraining(arch, stem)  # type: ignore[arg-type]
    for name, buffer in network.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_()
    views = replace(RECIPES["jcl/smoke"].views, size_px=48)
    made_by: dict[str, object] = {"method": "jcl", "recipe": "jcl/smoke", "epochs": 2}
    export(tmp_path / "b.pt", network, arch=arch, stem=stem, views=views, made_by=made_by)  # type: ignore[arg-type]
    backbone = load_backbone(tmp_path / "b.pt")
    images = torch.randn(2, 3, 48, 48)
    with torch.no_grad():
        assert_equal_up_to_rounding(backbone.network()(images), network.eval()(images))
    assert (backbone.arch, backbone.stem, backbone.feature_dim) == (arch, stem, width)
    assert (backbone.input.size_px, backbone.made_by) == (48, made_by)


@pytest.mark.parametrize(("arch", "num_heads"), [("resnet18", 3), ("resnet50", 2)])
def test_a_backbone_of_many_heads_computes_the_same_features(
    arch: str, num_heads: int, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    network, width = build_for_pretraining(arch, "cifar")
    branched = BranchedResNet(network, num_heads)
    for name, buffer in branched.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_()
    views = replace(RECIPES["jcl/smoke"].views, size_px=16)
    several = f"{arch}-heads{num_heads}"
    export(tmp_path / "all.pt", branched, arch=several, stem="cifar", views=views, made_by={})
    export(tmp_path / "0.pt", branched.head(0), arch=arch, stem="cifar", views=views, made_by={})
    together, alone = load_backbone(tmp_path / "all.pt"), load_backbone(tmp_path / "0.pt")
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        features = together.network()(images)
        assert_equal_up_to_rounding(features, branched.eval()(images))
        assert_equal_up_to_rounding(features[:, :width], alone.network()(images))
    assert (together.arch, together.feature_dim) == (several, num_heads * width)
    assert (alone.arch, alone.feature_dim) == (arch, width)
