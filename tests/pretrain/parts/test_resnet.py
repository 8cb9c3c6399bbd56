"""Backbones, and recomputed activations."""

import copy
from typing import Any

import pytest
import torch
from torchvision.models import resnet50

from pretrain.parts.resnet import build_resnet, checkpoint_activations
from pretrain.parts.sync_bn import synchronize_batch_norms
from tests.tiny_methods import LEARNING, forward, thin_resnet, tiny_batch, tiny_method
from tests.two_processes import two_processes


def test_backbone_has_torchvisions_tensors_without_the_classifier() -> None:
    backbone, feature_dim = build_resnet("resnet50", "imagenet")
    expected = {k: v.shape for k, v in resnet50().state_dict().items() if not k.startswith("fc.")}
    assert {name: value.shape for name, value in backbone.state_dict().items()} == expected
    assert feature_dim == 2048


def test_the_cifar_stem_keeps_the_resolution() -> None:
    backbone, feature_dim = build_resnet("resnet18", "cifar")
    images = torch.randn(2, 3, 32, 32)
    assert backbone.maxpool(backbone.conv1(images)).shape[2:] == images.shape[2:]
    assert backbone(images).shape == (2, feature_dim)
    assert (
        backbone.state_dict().keys() == build_resnet("resnet18", "imagenet")[0].state_dict().keys()
    )


@pytest.mark.parametrize("name", LEARNING)
def test_a_step_whose_activations_are_computed_again_is_the_same(name: str) -> None:
    plain = tiny_method(name)
    saving = copy.deepcopy(plain)
    checkpoint_activations(saving)
    batch = tiny_batch(plain)
    result = []
    for method in (plain, saving):
        torch.manual_seed(1)
        metrics = forward(method, batch)
        metrics["loss"].backward()
        result.append((metrics, {n: p.grad for n, p in method.named_parameters()}))
    torch.testing.assert_close(result[1], result[0], rtol=0, atol=0)
    torch.testing.assert_close(saving.state_dict(), plain.state_dict(), rtol=0, atol=0)


def measure_losses(rank: int, num_processes: int) -> dict[str, Any]:
    """Gradients and statistics of half a batch, plain and with recomputation."""
    results = []
    for saving in (False, True):
        torch.manual_seed(0)
        network = synchronize_batch_norms(thin_resnet())
        if saving:
            checkpoint_activations(network)
        images = torch.randn(8, 3, 16, 16).chunk(num_processes)[rank]
        network(images).square().sum().backward()
        gradients = {name: p.grad for name, p in network.named_parameters()}
        results.append({"gradients": gradients, "state": network.state_dict()})
    return {"plain": results[0], "saving": results[1]}


@pytest.mark.slow
def test_norms_over_two_processes_are_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    for half in two_processes(measure_losses.__module__, tmp_path_factory.mktemp("two")):
        torch.testing.assert_close(half["saving"], half["plain"], rtol=0, atol=0)
