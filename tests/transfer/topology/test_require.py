"""A foreign backbone whose statistics contradict its assumed network is refused, or rebuilt."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torchvision.transforms.functional import normalize

from tests.transfer.topology.test_check import photographs, trained
from transfer.backbone import Backbone, BackboneError, load_backbone, random_backbone
from transfer.convert.resnet import network_with
from transfer.encoders.encoder import Encoder
from transfer.topology import require
from transfer.topology.check import Topology, check_topology
from transfer.topology.known_networks import INPUTS, NETWORKS, Input
from transfer.topology.require import write_as_fits

BY_NAME = {network.name: network for network in NETWORKS}
PLAIN = BY_NAME["as torchvision"]


def foreign(network: str = PLAIN.name, way: int = 0) -> Backbone:
    backbone = trained("resnet18", "imagenet", BY_NAME[network], INPUTS[way])
    return replace(backbone, file_sha256="0" * 64, source="moco.pth: MoCo layout", sha256="1" * 64)


@pytest.fixture
def comparisons(monkeypatch: pytest.MonkeyPatch) -> list[Topology]:
    """Return the comparisons that are made, with random images in place of photographs."""
    made: list[Topology] = []

    def compare(backbone: Backbone, folder: Path) -> Topology:
        made.append(check_topology(backbone, photographs(32), (32,)))
        return made[-1]

    monkeypatch.setattr(require, "compare_with_photographs", compare)
    return made


def test_a_backbone_that_is_not_contradicted_says_so_and_is_compared_once(
    comparisons: list[Topology], tmp_path: Path
) -> None:
    for _ in range(2):
        backbone = require.with_checked_topology(foreign(), tmp_path, tmp_path)
    assert "topology not contradicted by running statistics on 16 photographs" in backbone.source
    assert len(comparisons) == 1


def test_another_network_is_refused_unless_the_user_trusts_the_names(
    comparisons: list[Topology], tmp_path: Path
) -> None:
    backbone = foreign("no max-pool")
    with pytest.raises(BackboneError, match=r"another network: no max-pool .*--trust-topology"):
        require.with_checked_topology(backbone, tmp_path, tmp_path)
    trusted = require.with_checked_topology(backbone, tmp_path, tmp_path, trusted=True)
    assert "fit another network: no max-pool" in trusted.source


def test_without_photographs_the_source_says_that_topology_was_not_checked(tmp_path: Path) -> None:
    backbone = require.with_checked_topology(foreign(), tmp_path / "data", tmp_path / "cache")
    assert "topology not checked: 0 photographs are at hand" in backbone.source
    assert not (tmp_path / "cache").exists()  # photographs may come


@pytest.mark.parametrize("form", ["ssl-backbone/1", "ssl-encoder/1"])
def test_our_own_file_and_a_random_network_are_not_compared(
    form: str, comparisons: list[Topology], tmp_path: Path
) -> None:
    own = replace(foreign(), source=f"jcl.pt: {form} layout, prefix state_dict.")
    random = random_backbone(arch="resnet18", stem="imagenet", seed=0)
    for backbone in (own, random):
        assert require.with_checked_topology(backbone, tmp_path, tmp_path) is backbone
    assert comparisons == []


@pytest.mark.parametrize(
    ("network", "way"),
    [
        ("no max-pool", 0),
        *((PLAIN.name, n) for n, way in enumerate(INPUTS) if "CIFAR" not in way.name),
    ],
)
def test_the_rebuilt_file_computes_what_the_fitting_network_computes(
    network: str, way: int, tmp_path: Path
) -> None:
    backbone, images = foreign(network, way), photographs(32)
    topology = check_topology(backbone, images, (32,))
    assert (topology.network.name, topology.input.name) == (network, INPUTS[way].name)
    write_as_fits(backbone, topology, tmp_path / "fits.pt")
    rebuilt = load_backbone(tmp_path / "fits.pt")
    expected = network_with("resnet18", "imagenet", backbone.state_dict).double()
    BY_NAME[network].change(expected)
    with torch.inference_mode():
        form = rebuilt.input
        found = rebuilt.network().double()(normalize(images.double(), form.mean, form.std))
        wanted = expected(INPUTS[way](images.double()))
    # mean and std are rounded to float32 in one of the two
    assert torch.allclose(found, wanted, rtol=0, atol=1e-4 * float(wanted.abs().max()))


def test_a_network_that_cannot_be_built_is_not_written(tmp_path: Path) -> None:
    backbone = foreign("anti-aliased by blur-pool")
    topology = check_topology(backbone, photographs(32), (32,))
    with pytest.raises(BackboneError, match=r"anti-aliased by blur-pool.*cannot build"):
        write_as_fits(backbone, topology, tmp_path / "fits.pt")
    assert not (tmp_path / "fits.pt").exists()


def test_an_encoder_whose_first_norm_saw_other_inputs_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    images, (assumed, other) = photographs(32), INPUTS[:2]
    network = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16, momentum=1.0), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    monkeypatch.setattr(require, "natural_images", lambda *_, **__: images)

    def checked(seen: Input, *, trusted: bool = False) -> str:
        """Return the source of an encoder that states the assumed input and saw this one."""
        network.train()(seen(images))
        form: dict[str, Any] = {"size_px": 32, "mean": assumed.mean, "std": assumed.std}
        encoder = Encoder.from_module(network, **form)
        return require.with_checked_topology(encoder, tmp_path, tmp_path, trusted=trusted).source

    assert "not contradicted by running statistics on 16 photographs" in checked(assumed)
    with pytest.raises(BackboneError, match=f"another input: {re.escape(other.name)}"):
        checked(other)
    assert " fit another " in checked(other, trusted=True)
