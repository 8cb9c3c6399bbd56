"""Running statistics name the network and the input that they were taken from."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from transfer.backbone import Backbone, random_backbone
from transfer.convert.architectures import Stem
from transfer.convert.resnet import build_resnet
from transfer.topology.check import MIN_GAIN, MIN_IMAGES, Score, Topology, check_topology
from transfer.topology.known_networks import INPUTS, NETWORKS, Input, Network
from transfer.topology.statistics import MAX_DIVERGENCE, divergence

CASES: tuple[tuple[str, Stem], ...] = (
    ("resnet18", "imagenet"),
    ("resnet18", "cifar"),
    ("resnet50", "imagenet"),
)
SIZE_PX: dict[Stem, int] = {"imagenet": 32, "cifar": 16}
"""Smallest sizes at which every variant has maps to filter."""


@cache
def photographs(size_px: int) -> Tensor:
    """Return smooth random images (16, 3, H, W), whose neighbors are alike as in photographs."""
    noise = torch.rand(MIN_IMAGES, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    tint = torch.tensor([0.9, 0.7, 0.5]).reshape(3, 1, 1)
    return nn.functional.interpolate(noise * tint, size=size_px, mode="bicubic").clamp(0, 1)


def trained(arch: str, stem: Stem, network: Network, way: Input) -> Backbone:
    """Return a backbone whose running statistics are those of the photographs in this network."""
    backbone = random_backbone(arch=arch, stem=stem, seed=0)
    model = build_resnet(arch, stem)
    model.load_state_dict(backbone.state_dict)
    names = list(model.state_dict())
    network.change(model)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0  # keep the statistics of the last batch
    with torch.no_grad():
        model.train()(way(photographs(SIZE_PX[stem])))
    weights = dict(zip(names, model.state_dict().values(), strict=True))
    return replace(backbone, state_dict=weights)


def known(arch: str, stem: Stem) -> list[Network]:
    return [network for network in NETWORKS if network.fits(arch, stem)]


@pytest.mark.parametrize(
    ("arch", "stem", "network"),
    [
        pytest.param(arch, stem, network, id=f"{arch}-{stem}-{network.name}")
        for arch, stem in CASES
        for network in known(arch, stem)
        if arch == "resnet18" or network.bottleneck
    ],
)
def test_the_network_that_the_statistics_were_taken_from_is_named(
    arch: str, stem: Stem, network: Network
) -> None:
    backbone = trained(arch, stem, network, INPUTS[0])
    topology = check_topology(backbone, photographs(SIZE_PX[stem]), (SIZE_PX[stem],))
    best = min(topology.networks, key=lambda score: score.nats)
    assert best.name == network.name
    gain = topology.networks[0].nats - best.nats
    assert (topology.contradiction != "") == (gain > MIN_GAIN)
    assert ("not contradicted" in topology.sentence) == (stem == network.stem)


def test_a_variant_that_fits_a_little_better_makes_the_topology_unclear() -> None:
    nats = {"plain": 0.01, "other": 0.008, "worse": 0.012}
    plain, other, worse = (Score(name=n, nats=value, size_px=64) for n, value in nats.items())
    for inputs, networks in (((plain, other), (plain, worse)), ((plain, worse), (plain, other))):
        topology = Topology(num_images=32, inputs=inputs, networks=networks)
        assert topology.contradiction == ""
        assert "unclear on 32 photographs" in topology.sentence
        assert "plain: 0.0100" in topology.sentence


def test_too_few_photographs_prove_nothing() -> None:
    backbone = random_backbone(arch="resnet18", stem="imagenet", seed=0)
    topology = check_topology(backbone, photographs(32)[: MIN_IMAGES - 1])
    assert not topology.checked
    assert topology.sentence.startswith(f"topology not checked: {MIN_IMAGES - 1} photographs")


def test_statistics_of_no_known_network_are_undecided() -> None:
    backbone = random_backbone(arch="resnet18", stem="imagenet", seed=0)
    large = {n: t * 1e4 for n, t in backbone.state_dict.items() if n.endswith("running_var")}
    noise = replace(backbone, state_dict=backbone.state_dict | large)
    assert "undecided" in check_topology(noise, photographs(32), (32,)).sentence


def test_the_divergence_is_that_of_two_normals() -> None:
    generator = torch.Generator().manual_seed(0)
    (m, mu), (v, s) = torch.randn(2, 5, generator=generator), torch.rand(2, 5, generator=generator)
    normal = torch.distributions.Normal
    expected = torch.distributions.kl_divergence(normal(m, v.sqrt()), normal(mu, s.sqrt()))
    assert divergence((m, v), (mu, s)) == pytest.approx(
        float(expected.clamp(max=MAX_DIVERGENCE).mean()), rel=64 * torch.finfo(m.dtype).eps
    )
