"""The exported backbone loads in transfer with the same tensors and outputs."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pretrain.data.views import ViewRecipe
from pretrain.export import export
from pretrain.parts.resnet import BranchedResNet
from pretrain.parts.resnet import build_resnet as build_for_pretraining
from pretrain.recipes import RECIPES
from tests.rounding import assert_equal_up_to_rounding
from transfer.encoders.opening import load_backbone


def with_statistics(network: nn.Module) -> nn.Module:
    """Give the norms of a network means of their own, in place.

    Return it for evaluation.
    """
    for name, buffer in network.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_()
    return network.eval()


@pytest.mark.parametrize(
    ("arch", "stem"), [("resnet18", "imagenet"), ("resnet18", "cifar"), ("resnet50", "imagenet")]
)
def test_an_exported_backbone_computes_the_same_features(
    arch: str, stem: Any, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    built, width = build_for_pretraining(arch, stem)
    network = with_statistics(built)
    recipe = replace(RECIPES["jcl/smoke"], stem=stem, views=ViewRecipe(size_px=48))
    made_by: dict[str, object] = {"method": "jcl", "recipe": "jcl/smoke", "epochs": 2}
    export(tmp_path / "b.pt", network, arch, recipe, made_by)
    backbone = load_backbone(tmp_path / "b.pt")
    images = torch.randn(2, 3, 48, 48)
    with torch.no_grad():
        assert_equal_up_to_rounding(backbone.network()(images), network(images))
    assert (backbone.arch, backbone.stem, backbone.feature_dim) == (arch, stem, width)
    assert (backbone.input.size_px, backbone.made_by) == (48, made_by)


@pytest.mark.parametrize(("arch", "num_heads"), [("resnet18", 3), ("resnet50", 2)])
def test_features_of_many_heads_are_those_of_each_heads_ordinary_backbone_in_order(
    arch: str, num_heads: int, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    network, width = build_for_pretraining(arch, "cifar")
    branched = BranchedResNet(network, num_heads)
    with_statistics(branched)
    recipe = replace(RECIPES["jcl/smoke"], stem="cifar", views=ViewRecipe(size_px=16))
    write = partial(export, recipe=recipe, made_by={})
    several = f"{arch}-heads{num_heads}"
    write(tmp_path / "all.pt", branched, arch=several)
    together = load_backbone(tmp_path / "all.pt")
    assert (together.arch, together.feature_dim) == (several, num_heads * width)
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        features = together.network()(images)
        assert_equal_up_to_rounding(features, branched(images))
        for head, expected in enumerate(features.split(width, dim=1)):
            write(tmp_path / "one.pt", branched.head(head), arch=arch)
            single = load_backbone(tmp_path / "one.pt")
            assert (single.arch, single.feature_dim) == (arch, width)
            assert_equal_up_to_rounding(single.network()(images), expected)
